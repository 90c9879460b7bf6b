"""More images than fit into memory: the same bytes from disk."""

from pathlib import Path

import pytest
import torch

from conftest import refused
from diagvib.foundation.files import read_json
from diagvib.images import memory
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import read_images
from diagvib.images.memory import room
from diagvib.training.job import Folders, Job
from diagvib.training.protocol import Protocol
from diagvib.training.run import train_runs
from synthetic_images import write_dataset
from synthetic_methods import settings_of
from test_trainer import CPU, RUN


@pytest.fixture
def images(tmp_path):
    write_dataset(tmp_path / "images", "zso", "hue", 0, counts=(40, 8, 12))
    return tmp_path / "images"


def test_a_split_on_the_disk_has_the_same_bytes(images, monkeypatch):
    path = images / "0" / "train.parquet"
    held_out, files = read_images(path), sorted(images.rglob("*"))
    monkeypatch.setattr(memory, "SHARE", 0.0)
    mapped = read_images(path)
    assert torch.equal(held_out.pixels, mapped.pixels) and held_out.table.equals(mapped.table)
    assert sorted(images.rglob("*")) == files, "the file has no name, so it is never left behind"


def test_images_need_no_folder_that_may_be_written(monkeypatch):
    monkeypatch.setattr(memory, "SHARE", 0.0)
    assert room((2, 4, 4, 3), Path("/proc/self/fd/no folder")).shape == (2, 4, 4, 3)


def test_a_disk_that_is_too_small_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "SHARE", 0.0)
    with refused(
        r"do not fit into memory, nor on this disk .*; free some space, or lower",
    ):
        room((10**9, 1024, 1024, 3), tmp_path)
    assert not list(tmp_path.iterdir())


def test_trainings_from_memory_and_from_the_disk_are_the_same(images, tmp_path, monkeypatch):
    settings = {
        **settings_of(normalise="imagenet"),
        "augment": ["flip"],
    }
    for location, share in (("memory", 1.0), ("disk", 0.0)):
        monkeypatch.setattr(memory, "SHARE", share)
        train_runs(
            Job(settings, Protocol(2, None, 3), CPU, ImageFiles(images), keep_weights=True),
            [RUN],
            Folders(tmp_path / location, tmp_path / "checkpoints"),
        )
    metrics = read_json(tmp_path / "disk/0/metrics.json")
    assert metrics["cue"] is None and list(metrics["groups"]) == ["id"]
    for name in ("predictions.parquet", "history.jsonl", "metrics.json", "weights.pt"):
        assert (tmp_path / "memory/0" / name).read_bytes() == (
            tmp_path / "disk/0" / name
        ).read_bytes()
