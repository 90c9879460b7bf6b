"""A dataset in the loaders and metrics of WILDS and in the Trainer of Hugging Face: the lines of
docs/library.md with the real packages, and the same numbers as the study's."""

import re
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from wilds.common.data_loaders import get_train_loader
from wilds.common.metrics.all_metrics import Accuracy
from wilds.common.metrics.metric import ElementwiseMetric, Metric
from wilds.datasets.wilds_dataset import WILDSDataset

import diagvib
from conftest import REPOSITORY
from diagvib.models.small_cnn import small_cnn

pytestmark = pytest.mark.integration
BLOCKS = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/library.md").read_text(), re.S)
COUNTS = {"train": 180, "id": 36, "ood": 72}


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
