"""The configurations of UrbanCars: the paper's methods with its numbers, and the stand-ins through
every stage."""

import json
import re

import pandas as pd
import pytest

from conftest import REPOSITORY, refused
from diagvib.commands.plan import estimate
from diagvib.papers.whac_a_mole.gaps import MEASURES, METRIC_SET
from diagvib.papers.whac_a_mole.published import read_urbancars_tables
from diagvib.results.metric_sets.metric_set import over_samples
from diagvib.results.published import beside_papers
from diagvib.settings.layout import Run
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import SHIPPED
from toy import run_here

STUDY, BINDING = "urbancars", "car-background-object"


@pytest.fixture(scope="module")
def config() -> dict:
    return load_config(REPOSITORY / "config/urbancars.yaml")


def test_every_row_of_the_papers_tables_stands_beside_a_baseline(config):
    """If all runs existed, made from the user's photos, each number of Tables 3 and 5 would be
    printed."""
    runs = pd.DataFrame(
        [
            Run(*names, sample).keys
            for names in config.train_jobs
            for sample in range(config.samples)
        ]
    ).assign(status="ok", comparable=True)
    assert len(runs) == 6 * len(config.baselines)
    values, settings = (
        runs.assign(**dict.fromkeys(MEASURES, 0.5)),
        {b.name: b.settings for b in config.baselines},
    )
    metrics = over_samples(values, MEASURES, settings, METRIC_SET.differences)
    table = beside_papers(metrics.assign(metric_set="gaps", note=""), runs, SHIPPED, settings)
    display = table.dropna(subset="paper").pivot(index="baseline", columns="metric", values="paper")
    described = {b.name for b in config.baselines if b.settings["method"].get("head") == "logistic"}
    paper = read_urbancars_tables().pivot(
        index=["table", "method", "option", "supervision", "selection"],
        columns="metric",
        values="value",
    )
    result = set(map(tuple, display[list(paper.columns)].to_numpy()))
    assert result == set(map(tuple, paper.to_numpy()))
    assert set(table["baseline"]) - set(display.index) == described, (
        "DFR as its own authors describe it"
    )


def test_replicates_differ_in_their_seeds_and_share_one_dataset(config):
    """The test below makes such runs."""
    assert config.dataset_count == 1 and estimate(config, "cpu")["images"] == 8000 + 2 * 1000
    job = ("erm", STUDY, BINDING)
    for number in range(3):
        assert Run(*job, number).training_seed(7) == 7
        shared = Run(*job, number, shared=True)
        assert (shared.training_seed(7) == 7) == (number == 0)
        assert (shared.dataset, shared.sample) == (0, number)


def test_scenes_of_both_kinds_need_configurations_of_their_own():
    pair = f"studies=[{STUDY}, whac-95]", f"bindings=[{BINDING}, shape-hue-texture]"
    message = "studies: repetitions are dataset samples in digits, but seeds in cars"
    with refused(message):
        load_config(None, [*pair, "baselines=[erm]", "counts.test=540"])


def test_stand_ins_run_to_their_report(tmp_path):
    """The demo with fewer images, epochs and baselines."""
    root = tmp_path / "root"
    changes = (
        "samples=2",
        "baselines=[erm,lle]",
        "counts={train: 40, val: 16, test: 24}",
        "training={max_epochs: 1, track_test: true}",
    )
    run_here(REPOSITORY / "config/urbancars_demo.yaml", *changes, root=root, report=True)
    runs = pd.read_csv(root / "results/tables/runs.csv")
    assert len(runs) == 4 and set(runs["status"]) == {"ok"} and not runs["comparable"].any()
    seeds = {
        json.loads((root / "results/runs/lle" / STUDY / BINDING / number / "run.json").read_text())[
            "seed"
        ]
        for number in "01"
    }
    assert len(seeds) == 2 and 1332 in seeds
    metrics = pd.read_csv(root / "results/tables/metrics.csv")
    assert set(metrics["baseline"]) == {"erm", "lle"} and (metrics["n"] == 2).all()
    assert metrics["paper"].isna().all(), "drawn cars are not the paper's"
    page = (root / "results/report.html").read_text()
    assert "UrbanCars" in page and re.search(r"embedded|not comparable", page)
    assert (
        "I.D. Acc | cue-1 gap (BG) | cue-2 gap (CoObj) |"
        in (root / "results/tables/tables.md").read_text()
    )
    for text in (page, (root / "results/tables/tables.md").read_text()):
        assert "over the seeds" in text and "dataset samples" not in text
