"""A dataset in the loaders and metrics of WILDS and in the Trainer of Hugging Face: the lines of
docs/library.md with the real packages, and the same numbers as the study's."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from wilds.common.data_loaders import get_train_loader
from wilds.common.grouper import CombinatorialGrouper
from wilds.common.metrics.all_metrics import Accuracy
from wilds.common.metrics.metric import ElementwiseMetric, Metric
from wilds.datasets.wilds_dataset import WILDSDataset

import diagvib
from conftest import REPOSITORY, refused
from diagvib.models.small_cnn import small_cnn
from diagvib.settings.layout import Layout

pytestmark = pytest.mark.integration
BLOCKS = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/library.md").read_text(), re.S)
COUNTS = {"train": 180, "id": 36, "ood": 72}
SMALL = {"sources": "embedded", "image_size": 64, "counts": {"val": 45}}


def shown(package: str) -> str:
    """The page's lines with a package."""
    return next(block for block in BLOCKS if f"from {package}" in block)


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> dict:
    """The variables that the page's lines with WILDS leave, with a small network."""
    torch.manual_seed(0)
    np.random.seed(0)  # WILDS' loaders draw from it
    net = small_cnn({"options": {}}, n_classes=10, image_size=128)
    names = {"diagvib": diagvib, "torch": torch, "counts": COUNTS, "net": net}
    names["optimiser"] = torch.optim.Adam(net.parameters(), lr=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIAGVIB_CACHE", str(tmp_path_factory.mktemp("cache")))
        if not find_spec("torch_scatter"):  # then by the loop over groups of other WILDS metrics
            patch.setattr(ElementwiseMetric, "_compute_group_wise", Metric._compute_group_wise)
        exec(shown("wilds"), names)
        inputs = (names["predictions"], names["test"].targets, names["test"].metadata_array)
        names["wilds"] = WILDSDataset.standard_group_eval(Accuracy(), names["grouper"], *inputs)[0]
    return names


def test_wilds_judges_predictions_as_the_study_does(names):
    theirs, test = names["wilds"], names["test"]
    ours = test.evaluate(names["predictions"])
    assert theirs["acc_wg"] == pytest.approx(ours["worst_cell"])
    assert theirs["acc_avg"] == pytest.approx(ours["accuracy"])
    assert ours["worst_cell"] < ours["accuracy"] < 1
    sizes = [value for name, value in theirs.items() if name.startswith("count_")]
    assert sum(sizes) == len(test) and np.count_nonzero(sizes) == 9


def test_wilds_loaders_balance_groups(names):
    train, grouper = names["train"], names["grouper"]
    natural = grouper.metadata_to_group(train.metadata_array).unique(return_counts=True)[1]
    assert natural.tolist() == [48, 6, 6, 6, 48, 6, 6, 6, 48]
    loader = get_train_loader("group", train, 36, grouper=grouper, n_groups_per_batch=9)
    _, _, metadata = next(iter(loader))
    groups = grouper.metadata_to_group(metadata)
    assert groups.unique(return_counts=True)[1].tolist() == [4] * 9


@pytest.fixture(scope="module")
def images() -> diagvib.StudyDataset:
    options = {"sources": "embedded", "counts": {**COUNTS, "val": 45}, "image_size": 64}
    options |= {"dtype": "float32", "metadata": "tensor", "classes": "sample"}
    return diagvib.load("fgo-20", "shape-hue", "all", **options)


def test_a_dataset_is_one_of_wilds(images, monkeypatch):
    """Its class as the base, WILDS finds nothing missing, and takes the same images as a subset."""
    dataset = WILDSDataset.__new__(type("Theirs", (type(images), WILDSDataset), {}))
    vars(dataset).update(vars(images))
    private = ("y_array", "y_size", "split_array", "metadata_fields", "metadata_array")
    for name in ("dataset_name", "data_dir", "split_scheme", *private):
        setattr(dataset, f"_{name}", getattr(images, name, "."))
    dataset.check_init()
    for split, frac in (("val", 1.0), ("train", 0.1), ("test", 1.0)):
        np.random.seed(0)
        ours = images.get_subset(split, frac, transform=torch.flatten)
        np.random.seed(0)
        theirs = WILDSDataset.get_subset(dataset, split, frac, torch.flatten)
        assert len(ours) == len(theirs) and torch.equal(ours.metadata_array, theirs.metadata_array)
        for (x, y, row), (expected, label, numbers) in zip(ours, theirs, strict=True):
            assert torch.equal(x, expected) and y == label and torch.equal(row, numbers)
    assert images.n_classes == 3 and images.original_resolution == (64, 64)
    assert {*images.targets.tolist()} == {0, 1, 2}
    with refused("this dataset has val; load split='all'"):
        images.get_subset("val").get_subset("train")


def test_wilds_metrics_are_the_datasets(images, monkeypatch):
    """In another order than the images'."""
    if not find_spec("torch_scatter"):
        monkeypatch.setattr(ElementwiseMetric, "_compute_group_wise", Metric._compute_group_wise)
    test, generator = images.get_subset("test"), np.random.default_rng(0)
    order, predictions = generator.permutation(len(test)), generator.integers(0, 3, len(test))
    inputs = (torch.from_numpy(predictions)[order], test.y_array[order], test.metadata_array[order])
    ours, text = test.eval(*inputs)
    grouper = CombinatorialGrouper(images, ["hue", "y"])
    theirs = WILDSDataset.standard_group_eval(Accuracy(), grouper, *inputs)[0]
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs)
    metrics = test.evaluate(predictions)
    for name in ("id_accuracy", "ood_accuracy"):
        assert ours[name] == pytest.approx(metrics[name])
    assert f"acc_wg: {metrics['worst_cell']:.3f}" in text


