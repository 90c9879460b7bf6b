"""Learning on the real sources at reduced size: resnet18 with its published settings, through every
stage's own code.

The smallest set-up that was seen to work with a margin: 576 images of 64 pixels. Over dataset
samples 0 to 2 it gave hue 98.9 to 99.8 % after three epochs, and 0.0 % where the shortcut misleads
after two.
"""

from pathlib import Path

import pytest

from diagvib import stages
from diagvib.foundation.files import read_json
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout
from diagvib.settings.jobs import stage_settings

SMALL = [
    "image_size=64",
    "samples=1",
    "counts={train: 576, val: 90, id: 270, ood: 270}",
    "studies=[zso, zgo]",
    "bindings=[shape-position, hue-shape]",
    "baselines=[resnet18]",
]


@pytest.fixture(scope="module")
def root(mirror, tmp_path_factory) -> Path:
    """A root with the real digits and textures."""
    layout, config = Layout(tmp_path_factory.mktemp("learning")), load_config(None, SMALL)
    stages.fetch(layout, stage_settings(config, "fetch"), "digits", mirror)
    stages.prepare(layout, stage_settings(config, "prepare"), "digits")
    return layout.root


def accuracies(root: Path, study: str, binding: str, epochs: int) -> dict[str, float]:
    """Draw, render and train a dataset; the test accuracy on each group."""
    layout, config = Layout(root), load_config(None, [*SMALL, f"training.max_epochs={epochs}"])
    stages.draw(layout, stage_settings(config, "draw", study=study), study, binding)
    stages.render(layout, stage_settings(config, "render", study=study), study, binding, "cpu", 1)
    settings = stage_settings(config, "train", study=study, baseline="resnet18")
    stages.train(layout, settings, "resnet18", study, binding, "cpu")
    metrics = read_json(layout.runs("resnet18", study, binding) / "0" / "metrics.json")
    assert metrics["comparable"] and all(group["n"] == 270 for group in metrics["groups"].values())
    return {name: group["accuracy"] for name, group in metrics["groups"].items()}


def test_without_a_shortcut_it_learns_the_factor(root):
    assert accuracies(root, "zso", "hue", 3)["id"] > 0.95


def test_it_follows_the_shortcut_and_fails_where_that_misleads(root):
    accuracy = accuracies(root, "zgo", "shape-position", 2)
    assert accuracy["id"] > 0.95 and accuracy["ood"] < 0.1
