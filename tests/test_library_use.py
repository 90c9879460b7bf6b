"""The library as in a notebook: arguments of every kind, a cache that is cleared, study files that
change."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import diagvib
from conftest import refused
from diagvib.commands.export import export
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.studies import study_cells
from diagvib.studies.recipes import read_recipes, write_recipes
from test_library import COUNTS, follow
from test_library import load as load_test
from toy import images_here


def load(study="zgo", binding="shape-hue", split="val", **arguments):
    return load_test(study, binding, split, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"study": "zso", "binding": "Shape"},
            "binding 'Shape': unknown factor 'Shape'; did you mean shape or scale or hue?",
        ),
        ({"counts": {"ood": 0}}, "diagvib.load: counts.ood: must be greater than or equal to 9"),
        ({"device": ""}, "unknown device ''; known: auto, cpu, cuda"),
        (
            {"root": "made"},
            "diagvib.load: sources is for images that are rendered now, but those in made are "
            "finished; leave out sources or root",
        ),
        ({"cuonts": COUNTS}, "diagvib.load: unknown argument 'cuonts'; did you mean counts?"),
        ({"mirror": "none"}, "diagvib.load: mirror: none: no such folder"),
        ({"dtype": torch.int64}, "diagvib.load: dtype: unknown value 'int64'; did you mean uint8?"),
        (
            {"split": "test", "counts": {"test": 30, "id": 9}},
            "counts: the group id of study zgo has a number of images, but ood has none; ",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, message):
    with pytest.raises(DiagvibError) as refused:
        load(**arguments)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)


def test_a_training_set_without_a_class_is_refused(tmp_path):
    """As by a configuration; a test set is drawn all the same."""
    rare = {"splits": ["train", "val"], "group": "id", "weight": 0.02, "cells": [[2, 2]]}
    frequent = {**rare, "weight": 0.98, "cells": [[0, 0], [1, 1]]}
    tested = {"splits": ["test"], "group": "id", "cells": {"cue": "same"}}
    study = {"title": "t", "meaning": "m", "metrics": "accuracy", "roles": {"target": 3, "cue": 3}}
    file = {"title": "t", "studies": {"few": {**study, "rows": [frequent, rare, tested]}}}
    (tmp_path / "few.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    options = {"studies_from": tmp_path / "few.yaml", "counts": {"train": 20, "val": 9, "id": 9}}
    with refused("counts.train: with 20 images of study few, it may have none of target class 2; "):
        load("few", split="all", **options)
    assert len(load("few", split="test", **options)) == 9


def test_numbers_and_devices_may_be_those_of_numpy_and_torch():
    counts = {name: np.int64(number) for name, number in COUNTS.items()}
    sizes = {"sample": np.int64(1), "counts": counts, "image_size": np.int32(64)}
    sizes["counts"] = MappingProxyType(counts)
    alternative = load(device=torch.device("cpu"), studies_from=None, **sizes)
    for share in (-0.1, 2.0, float("nan")):
        with refused(f"frac {share}: a share from 0 to 1 is needed"):
            alternative.get_subset("val", share)
    assert torch.equal(load(sample=1).pixels, alternative.pixels)


def test_a_scene_of_photos_has_one_dataset_sample():
    """Another one would have other pairs of breed and background than the paper's, and a wrong
    confusion."""
    says = "^dataset sample 1: the scene dogs has one dataset sample, 0, since there"
    with refused(says):
        load("dogs-o2o-hard", "breed-background", "test", sample=1)


@pytest.mark.parametrize(
    "kind",
    [
        lambda targets: pd.Series(targets, index=range(len(targets), 0, -1)),
        lambda targets: torch.from_numpy(targets.astype(np.uint16)),
    ],
)
def test_predictions_of_every_kind_are_taken_in_their_order(kind):
    dataset = load()
    assert dataset.evaluate(kind(dataset.targets.numpy()))["accuracy"] == 1


def test_the_worst_combination_of_classes_counts():
    dataset = load(split="test", counts={"id": 9, "ood": 18})
    group, target, cue = (np.array(dataset.table[name]) for name in ("group", "shape", "hue"))
    mistakes = (target == target[group == "ood"][0]) & (cue == cue[group == "ood"][0])
    predictions = np.where(mistakes, (dataset.targets + 1) % 3, dataset.targets)
    metrics = dataset.evaluate(predictions)
    assert metrics["worst_cell"] == 0 and metrics["ood_accuracy"] == pytest.approx(5 / 6)


@pytest.mark.parametrize("indices", [np.arange(27) < 3, [0.5, 2.0], ["1"]])
def test_a_mask_is_not_taken_for_the_numbers_of_images(indices):
    dataset = load()
    with refused("images have numbers from 0 to 26, not .*; for a mask, use numpy.flatnonzero"):
        dataset.__getitems__(indices)
    assert dataset.__getitems__([]) == []
    chosen = torch.utils.data.Subset(dataset, torch.tensor([-1, 4]))
    assert [label for _, label, _ in chosen.__getitems__([0, 1])] == dataset.targets[
        [-1, 4]
    ].tolist()


def test_wilds_metrics_are_of_class_indices_and_of_their_own_targets():
    dataset = load(split="test")
    right, rows = dataset.targets, dataset.metadata_array
    assert dataset.eval(right.flip(0), right.flip(0), rows.flip(0))[0]["acc_avg"] == 1
    for predictions in (torch.rand(len(dataset)), torch.rand(len(dataset), 10), right[:, None]):
        with refused(r"predictions must be class indices int\[108\], .*; for logits, use argmax"):
            dataset.eval(predictions, right, rows)
    for inputs in ((right[:1], right, rows), (right, right.flip(0), rows), (right, right, right)):
        with refused(
            "are not those that came with the 1.* predictions; give each one's target, and"
        ):
            dataset.eval(*inputs)


def test_other_processes_can_be_given_transforms_of_a_subset():
    dataset = load(split="all", transform=torch.Tensor.float)
    val = dataset.get_subset("val", transform=torch.Tensor.sum)
    assert pickle.loads(pickle.dumps(val))[0][0] == dataset.pixels[COUNTS["train"]].sum()


def test_a_transform_may_change_its_image():
    dataset = load(transform=lambda image: image.fill_(0))
    before = dataset.pixels.clone()
    assert not dataset[0][0].any() and torch.equal(dataset.pixels, before)


def test_what_is_missing_or_damaged_in_the_cache_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path))
    pixels = load().pixels
    (prepared,) = tmp_path.glob("embedded/*/data/prepared/digits")
    digests = prepared / "sha256.json"
    for damage in (
        (prepared / "textures/wood.png").unlink,
        digests.unlink,
        lambda: digests.write_text("{"),
    ):
        damage()
        assert torch.equal(load().pixels, pixels)
        assert (prepared / "textures/wood.png").exists() and digests.read_text() != "{"


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "file"))
    with refused("file/embedded/.*: cannot be written .*; set DIAGVIB_CACHE to "):
        load()


def write_study(
    pairs: str, alternatives: str, name: str = "mine", metrics: str = "average"
) -> None:
    Path("mine.yaml").write_text(f"""
