"""Headlines of photo sets: they name cue and combination, claim what their intervals show, and say
which runs are doubtful and which combinations have no test image."""

import shutil

import pandas as pd
import pyarrow as pa
import pytest

from conftest import REPOSITORY
from diagvib.results.combinations import change_interval
from diagvib.results.effects import effect_of
from diagvib.results.evaluation import evaluate
from diagvib.results.tidy_tables import read_tables
from diagvib.studies.known_studies import SHIPPED, known_studies
from reports import make_report, report_data_of
from synthetic_runs import (
    PHOTOS,
    TRAINED,
    photo_run,
    run_of,
    tabulated,
    write_photos,
    write_predicted,
)

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
    assert reach in text and "follows" not in text and "(95 % interval: -" in text


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


def test_a_cue_class_that_begins_like_another_has_its_own_label(tmp_path):
    """`water-side` points to waterbird, though `water` points to landbird."""
    folder = shutil.copytree(REPOSITORY / "config/photos/waterbirds", tmp_path / "birds")
    scene, studies = folder / "scene.yaml", folder / "studies.yaml"
    scene.write_text(scene.read_text().replace("{land: 0, water: 1}", "{water: 0, water-side: 1}"))
    studies.write_text(studies.read_text().replace(" waterbirds:", " birds:"))
    right = {
        ("landbird", "water"): 9,
        ("landbird", "water-side"): 1,
        ("waterbird", "water-side"): 9,
    }
    rows = [
        {"group": "all", "bird": bird, "place": place}
        | {"prediction": bird if n < hits else {"landbird": "waterbird"}.get(bird, "landbird")}
        for (bird, place), hits in right.items()
        for n in range(10)
    ]
    trained = {"landbird-water": 95, "landbird-water-side": 5, "waterbird-water-side": 90}
    run = run_of("erm", "birds", "bird-place", 0)
    write_predicted(tmp_path / "runs", run, rows, trained=trained)
    tables = tabulated(tmp_path, [run], {"studies_from": [str(studies)], "root": "birds"})
    table = tables["combinations"].set_index(["target_class", "cue_class"])
    assert table["cue_label"].to_dict() == {
        cell: {"water": "landbird", "water-side": "waterbird"}[cell[1]] for cell in right
    }
    assert table.loc[("landbird", "water-side"), ["followed", "change"]].to_list() == [0.9, -0.8]


def test_an_effect_counts_the_images_of_common_samples_alone():
    def interval(*others: int) -> tuple[float, float]:
        rows = [run_of("erm", study, "bird-place", 0) for study in ("a", "b")]
        rows += [run_of("erm", "a", "bird-place", sample) for sample in others]
        runs = pd.DataFrame(rows).assign(all_accuracy=0.5, all_n=20)
        a, b = ({"study": study, "group": "all"} for study in ("a", "b"))
        tables = {"runs": runs}
        return effect_of(tables, SHIPPED, a, b).low, effect_of(tables, SHIPPED, b, a).high

    assert interval() == interval(1) == interval(1, 2)


def test_seeds_on_the_same_photos_add_no_images(tmp_path):
    """Two, or several that are all alike, have the interval of one."""
    intervals = []
    for seeds in (1, 2, 3):
        table = photos_of(tmp_path / str(seeds), FOLLOWS, seeds).frames["combinations"]
        (row,) = table[table["change"].notna()].to_dict("records")
        intervals.append((row["change_low"], row["change_high"]))
    assert intervals[0] == intervals[1] != intervals[2]


@pytest.mark.parametrize(
    ("images", "right", "words"),
    [
        (200, 140, "On land, erm calls 30 % of waterbird landbird"),  # -30 points, seen
        (4, 4, "Among 2 combinations, this is the largest loss, without"),  # -50 points, not seen
    ],
)
def test_the_largest_loss_is_called_so_only_if_no_other_is_larger(tmp_path, images, right, words):
    """Of two photos of landbirds on water, one is recognised."""
    birds, rows = ("landbird", "waterbird"), []
    for bird, place, count, hits in (
        (0, "land", 20, 20),
        (0, "water", 2, 1),
        (1, "water", images, images),
        (1, "land", images, right),
    ):
        for n in range(count):
            predicted = birds[bird if n < hits else 1 - bird]
            rows.append(
                {"group": "all", "bird": birds[bird], "place": place, "prediction": predicted}
            )
    run = photo_run("erm")
    write_predicted(tmp_path / "runs", run, rows, trained=TRAINED)
    tabulated(tmp_path, [run], NAMED_ROOT)
    text = headline(report_data_of(tmp_path, NAMED_ROOT))
    assert words in text
    assert ("the largest loss that is seen" in text) == (right == 140)