def test_a_batch_has_the_images_that_it_has_one_by_one(images):
    changed = images.get_subset("val", transform=lambda image: image.add_(1))
    for dataset in (images, changed, diagvib.load("zso", "shape", "val", **SMALL)):
        singles, batch = [dataset[i] for i in (4, 2)], dataset.__getitems__([4, 2])
        for single, several in zip(singles, batch, strict=True):
            assert torch.equal(single[0], several[0]) and single[1] == several[1]
            assert str(single[2]) == str(several[2])


def test_spuco_trains_and_evaluates(images):
    pytest.importorskip("spuco", reason="spuco is not installed; `pip install spuco`")
    from spuco.datasets import GroupLabeledDatasetWrapper, WILDSDatasetWrapper
    from spuco.evaluate import Evaluator
    from spuco.models import SpuCoModel
    from spuco.robust_train import ERM, GroupDRO

    train, test = (
        WILDSDatasetWrapper(images.get_subset(name), "hue") for name in ("train", "test")
    )
    groups = GroupLabeledDatasetWrapper(train, train.group_partition)
    for train_by, data in ((ERM, train), (GroupDRO, groups)):
        parts = small_cnn({"options": {}}, n_classes=3, image_size=64)
        net = SpuCoModel(parts.body, parts.head.in_features, 3)
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
        train_by(model=net, trainset=data, batch_size=36, optimizer=optimiser, num_epochs=1).train()
        evaluator = Evaluator(test, test.group_partition, test.group_weights, 64, net)
        evaluator.evaluate()
        subset = images.get_subset("test")
        with torch.no_grad():
            inputs = torch.stack([image for image, *_ in subset])
            metrics = subset.evaluate(net.eval()(inputs).argmax(1))
        assert evaluator.worst_group_accuracy[1] == pytest.approx(100 * metrics["worst_cell"])
        assert evaluator.average_accuracy == pytest.approx(100 * metrics["accuracy"])


def test_run_expt_of_wilds_trains_and_evaluates(tmp_path, monkeypatch):
    """By the script that compares them."""
    if not (checkout := os.environ.get("WILDS_CHECKOUT")):
        pytest.skip("WILDS_CHECKOUT names no checkout of WILDS; its wheel lacks run_expt")
    import field_code
    import field_training

    monkeypatch.setattr(field_training, "COUNTS", {**COUNTS, "val": 45})
    field_training.prepare_wilds(Path(checkout) / "examples")
    layout = Layout(tmp_path)
    field_code.make_images(layout)
    rows = field_code.compared(layout, seeds=1, epochs=1, code=("WILDS",))
    assert [row["method"] for row in sorted(rows, key=lambda row: row["method"])] == [
        "erm",
        "group_dro",
    ]
    assert all(0 <= row["ood_accuracy"] <= 1 for row in rows)


def test_the_trainer_learns_and_reports_the_studys_metrics(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(shown("transformers"), names)
    trainer, test = names["trainer"], names["test"]
    losses = [line["train_loss"] for line in trainer.state.log_history if "train_loss" in line]
    assert losses[0] < np.log(len(test.classes))
    right = trainer.predict(test).predictions.argmax(1) == test.targets.numpy()
    metrics, ood = trainer.evaluate(), np.array(test.metadata["group"]) == "ood"
    assert metrics["eval_accuracy"] == pytest.approx(right.mean())
    assert metrics["eval_ood_accuracy"] == pytest.approx(right[ood].mean())