title: Mine
studies:
  {name}:
    title: Mine
    meaning: a cue
    metrics: {metrics}
    roles: {{target: 3, cue: 3}}
    rows:
      - {{splits: [train, val, test], group: id, cells: [{pairs}]}}
      - {{splits: [test], group: ood, cells: [{alternatives}]}}
""")


def load_mine(inputs: object = "mine.yaml") -> diagvib.StudyDataset:
    return load("mine", split="test", studies_from=inputs)


EQUAL, NEXT = "[0, 0], [1, 1], [2, 2]", "[0, 1], [1, 2], [2, 0]"


def test_an_edited_study_has_the_metrics_of_its_new_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for inputs, *cells in (("mine.yaml", EQUAL, NEXT), ([Path("mine.yaml")], NEXT, EQUAL)):
        write_study(*cells)
        dataset = load_mine(inputs)
        metrics = dataset.evaluate(follow(dataset, "hue"))
        # None is named after an environment, since there is one.
        assert metrics == {
            "accuracy": 0,
            "id_accuracy": 1,
            "ood_accuracy": 0,
            "worst_cell": 0,
            "confusion": 1,
        }


def test_a_dataset_keeps_the_definition_that_it_was_drawn_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(EQUAL, NEXT)
    dataset, again = load_mine(), pickle.loads(pickle.dumps(load_mine()))
    predictions = follow(dataset, "hue")
    expected = load_mine().evaluate(predictions)
    write_study(NEXT, EQUAL, metrics="accuracy", name="other")
    assert dataset.evaluate(predictions) == expected
    os.remove("mine.yaml")
    monkeypatch.chdir("/")
    assert again.evaluate(predictions) == expected


def test_finished_images_are_judged_by_the_study_that_they_were_drawn_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(EQUAL, NEXT)
    Path("config.yaml").write_text(
        "studies: [mine]\nstudies_from: [mine.yaml]\nbindings: [shape-hue]\nsamples: 1\n"
        "sources: embedded\nimage_size: 64\ncounts: {train: 90, val: 27, id: 36, ood: 72}\n"
    )
    config, names = load_config("config.yaml"), ("mine", "shape-hue")
    images_here(config, tmp_path)
    write_study(NEXT, EQUAL)
    dataset = diagvib.load(*names, "test", root=tmp_path, studies_from="mine.yaml")
    metrics = dataset.evaluate(follow(dataset, "hue"))
    assert (
        metrics["confusion"] == 1 and metrics["id_accuracy"] == 1 and metrics["ood_accuracy"] == 0
    )
    with refused("train.parquet: was drawn from an earlier definition of study mine"):
        export(config, tmp_path / "export")
    with refused("unknown study 'mine'"):
        diagvib.load(*names, "test", root=tmp_path / "other")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    write_study(EQUAL, NEXT)
    with refused(
        r"mine.yaml: .*/mine.yaml and mine.yaml differ, .*; name the right one as studies_f"
    ):
        diagvib.load(*names, "test", root=tmp_path)
    monkeypatch.chdir("/")  # the root's configuration names its studies
    assert len(diagvib.load(*names, "test", root=tmp_path)) == len(dataset)
    monkeypatch.chdir(tmp_path)
    text = Path("config.yaml").read_text()
    Path("config.yaml").write_text(
        f"{text.replace('image_size: 64', 'image_size: 96')}images: render"
    )
    with refused("have 64 pixels per side, but .*config.yaml has .* 96;"):
        diagvib.load(*names, "test", root=tmp_path)
    Path("config.yaml").write_text(text)
    recipes = Layout(tmp_path).recipes(*names)
    table, facts = read_recipes(recipes)
    write_recipes(recipes, table[:-1], facts)  # as with other counts and `images: render`
    with refused("its images are of earlier recipes than those in"):
        diagvib.load(*names, "test", root=tmp_path, studies_from="mine.yaml")
    (Layout(tmp_path).images(*names) / DIGESTS_FILE).unlink()  # as Snakemake does before it renders
    with refused("shape-hue: its images are being rendered, or are left"):
        diagvib.load(*names, "test", root=tmp_path, studies_from="mine.yaml")


def test_cues_that_cannot_be_added_to_a_study_are_refused():
    for added in ([1, 2], [0, 1, 2]):
        with refused("^study_cells: added_cue"):
            study_cells("cgo-3", "train", added)
        assert len(study_cells("zgo", "train", added)) == 3, "where nothing is added"
    of_numpy = study_cells("cgo-3", "train", np.array([1, 2, 1]))
    assert of_numpy.equals(study_cells("cgo-3", "train", (1, 2, 1)))


FORKS = """
import diagvib
from multiprocessing import get_context

