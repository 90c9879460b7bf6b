"""A user's own scene and studies, with two cues and with two environments, through the complete
workflow."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import test_workflow
from conftest import REPOSITORY
from diagvib.foundation.errors import DiagvibError
from diagvib.settings.config import load_config

STUDIES = {
    "two-cues": ("corner-colour-extent", ["common", "neither"]),
    "two-places": ("corner-colour", ["new"]),
}
CONFIG = """
root: squares
sources: embedded
studies: [two-cues, two-places]
studies_from: [square_studies.yaml]
bindings: [corner-colour-extent, corner-colour]
samples: 1
counts: {train: 300, val: 60, common: 30, neither: 24, new: 40}
image_size: 64
baselines: [small_cnn]
training: {max_epochs: 2}
"""


def snakemake(folder: Path, *arguments: str) -> str:
    return test_workflow.snakemake(folder, "--configfile", "squares.yaml", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the repository in which the squares have been run; scene and studies are next to
    the Snakefile."""
    folder = test_workflow.copy_of_the_repository(tmp_path_factory.mktemp("own"))
    for name in ("squares.py", "square_studies.yaml"):
        shutil.copy2(REPOSITORY / "tests" / name, folder / name)
    (folder / "squares.yaml").write_text(CONFIG)
    snakemake(folder)
    return folder


@pytest.mark.parametrize("study", STUDIES)
def test_predictions_carry_every_factor(folder, study):
    binding, groups = STUDIES[study]
    run = folder / "squares/results/runs/small_cnn" / study / binding / "0"
    predictions = pd.read_parquet(run / "predictions.parquet")
    assert {"colour", "corner", "extent", "group", "prediction"} <= set(predictions.columns)
    assert ("environment" in predictions.columns) == (study == "two-places")
    assert sorted(set(predictions["group"])) == groups
    assert json.loads((run / "metrics.json").read_text())["baseline"] == "small_cnn"


def test_tables_and_report_name_the_studies(folder):
    runs = pd.read_csv(folder / "squares/results/tables/runs.csv")
    assert set(runs["study"]) == set(STUDIES) and set(runs["status"]) == {"ok"}
    page = (folder / "squares/results/report.html").read_text()
    assert "Two cues" in page and "Two environments" in page


def test_nothing_is_done_twice(folder):
    assert "Nothing to be done" in snakemake(folder, "--dry-run")


def test_a_change_of_the_studies_file_runs_what_depends_on_it(folder):
    path = folder / "square_studies.yaml"
    usual = path.read_text()
    try:
        path.write_text(usual.replace("weight: 2.0", "weight: 4.0"))
        planned = snakemake(folder, "--dry-run")
    finally:
        path.write_text(usual)
    assert re.findall(r"^Job \d+: draw (\S+)", planned, re.M) == ["two-places"]


def test_two_scenes_of_one_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        shutil.copy2(REPOSITORY / "tests/squares.py", f"{name}.py")
        text = (
            (REPOSITORY / "tests/square_studies.yaml")
            .read_text()
            .replace("squares:Squares", f"{name}:Squares")
        )
        Path(f"{name}.yaml").write_text(re.sub("two-(?=cues|places)", f"{name}-", text))
    Path("mine.yaml").write_text(
        CONFIG.replace("[two-cues, two-places]", "[one-cues, two-cues]")
        .replace("[square_studies.yaml]", "[one.yaml, two.yaml]")
        .replace("[corner-colour-extent, corner-colour]", "all")
    )
    with pytest.raises(
        DiagvibError,
        match="one-cues and two-cues: their scenes one:Squares and two:Squares would "
        "share the folder Squares; rename one class",
    ):
        load_config(Path("mine.yaml"))
