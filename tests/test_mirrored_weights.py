"""Published weights from the mirror: found by torchvision's file name, checked by hash, and
reported if missing."""

from pathlib import Path

import pandas as pd
import pytest
import torch
import torchvision

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, file_sha256, read_json
from diagvib.images.datasets import ImageFiles
from diagvib.models import weights
from diagvib.models.weights import located
from diagvib.reproduction.comparability import scratch_note
from diagvib.settings.baselines import complete
from diagvib.settings.config import load_config
from diagvib.training.protocol import Protocol
from diagvib.training.run import Folders, Job, train_runs
from synthetic_images import write_dataset
from test_trainer import CPU, RUN

SETTINGS = {
    key: value
    for key, value in complete(
        {
            "model": {"name": "squeezenet1_1"},
            "method": "erm",
            "optimiser": {"name": "adam", "lr": 1e-4},
            "batch_size": 16,
            "normalise": "imagenet",
            "origin": "x",
        },
        "x",
    ).items()
    if key != "origin"
}
PRETRAINED = {
    **SETTINGS,
    "model": {**SETTINGS["model"], "name": "resnet18", "weights": "IMAGENET1K_V1"},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """A mirror's file for resnet18, with random weights."""
    path = tmp_path_factory.mktemp("mirror") / "weights" / "resnet18-f37072fd.pth"
    path.parent.mkdir()
    torch.manual_seed(7)
    torch.save(torchvision.models.resnet18().state_dict(), path)
    return path


def test_a_models_weights_are_found_by_torchvisions_name(file):
    model = PRETRAINED["model"]
    assert located(model, file.parent) == {**model, "weights_file": str(file)}
    for unchanged, folder in (
        (model, None),
        (model, file.parent.parent),
        (None, file.parent),
        (SETTINGS["model"], file.parent),
        ({**model, "weights": "IMAGENET1K_V9"}, file.parent),
        ({**model, "weights_file": "mine.pth"}, file.parent),
    ):
        assert located(unchanged, folder) == unchanged


def train(file: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "images", "zso", "hue", 0, counts=(16, 8, 12))
    job = Job(
        PRETRAINED, Protocol(1, None, 3), CPU, ImageFiles(tmp_path / "images"), weights=file.parent
    )
    train_runs(job, [RUN], Folders(tmp_path / "runs", tmp_path / "checkpoints"))


def test_a_training_takes_them_from_there_and_keeps_quiet_about_the_place(
    file, tmp_path, monkeypatch
):
    monkeypatch.setattr(weights, "path_hash", lambda url: file_sha256(file)[:8])
    train(file, tmp_path)
    assert read_json(tmp_path / "runs/0/run.json")["settings"] == PRETRAINED


def test_another_file_of_that_name_is_refused(file, tmp_path):
    with pytest.raises(
        DiagvibError, match="resnet18-f37072fd.pth: wrong hash: expected sha256 f37072fd"
    ):
        train(file, tmp_path)


def test_photos_without_published_weights_are_another_experiment():
    config = load_config(definition_path("spawrious.yaml"))
    names = [entry["name"] for entry in config["baselines"]]
    frame = pd.DataFrame([{"baseline": name, "study": "dogs-o2o-easy"} for name in names])
    assert scratch_note(frame, config) == (
        "Trained from scratch, not from published weights as in the paper: dogs_erm_scratch, "
        "dogs_group_dro_scratch, dogs_mmd_scratch."
    )
    assert scratch_note(frame[~frame["baseline"].str.endswith("scratch")], config) == ""
    assert scratch_note(frame.assign(study="o2o-easy"), config) == "", (
        "digits are learnt from scratch in the paper too"
    )
