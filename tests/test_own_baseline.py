"""A user's own model and method, in files next to the Snakefile, through the complete workflow."""

import re
from pathlib import Path

import pandas as pd
import pytest

from test_workflow import copy_of_the_repository, snakemake

FILES = {
    "lab/models.py": """
from torch import nn

def tiny(n_classes, image_size, width=4):
    return nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                         nn.Linear(4 * width, n_classes))
""",
    "lab/methods.py": """
from typing import ClassVar

from diagvib.methods.method import Method

class Focal(Method):
    options: ClassVar[dict] = {"gamma": {"type": "number", "minimum": 0, "default": 2.0}}

    def combine(self, losses, batch):
        return ((1 - (-losses).exp()) ** self.options.gamma * losses).mean()
""",
    "lab/baselines.yaml": """
tiny:
  model: {name: "lab.models:tiny", options: {width: 8}}
  method: erm
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 16
  origin: mine

focal:
  model: small_cnn
  method: {name: "lab.methods:Focal", gamma: 1.0}
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 16
  origin: mine

both:
  model: lab.models:tiny
  method: lab.methods:Focal
  depends: [lab/table.csv]
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 16
  origin: mine
""",
    "lab/table.csv": "1\n",
    "mine.yaml": """
root: toy
sources: embedded
studies: [zgo]
bindings: [hue-shape]
samples: 1
counts: {train: 36, val: 18, id: 18, ood: 18}
image_size: 64
baselines: [small_cnn, tiny, focal, both]
baselines_from: [lab/baselines.yaml]
training: {max_epochs: 1}
""",
}
BASELINES = {"small_cnn", "tiny", "focal", "both"}


def run(folder: Path, *arguments: str) -> str:
    return snakemake(folder, "--configfile", "mine.yaml", *arguments)


def planned(folder: Path) -> set[str]:
    """The jobs of a dry run: the stage, and for training the baseline."""
    said = run(folder, "-n")
    jobs = re.findall(r"^Job \d+: (train \S+|\w+)", said, re.M)
    assert jobs or "Nothing to be done" in said, said
    return set(jobs) - {"everything"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the repository in which model and method have been run."""
    folder = copy_of_the_repository(tmp_path_factory.mktemp("own"))
    (folder / "lab").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    run(folder)
    return folder


def test_runs_and_tables_name_them(folder):
    runs = pd.read_csv(folder / "toy/results/tables/runs.csv")
    assert set(runs["baseline"]) == BASELINES and set(runs["status"]) == {"ok"}
    for baseline in BASELINES:
        assert (
            folder / "toy/results/runs" / baseline / "zgo/hue-shape/0/predictions.parquet"
        ).is_file()
    metrics = pd.read_csv(folder / "toy/results/tables/metrics.csv")
    assert set(metrics["baseline"]) == BASELINES and metrics["mean"].between(0, 1).any()
    page = (folder / "toy/results/report.html").read_text()
    assert all(baseline in page for baseline in BASELINES)


@pytest.mark.parametrize(
    ("file", "old", "new", "trained"),
    [
        ("lab/methods.py", ".mean()", ".sum()", {"focal", "both"}),
        ("lab/models.py", "nn.ReLU()", "nn.Tanh()", {"tiny", "both"}),
        ("lab/table.csv", "1", "2", {"both"}),
        ("lab/baselines.yaml", "gamma: 1.0", "gamma: 3.0", {"focal"}),
    ],
)
def test_a_change_trains_again_what_uses_it_and_nothing_else(folder, file, old, new, trained):
    usual = FILES[file]
    assert old in usual
    try:
        (folder / file).write_text(usual.replace(old, new))
        changed = planned(folder)
    finally:
        (folder / file).write_text(usual)
    assert changed == {"tabulate", "plot", *(f"train {baseline}" for baseline in trained)}


def test_nothing_is_done_twice(folder):
    assert planned(folder) == set()


def test_forced_is_forced_and_touched_only_touched(folder):
    log = folder / "toy/logs/train/tiny/zgo/hue-shape.log"
    made = "toy/results/runs/tiny/zgo/hue-shape"
    mark, target = (
        folder / made / "0/run.json",
        ("--forcerun", "train", "--", f"{made}/sha256.json"),
    )
    for arguments, forced in ((("--touch", *target), False), (target, True)):
        before = mark.read_bytes()
        run(folder, *arguments)
        assert (mark.read_bytes() != before) == forced
    assert "accuracy" in log.read_text() and "kept" not in log.read_text()
    assert planned(folder) <= {"tabulate", "plot"}