def load(sample):
    counts = {"train": 90, "val": 27, "id": 36, "ood": 72}
    return diagvib.load("zgo", "shape-hue", "val", sample, sources="embedded", counts=counts)

def total(sample):
    return load(sample).pixels.numpy().sum()

def first(sample):
    return dataset[sample][0].numpy().sum()

dataset = load(0)
dataset.pixels.float().sum()  # has torch start its threads
with get_context("fork").Pool(2) as pool:
    assert pool.map_async(total, [0, 1]).get(timeout=30) == [total(0), total(1)]
    assert pool.map_async(first, [0, 1]).get(timeout=30) == [first(0), first(1)]
"""


def test_forks_of_a_process_that_has_loaded_images_load_more():
    ended = subprocess.run(
        [sys.executable, "-c", FORKS],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    assert ended.returncode == 0, ended.stderr


def features(images):
    return images.float().mean((2, 3))


@pytest.mark.parametrize("function", [diagvib.probe, diagvib.score])
def test_an_option_without_an_effect_is_refused(function):
    for name, value in (("split", "test"), ("dtype", "float32"), ("metadata", "tensor")):
        with refused(f"^diagvib.{function.__name__}: unknown argument '{name}'; known: root, so"):
            function(features, "zgo", "shape-hue", **{name: value})
    with refused(f"^diagvib.{function.__name__}: .*: must be callable, not 'resnet18'"):
        function("resnet18", "zgo", "shape-hue")


def test_the_defaults_of_torch_in_a_notebook_change_nothing():
    """Not even a device on which nothing can be computed."""
    arguments = {"counts": COUNTS, "image_size": 64, "sources": "embedded"}
    defaults = []

    def mean(images):
        defaults.append((torch.get_default_dtype(), torch.get_default_device().type))
        return images.float().mean((2, 3))

    def results():
        probed = diagvib.probe(mean, "zgo", "shape-hue", **arguments)
        eye = 9 * torch.eye(10, device="cpu")
        scored = diagvib.score(
            lambda images: eye[images[:, 0, 0, 0].long() % 10], "zgo", "shape-hue", **arguments
        )
        return probed, scored, load().pixels.tolist()

    expected = results()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        assert results() == expected
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert {*defaults} == {(torch.float32, "cpu"), (torch.float64, "meta")}


def test_a_network_is_scored_in_its_own_precision():
    net = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 10)
    )
    options = {"counts": COUNTS, "image_size": 64, "sources": "embedded"}
    metrics = diagvib.score(net, "zgo", "shape-hue", **options)
    in_double = diagvib.score(net.double(), "zgo", "shape-hue", **options)
    assert in_double["accuracy"] == metrics["accuracy"]


def test_predictions_in_batches_or_without_an_image_are_refused():
    dataset = load(split="test", metadata="tensor")
    for batches in ([torch.zeros(3), torch.zeros(2)], [[0], [0, 1]]):
        with refused("^list is not one array of numbers .*; join batches by torch.cat"):
            dataset.evaluate(batches)
    nothing = dataset.targets[:0]
    with refused("^eval: there are no predictions; "):
        dataset.eval(nothing, nothing, dataset.metadata_array[:0])
