"""diagvib as a library: the same images as the workflow's, the study's metrics, and an import that
costs nothing."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
import yaml
from timm.data import create_transform

import diagvib
from conftest import BIN, REPOSITORY, refused
from diagvib.images.files import read_images
from diagvib.results.evaluation import evaluate
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import KnownStudies
from synthetic_studies import own_study
from toy import images_here

COUNTS = {"train": 90, "val": 27, "id": 36, "ood": 72}


def load(study="zgo", binding="shape-hue", split="test", **arguments) -> diagvib.StudyDataset:
    defaults = {"sources": "embedded", "counts": COUNTS, "image_size": 64}
    return diagvib.load(study, binding, split, **defaults | arguments)


@pytest.fixture(scope="module")
def dataset():
    return load()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Image files of the workflow's stages."""
    folder = tmp_path_factory.mktemp("root")
    config = load_config(
        overrides=[
            "sources=embedded",
            "studies=[zgo]",
            "bindings=[shape-hue]",
            "samples=2",
            f"counts={json.dumps(COUNTS)}",
            "image_size=64",
            "baselines=[small_cnn]",
            "tuning={study: zso, factors: [shape], samples: [0]}",
        ]
    )
    images_here(config, folder)
    return folder


@pytest.mark.parametrize(("sample", "split"), [(0, "train"), (1, "val"), (1, "test")])
def test_images_are_those_of_the_workflow(root, sample, split):
    output = load(split=split, sample=sample)
    read = diagvib.load("zgo", "shape-hue", split, sample, root=root)
    file = read_images(Layout(root).images("zgo", "shape-hue") / f"{sample}/{split}.parquet")
    all_items = diagvib.load("zgo", "shape-hue", "all", sample, root=root)
    folder_ = all_items.metadata_array[:, 1] == ["train", "val", "test"].index(split)
    assert torch.equal(all_items.pixels[folder_], file.pixels) and len(all_items) == 90 + 27 + 108
    for item in (output, read):
        assert torch.equal(item.pixels, file.pixels)
        assert torch.equal(item.targets, file.labels("shape"))
    assert output.metadata == read.metadata


def test_counts_that_are_left_out_are_the_papers(monkeypatch):
    monkeypatch.setattr(
        "diagvib.library.rendering.rendered", lambda table, *_: torch.zeros(len(table), 1)
    )
    for counts in ({"train": 90}, None):
        assert len(load(split="val", counts=counts)) == 8748


def test_it_feeds_a_data_loader(dataset):
    image, target, metadata = dataset[5]
    assert image.shape == (3, 64, 64) and image.dtype == torch.uint8
    assert torch.equal(image.permute(1, 2, 0), dataset.pixels[5]) and target == dataset.targets[5]
    row = dataset.table.slice(5, 1).to_pylist()[0]
    assert dataset.classes[target] == row["shape"] and metadata["group"] == row["group"]
    assert dataset.cue_classes["hue"][metadata["hue"]] == row["hue"]
    images, targets, described = next(iter(torch.utils.data.DataLoader(dataset, batch_size=8)))
    assert images.shape == (8, 3, 64, 64) and targets.tolist() == dataset.targets[:8].tolist()
    assert described["hue"].tolist() == dataset.metadata["hue"][:8]


