"""Replicates that differ in their seeds: one dataset, several training runs on it."""

import json

import pytest
import yaml

from conftest import REPOSITORY
from diagvib.foundation.errors import DiagvibError
from diagvib.operations.plan import estimate
from diagvib.settings.config import resolve
from diagvib.settings.grid import Layout, dataset_count, make_run, runs
from squares import Squares
from toy import images_here, runs_here

JOB = ("small_cnn", "two-cues", "corner-colour-extent")


class Seeded(Squares):
    """Squares with only one dataset, as with photos."""

    name = "Seeded"
    replicates = "seeds"


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("seeded")
    studies = yaml.safe_load((REPOSITORY / "tests" / "square_studies.yaml").read_text())
    for study in studies["studies"].values():
        study["scene"] = "test_replicates:Seeded"
    (folder / "studies.yaml").write_text(yaml.safe_dump(studies, sort_keys=False))
    return resolve(
        {
            "root": str(folder),
            "sources": "embedded",
            "studies": [JOB[1]],
            "studies_from": [str(folder / "studies.yaml")],
            "bindings": [JOB[2]],
            "samples": 3,
            "image_size": 64,
            "baselines": [JOB[0]],
            "training": {"max_epochs": 1},
            "counts": {"train": 60, "val": 24, "common": 12, "neither": 12},
        },
        "seeded.yaml",
    )


@pytest.fixture(scope="module")
def layout(config, tmp_path_factory) -> Layout:
    """Everything up to the runs."""
    layout = images_here(config, tmp_path_factory.getbasetemp() / "replicates")
    runs_here(config, layout)
    return layout


def test_all_replicates_share_one_dataset(config, layout):
    assert dataset_count(config) == 1 and len(runs(config)) == 3
    assert [path.name for path in layout.images(*JOB[1:]).iterdir() if path.is_dir()] == ["0"]
    plan = estimate(config, "cpu")
    assert plan["datasets"] == 1 and plan["runs"] == 3 and plan["images"] == 60 + 24 + 24


def test_each_replicate_is_trained_with_a_seed_of_its_own(config, layout):
    made = [
        json.loads((layout.runs(*JOB) / str(number) / "run.json").read_text())
        for number in range(3)
    ]
    seeds = [run["seed"] for run in made]
    assert seeds[0] == config.training.seed and len(set(seeds)) == 3
    assert seeds == [run["training"]["seed"] for run in made]
    histories = {
        (layout.runs(*JOB) / str(number) / "history.jsonl").read_text() for number in range(3)
    }
    assert len(histories) == 3


def test_only_replicates_of_one_dataset_have_seeds_of_their_own():
    for number in range(3):
        assert make_run(*JOB, number).seed(7) == 7
        shared = make_run(*JOB, number, shared=True)
        assert (
            (shared.seed(7) == 7) == (number == 0)
            and shared.dataset == 0
            and shared.sample == number
        )


def test_scenes_of_both_kinds_need_configurations_of_their_own(config):
    both = {key: getattr(config, key) for key in ("sources", "studies_from", "samples")} | {
        "studies": [JOB[1], "whac-95"],
        "bindings": [JOB[2], "shape-hue-texture"],
        "baselines": ["erm"],
        "counts": {
            "train": 60,
            "val": 24,
            "common": 12,
            "neither": 12,
            "no-cue-1": 12,
            "no-cue-2": 12,
        },
    }
    with pytest.raises(
        DiagvibError,
        match="both.yaml: studies: a replicate of digits is a dataset sample, one of "
        "test_replicates:Seeded a seed",
    ):
        resolve(both, "both.yaml")
