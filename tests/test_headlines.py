"""Headlines of photo sets: they name cue and combination, claim what their intervals show, and say
which runs are doubtful and which combinations have no test image."""

import pandas as pd
import pyarrow as pa
import pytest

from diagvib.results.combinations import change_interval
from diagvib.results.evaluation import evaluate
from diagvib.results.tidy_tables import read_tables
from diagvib.studies.known_studies import known_studies
from reports import make_report, report_data_of
from synthetic_runs import PHOTOS, photo_run, tabulated, write_photos

FOLLOWS = {("landbird", "land"): 20, ("landbird", "water"): 1, ("waterbird", "water"): 19}
NAMED_ROOT = PHOTOS | {"root": "my dataset samples"}


def photos_of(folder, right: dict, seeds: int = 3, shift: int = 0, doubts=()):
    """Tables of runs of erm; shift: how many more each further seed recognises on water."""
    runs = [photo_run("erm", seed) for seed in range(seeds)]
    for run in runs:
        additions = {
            cell: hits + shift * run["sample"] * (cell[1] == "water")
            for cell, hits in right.items()
        }
        write_photos(folder / "runs", run, additions, doubts=doubts if run["sample"] == 0 else ())
    tabulated(folder, runs, NAMED_ROOT)
    return report_data_of(folder, NAMED_ROOT)


def headline(report_data) -> str:
    (finding,) = report_data.findings
    return finding.text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def cue_runs(tmp_path_factory):
    doubts = ["predicts waterbird for every test image"]
    return photos_of(tmp_path_factory.mktemp("followed"), FOLLOWS, doubts=doubts)


def test_the_headline_names_cue_and_combination_and_what_is_missing(cue_runs):
    text = headline(cue_runs)
    assert text.startswith("On water, erm calls 95 % of landbird waterbird: it follows place.")
    assert text.endswith("Caution: no test image of waterbird-land; 1 of 3 runs is doubtful.")
    (finding,) = cue_runs.findings
    assert finding.accuracies["landbird on water"] == pytest.approx(0.05)
    low, high = finding.intervals["landbird on water"]
    assert low <= 0.05 < high


@pytest.mark.parametrize(("seeds", "reach"), [(3, "no effect is seen"), (1, "no effect is seen")])
def test_nothing_is_claimed_where_the_interval_contains_zero(tmp_path, seeds, reach):
    right = {("landbird", "land"): 17, ("landbird", "water"): 14, ("waterbird", "water"): 16}
    text = headline(photos_of(tmp_path, right, seeds, shift=2))
    assert reach in text and "follows" not in text and "(95 % interval -" in text


def test_metrics_say_which_combination_they_lack(cue_runs):
    metrics = read_tables(cue_runs.tables)["metrics"].set_index("metric")["note"]
    warning = "no test image of waterbird-land; 1 of 3 runs is doubtful"
    assert metrics[["all_worst_cell", "adjusted_accuracy"]].tolist() == [warning] * 2


def test_the_page_has_combinations_doubts_and_the_users_own_words(cue_runs):
    page = make_report(cue_runs.tables.parent, NAMED_ROOT)
    assert "1 of 3 runs is doubtful</strong>" in page.partition("Look at the images")[0]
    assert "erm ‡" in page and "Missing and doubtful runs" in page
    assert "my dataset samples" in page, "a folder of the user's"
    assert "over the seeds" in page and "over the dataset samples" not in page
    tables = (cue_runs.tables / "tables.md").read_text()
    (line,) = (line for line in tables.splitlines() if line.startswith("| landbird | water |"))
    assert line.split("|")[3:6] == [" waterbird ", " 184 ", " 20 "] and " 5.0" in line
    assert "- no test image of waterbird-land" in tables


def test_predictions_are_evaluated_by_combination():
    rows = [
        {"group": "all", "bird": bird, "place": place} for bird, place in FOLLOWS for _ in range(4)
    ]
    table = pa.Table.from_pylist(rows)
    predicted = ["landbird"] * 5 + ["waterbird"] * 7
    with pytest.warns(UserWarning, match="no image of the cell all, waterbird, land"):
        metrics = evaluate(
            "waterbirds", "bird-place", 0, "test", table, predicted, known_studies(PHOTOS)
        )
    assert metrics["landbird-water_accuracy"] == 0.25 and metrics["landbird-land_accuracy"] == 1


def test_a_change_has_an_interval_over_images_where_there_are_few_samples():
    change, low, high = change_interval(pd.Series([0.2]), pd.Series([0.9]), 100, 100)
    assert change == pytest.approx(-0.7) and -0.82 < low < -0.75 and -0.65 < high < -0.55
    assert change_interval([0.1, 0.12, 0.11], [0.9, 0.92, 0.9], 9, 9)[2] < -0.5