def test_transforms_are_applied():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    output = load(split="val", dtype=torch.float32)
    image = output.pixels[0].permute(2, 0, 1) / 255
    assert torch.equal(output[0][0], image)
    expected = (image - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    output.transform = create_transform((3, 64, 64), mean=mean, std=std, crop_pct=1.0)
    torch.testing.assert_close(output[0][0], expected)


def test_metadata_are_a_tensor_with_names():
    dataset = load("o2o-hard", "shape-hue", "all", metadata="tensor")
    assert dataset.metadata_fields == ["group", "environment", "split", "hue", "y"]
    for name, numbers in zip(dataset.metadata_fields, dataset.metadata_array.T, strict=True):
        with_names = [dataset.metadata_map[name][number] for number in numbers]
        assert with_names == dataset.table["shape" if name == "y" else name].to_pylist()
    with refused("^predictions are evaluated on one split; load it by"):
        dataset.evaluate(dataset.targets)


def test_a_cell_without_images_is_named():
    dataset = load("whac-95", "shape-position-hue", counts={"test": 18})
    assert len(set(dataset.metadata["group"])) == 4
    with pytest.warns(UserWarning, match="no image of the cell .*, [0-9], .*, .*; ") as met:
        dataset.evaluate(dataset.targets)
    assert met[0].filename == __file__
    dataset.table = dataset.table.filter(pc.field("group") != "neither")
    with refused("^whac-95 .*: the test split has no image of group neit"):
        dataset.evaluate(dataset.targets[: len(dataset.table)])


def test_a_group_without_photos_is_said_to_have_none():
    dataset = load("zgo", "shape-hue")
    dataset.table = dataset.table.filter(pc.field("group") != "ood")
    for remedy in ("raise its number", "its photos have none in this split"):
        with refused(f"the test split has no image of group ood; {remedy}"):
            dataset.evaluate(dataset.targets[: len(dataset.table)])
        study = dataset._known_studies.studies["zgo"].model_copy(update={"as_published": True})
        dataset._known_studies = KnownStudies(definitions=(study,))


@pytest.mark.parametrize("name", ["id", "plain"])
def test_a_class_with_the_name_of_another_metric_is_refused(tmp_path, name):
    """Instead of giving only one of the two."""
    scene = {"folder": ".", "table": "t.csv", "factors": {"seen": [name, "z"], "c": ["u", "v"]}}
    (tmp_path / "photos.yaml").write_text(yaml.safe_dump(scene))
    row = {"splits": ["train", "val", "test"], "group": "id", "cells": [[0], [1]]}
    keys = {"roles": {"target": 2}, "as_published": True, "scene": str(tmp_path / "photos.yaml")}
    studies = KnownStudies(definitions=(own_study([row], **keys),))
    table = pa.table({"group": ["id"] * 2, "seen": [name, "z"]})
    with refused(f"two metrics would be called {name}_accuracy; rename the class {name}"):
        evaluate("mine", "seen", 0, "test", table, ["z", "z"], studies)


def test_a_cell_without_images_in_one_environment_is_named():
    dataset = load("o2o-easy", "shape-hue", counts={"test": 400})
    table = dataset.table.to_pandas()[["environment", "group", "shape", "hue"]]
    retained = (table != table.iloc[0]).any(axis=1).to_numpy(copy=True)
    dataset.table = dataset.table.filter(pa.array(retained))
    with pytest.warns(UserWarning, match=f"no image of the cell {', '.join(table.iloc[0])}; "):
        dataset.evaluate(dataset.targets[retained])


def test_the_same_counts_serve_every_study():
    counts = COUNTS | {"test": 45, "common": 9}
    for study, images in {"zso": 36, "zgo": 108, "m2m-hard": 108}.items():
        assert len(load(study, "shape-hue", counts=counts)) == images
    counts = COUNTS | {"test": 45}
    assert len(load("whac-95", "shape-position-hue", counts=counts)) == 45


def test_stand_ins_for_photos_suffice_for_the_usual_counts():
    dataset = load("urbancars", "car-background-object", counts=None)
    assert len(dataset) == 120 and dataset.evaluate(dataset.targets)["joint_gap"] == pytest.approx(
        0
    )


def follow(dataset: diagvib.StudyDataset, cue: str, group: str = "id") -> list[int]:
    """Predictions of the target that each class of a cue has in a test group."""
    classes, targets = dataset.metadata[cue], dataset.targets.tolist()
    rows = zip(classes, targets, dataset.metadata["group"], strict=True)
    cue_labels = {name: target for name, target, values in rows if values == group}
    return [cue_labels[name] for name in classes]


def test_a_perfect_predictor_and_one_that_follows_the_cue(dataset):
    assert set(dataset.evaluate(dataset.targets).values()) == {1.0}
    assert dataset.evaluate(follow(dataset, "hue")) == {
        "accuracy": pytest.approx(1 / 3),
        "id_accuracy": 1.0,
        "ood_accuracy": 0.0,
        "worst_cell": 0.0,
    }


@pytest.fixture
def scenes(tmp_path, monkeypatch):
    """Two modules, each with a scene of the same name and a study of it; the second's colours are
    others."""
    for name, colour in (("one", "(200, 40, 40)"), ("two", "(90, 90, 90)")):
        write_scene(tmp_path, name, colour)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_scene(folder: Path, name: str, red: str) -> None:
    text = (REPOSITORY / "tests/squares.py").read_text()
    assert "(200, 40, 40)" in text
    (folder / f"{name}.py").write_text(text.replace("(200, 40, 40)", red) + PHOTOS)


PHOTOS = """

from diagvib.foundation.errors import DiagvibError


class Photos(Squares):
    def raw_files(self, sources):
        return ["photo"] if sources == "official" else []

    def state(self, mirror):
        return mirror.read_text() if mirror else ""

    def fetch(self, raw, mirror):
        if mirror is None:
            raise DiagvibError("mirror: set it to your photo")
        raw.mkdir(parents=True, exist_ok=True)
        (raw / "photo").write_text(mirror.read_text())

    def prepare(self, raw, prepared, sources):
        prepared.mkdir(parents=True, exist_ok=True)
        (prepared / "photo").write_text((raw / "photo").read_text())
"""


def prepared(scene: str, mirror: Path | None = None) -> Path:
    """The folder of the data that a scene's images are rendered from."""
    sources = "official" if mirror else "embedded"
    return cached(load_scene(scene), sources, mirror)


def test_every_scene_and_every_version_of_its_code_has_its_own_data(scenes, monkeypatch):
    left, right = prepared("one:Squares"), prepared("two:Squares")
    assert left != right and prepared("one:Squares") == left
    write_scene(scenes, "one", "(0, 0, 0)")
    with refused("^scene Squares: its code, or diagvib's, has changed"):
        prepared("one:Squares")
    monkeypatch.setattr("diagvib.scenes.cache.loaded_code", {})  # as in a new process
    assert prepared("one:Squares") not in (left, right)


def test_other_photos_are_not_taken_for_those_asked_for(scenes):
    for name in ("a", "b"):
        (scenes / name).write_text(name)
    for name in ("a", "b", "a"):
        assert (prepared("one:Photos", scenes / name) / "photo").read_text() == name
    (scenes / "a").write_text("changed")
    assert (prepared("one:Photos", scenes / "a") / "photo").read_text() == "changed"
    with refused("mirror: set it to your photo"):
        cached(load_scene("one:Photos"), "official", None)


PREPARING = """
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
print(cached(load_scene("digits"), "embedded", None))
"""


def test_several_processes_may_be_the_first(tmp_path):
    environment = {**os.environ, "DIAGVIB_CACHE": str(tmp_path)}
    command, pipe = [BIN / "python", "-c", PREPARING], subprocess.PIPE
    processes = [
        subprocess.Popen(command, env=environment, text=True, stdout=pipe, stderr=pipe)
        for _ in range(2)
    ]
    message = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], message
    assert len({out for out, _ in message}) == 1


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([0, 1], r"2 predictions for the 108 images of the split test"),
        (
            np.zeros((108, 10)),
            r"int\[108\], .* 9, not float64\[108, 10\]; for logits, use argmax",
        ),
        (
            ["5"] * 108,
            r"^predictions must be class indices int\[108\], numbers from 0 to 9, not <U1",
        ),
        (np.full(108, -1), r"from 0 to 9, not -1 to -1"),
        (np.full(108, 2**64 - 1, np.uint64), r"from 0 to 9, not 18446744073709551615 to"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(dataset, predictions, message):
    with refused(message):
        dataset.evaluate(predictions)


def test_confidence_gives_calibration_errors(dataset):
    """Of predictions that are all right, what is missing from 1."""
    metrics = dataset.evaluate(dataset.targets, torch.full((108,), 0.75))
    metrics |= dataset.evaluate(
        dataset.targets, torch.full((108,), 0.75).bfloat16().requires_grad_()
    )
    errors = {name: value for name, value in metrics.items() if name.endswith("ece")}
    assert errors == pytest.approx({"ece": 0.25, "id_ece": 0.25, "ood_ece": 0.25})
    texts, truths = np.full(108, "0.5"), np.full(108, True)
    for mistakes in (np.full(108, 1.5), np.full(108, -0.5), np.full(107, 0.5), texts, truths):
        with refused("confidence must be 108 probabilities from 0 to 1"):
            dataset.evaluate(dataset.targets, mistakes)
    half = np.full(108, 0.1, np.float16)
    assert dataset.evaluate(dataset.targets, half)["ece"] == pytest.approx(0.9, abs=1e-3)
    with refused(r"confidence\[3\] is 0.05, below 1/10, so another class would be predicted; give"):
        dataset.evaluate(dataset.targets, np.where(np.arange(108) == 3, 0.05, 0.5))


def test_what_there_is_can_be_listed():
    assert {"zgo", "whac-95"} <= set(diagvib.studies()) and "resnet18" in diagvib.models()
    assert diagvib.methods()["erm"] == ("none",)


def test_importing_it_imports_nothing_heavy():
    output = subprocess.run(
        [sys.executable, "-c", "import sys, diagvib; diagvib.studies; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"torch", "pandas", "numba", "matplotlib", "scipy"} & set(output)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        diagvib.lod  # noqa: B018


def test_numbers_among_the_classes_of_the_sample_alone_are_named(dataset):
    """Of a network that was trained with `classes="sample"`, on the test split without."""
    of_sample = load(classes="sample")
    with pytest.warns(UserWarning, match=r"all predictions are below 3, .* with classes='sample'"):
        wrong = dataset.evaluate(of_sample.targets)
    assert of_sample.evaluate(of_sample.targets)["accuracy"] == 1 > wrong["accuracy"]
    with warnings.catch_warnings(action="error"):
        dataset.evaluate(dataset.targets)
        dataset.evaluate((dataset.targets + 1) % len(dataset.classes))
