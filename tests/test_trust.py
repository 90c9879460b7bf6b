"""Files made behind the workflow's back are made again, whoever made them; those merely older or
from elsewhere is not. With the real program at toy size, in copies of one finished repository."""

import json
import shutil
from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

from diagvib.cli import app
from diagvib.foundation.files import read_json, write_json
from toy import MODELS, RUN, count, hashes, toy, write

EDITED = MODELS.replace("width=4):", "width=4):\n    print('edited')")
RUNS = RUN.format("tiny")
TRAINED = {"train": 1, "tabulate": 1, "tables": 1}
ALL_TRAINED = {**TRAINED, "train": 3}  # the baselines on these images


def by_hand(folder: Path, *arguments: str) -> None:
    with chdir(folder):
        app([*arguments, "--config", "toy.yaml"], standalone_mode=False)


def train(folder: Path, *changed: str) -> None:
    by_hand(folder, "train", "tiny", "zgo", "hue-shape", *changed)


def other_seed(folder: Path) -> None:
    train(folder, "--set", "training.seed=7")


def model_edited_and_reverted(folder: Path) -> None:
    write(folder, {"lab/models.py": EDITED})
    train(folder)
    write(folder, {"lab/models.py": MODELS})


def older_folder(folder: Path) -> None:
    """As `dvc checkout` of an older commit leaves it: its times are those of today."""
    older = shutil.copytree(folder, folder / "older")
    other_seed(older)
    shutil.rmtree(folder / RUNS)
    shutil.copytree(older / RUNS, folder / RUNS, copy_function=shutil.copyfile)


def other_images(folder: Path) -> None:
    """The runs of another root, whose settings differ in a count alone."""
    other = ("--root", "other", "--set", "counts.train=63")
    by_hand(folder, "prepare", *other)
    by_hand(folder, "draw", "zgo", "hue-shape", *other)
    by_hand(folder, "render", "zgo", "hue-shape", *other)
    train(folder, *other)
    shutil.copytree(folder / RUNS.replace("toy", "other", 1), folder / RUNS, dirs_exist_ok=True)


def one_for_another(folder: Path) -> None:
    shutil.copytree(folder / RUNS / "0", folder / RUNS / "1", dirs_exist_ok=True)


@pytest.mark.parametrize(
    ("disturb", "what"),
    [
        (other_seed, "training"),
        (model_edited_and_reverted, "code"),
        (older_folder, "training"),
        (other_images, "images"),
        (one_for_another, "run, images"),
    ],
)
def test_a_run_that_is_not_the_one_asked_for_is_named_and_not_counted(finished, disturb, what):
    disturb(finished)
    assert count(toy(finished, "-n", "--", "tables")) == TRAINED
    by_hand(finished, "tabulate")
    row = pd.read_csv(finished / "toy/results/tables/runs.csv").query("baseline == 'tiny'").iloc[-1]
    assert row.status == "missing"
    assert row.reason.startswith(f"another run is there, of other {what} than")


def test_it_is_made_again(made, finished):
    other_seed(finished)
    toy(finished, "--", "tables")
    assert hashes(finished / "toy") == hashes(made / "toy")
    assert "Nothing to be done" in toy(finished, "-n", "--", "tables")


@pytest.mark.parametrize(
    ("stage", "changed", "again"),
    [
        ("draw", "counts.train=90", {"draw": 1, "render": 1, **ALL_TRAINED}),
        ("render", "image_size=128", {"render": 1, **ALL_TRAINED}),
    ],
)
def test_recipes_and_images_of_other_settings_are_made_again(finished, stage, changed, again):
    by_hand(finished, stage, "zgo", "hue-shape", "--set", changed)
    assert count(toy(finished, "-n", "--", "tables")) == again


def test_images_of_other_recipes_are_made_again(finished):
    """Also after the recipes are right again, which are older then."""
    by_hand(finished, "draw", "zgo", "hue-shape", "--set", "counts.ood=27")
    by_hand(finished, "render", "zgo", "hue-shape")
    by_hand(finished, "draw", "zgo", "hue-shape")
    assert count(toy(finished, "-n", "--", "tables")) == {"render": 1, **ALL_TRAINED}


def test_runs_from_another_machine_count(finished):
    for path in (finished / RUNS).glob("*/run.json"):
        said = read_json(path)
        said |= {"device": "NVIDIA H100", "precision": "bf16", "threads": 16}
        said["versions"]["python"] = "3.13.0"
        write_json(path, said)
    assert "Nothing to be done" in toy(finished, "-n", "--", "runs")
    before = (finished / RUNS / "0/run.json").read_bytes()
    few = ("studies=[zgo]", "bindings=[hue-shape]", "baselines=[tiny]")
    toy(finished, "--config", *few, "training={max_epochs: 2, threads: 2}", "--", "runs")
    assert (finished / RUNS / "0/run.json").read_bytes() == before, "kept"
    by_hand(finished, "tabulate")
    assert set(pd.read_csv(finished / "toy/results/tables/runs.csv").status) == {"ok"}


def test_a_run_whose_record_is_no_record_is_made_again(finished):
    (finished / RUNS / "1/run.json").write_text(json.dumps({"code": "mine", "training": []}))
    assert count(toy(finished, "-n", "--", "runs")) == {"train": 1, "runs": 1}
