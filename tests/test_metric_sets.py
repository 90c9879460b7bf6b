"""The long table of cells and the sets of metrics: each number is a group-by, for any roles,
groups, environments."""

import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import REPOSITORY, refused
from diagvib.foundation.files import read_table
from diagvib.papers.all_tables import tabulate
from diagvib.papers.diagvib6.shortcut import means_over_cues
from diagvib.report.sheets import sheet_figures
from diagvib.report.visualisation_sheets import looking_figures, visualisation_figures
from diagvib.results import TABLE_FILES
from diagvib.results.cells import adjusted, mean_per_class, per_image, worst_cell
from diagvib.results.evaluation import evaluate
from diagvib.results.metric_sets.metric_set import by_sample, group_images
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import run_folder
from diagvib.results.tidy_tables import read_tables, scores, write_scores
from diagvib.results.uncertainty import image_interval
from diagvib.settings.layout import Run
from diagvib.studies.known_studies import known_studies
from reports import drawn_in, make_report, report_data_of
from synthetic_runs import expected_runs, run_of, tabulated, write_cells

PLACES = """
title: Mine
studies:
  places:
    title: Places
    scene: squares:Squares
    meaning: two environments
    metrics: accuracy
    roles: {target: 2, cue: 2}
    rows:
      - {splits: [train, val, test], group: all, environment: north, cells: {cue: same}}
      - {splits: [train, val, test], group: all, environment: south, cells: {cue: other}}
"""
TWO_CUES = "colour-corner-extent"
ALTERNATIVES = [
    run_of("net", study, binding, sample)
    for study, binding in (("two-cues", TWO_CUES), ("places", "colour-corner"))
    for sample in range(3)
]
NINE = expected_runs(["net"], ["zso", "zgo", "cgo-1"], ["shape-hue", "hue-shape"], samples=3)
OF_EVERY_SET = [
    *expected_runs(["net"], ["whac-95"], ["shape-hue-texture", "position-hue-scale"], samples=2),
    *expected_runs(["net"], ["o2o-easy"], ["shape-hue", "hue-position"], samples=2),
]


def predict(sample: int):
    """Right in fewer of ten images in the second group or environment, and for further classes and
    samples."""

    def of(cell, position):
        target, right = cell["target_class"], {"neither", "south"} & {*cell.values()}
        return target if position < 9 - 3 * len(right) - 2 * target - sample else (target + 1) % 2

    return of


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    path = tmp_path_factory.mktemp("studies") / "mine.yaml"
    path.write_text(PLACES)
    return {
        "studies_from": [str(REPOSITORY / "tests/square_studies.yaml"), str(path)],
        "sources": "official",
    }


@pytest.fixture(scope="module")
def square_studies(settings):
    return known_studies(settings)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, square_studies):
    folder = tmp_path_factory.mktemp("results") / "runs"
    for run in ALTERNATIVES:
        write_cells(folder, run, predict(run["sample"]), 10, square_studies, comparable=True)
    return folder


def test_the_group_bys_of_a_case_worked_by_hand():
    cells = pd.DataFrame(
        {
            "group": ["g"] * 3 + ["h"],
            "target_class": ["a", "a", "b", "b"],
            "cue_class": ["x", "y", "x", "x"],
            "n": [10, 30, 5, 4],
            "correct": [10, 10, 1, 3],
        }
    )
    result = mean_per_class(cells, ["group"])
    assert result["accuracy"].tolist() == [(0.5 + 0.2) / 2, 0.75] and result["n"].tolist() == [
        45,
        4,
    ]
    assert worst_cell(cells, ["group"]).tolist() == [0.2, 0.75]
    assert per_image(cells, ["group"]).tolist() == [21 / 45, 0.75]
    # Cells a-x, a-y and b-x have accuracies 1, 1/3 and 4/9, in both groups together.
    shares = cells.assign(trained=[30, 10, 60, 60], run="r")
    expected = (30 * 1 + 10 * 1 / 3 + 60 * 4 / 9) / 100
    assert adjusted(shares, ["run"]).tolist() == [pytest.approx(expected)]
    assert adjusted(shares.assign(trained=None), ["run"]).isna().all()


def test_two_cues_and_environments_have_accuracies_by_group(
    runs, settings, square_studies, tmp_path
):
    tabulate(runs, tmp_path, ALTERNATIVES, settings)
    tables = read_tables(tmp_path)
    assert set(tables["metrics"]["metric_set"]) == {"accuracy"} and not len(tables["p_matrix"])
    accuracy = tables["metrics"].set_index(["study", "metric"])
    row = accuracy.loc["two-cues", "neither_accuracy"]
    # Of the three classes 6, 4 and 2 of ten are right in sample 0, one fewer in each further sample.
    assert row["mean"] == pytest.approx(0.3) and row["stderr"] == pytest.approx(0.1 / 3**0.5)
    assert row["n"] == 3
    assert accuracy.loc["two-cues", "neither_worst_cell"]["mean"] == pytest.approx(0.1)
    places = accuracy.loc["places"]["mean"].to_dict()
    assert places["all_accuracy_south"] == pytest.approx(0.4)
    assert places["all_accuracy"] == pytest.approx(0.55)
    assert places["all_worst_cell"] == pytest.approx(0.3)
    markdown = (tmp_path / "tables.md").read_text()
    assert "Accuracy by test group" in markdown
    assert "paper" not in markdown.lower() and "FAAvg" not in markdown


DISPLAY = (REPOSITORY / "docs/new_metrics.md").read_text().split("```python\n")[1]


def test_a_set_of_ones_own_is_in_the_tables_on_the_page_in_the_scores_and_in_evaluate(
    runs, settings, square_studies, tmp_path, monkeypatch
):
    names = {}
    exec(DISPLAY.partition("```")[0], names)
    # In the place of `accuracy`, of which every page has a table.
    monkeypatch.setattr(names["Lag"], "tables", METRIC_SETS["accuracy"].tables)
    lag = names["METRIC_SET"]
    lag.tables = METRIC_SETS["accuracy"].tables  # in whose place it is
    monkeypatch.setitem(METRIC_SETS, "accuracy", lag)
    tabulate(runs, tmp_path / "tables", ALTERNATIVES, settings)
    metrics = read_tables(tmp_path / "tables")["metrics"]
    lag = metrics.query("study == 'two-cues'").set_index("metric")["mean"]
    assert lag.to_dict() == pytest.approx({"common_lag": 0, "neither_lag": 0.3})
    assert "neither_lag" in make_report(tmp_path, settings, runs=runs)
    for _ in range(2):
        write_scores(metrics, square_studies, tmp_path / "scores")
        alternative = tmp_path / "scores/other/two-cues.json"
        assert not alternative.exists(), "of a baseline that is not in these tables"
        alternative.parent.mkdir(exist_ok=True)
        alternative.write_text("{}")
    content = json.loads((tmp_path / "scores/net/two-cues.json").read_text())
    assert content == {"common_lag": 0, "neither_lag": 0.3}
    table = read_table(run_folder(runs, ALTERNATIVES[0]) / "predictions.parquet")
    supervision_ = table.drop("prediction"), table["prediction"].to_pandas()
    assert evaluate("two-cues", TWO_CUES, 0, "test", *supervision_, square_studies)[
        "neither_lag"
    ] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("names", lambda *_: ["ood_lags"], "`names` lists ood_lags, which `of_run` has no column"),
        (
            "bounds",
            {"neither_lags": (0, 1)},
            r"neither_lag is 1.2 .*, sample 0\), .* 0 and 1; list",
        ),
        ("bounds", {"neither_lag": (0, 0.5)}, r"neither_lag is 1.2 .* not between 0 and 0.5"),
        ("differences", {"neither_lag": "common_lag"}, r"neither_lag is 1.2 .* between -1 and 1"),
    ],
)
def test_a_set_with_a_number_that_it_does_not_declare_is_refused(
    runs, settings, tmp_path, monkeypatch, attribute, value, message
):
    """Such as a misspelt name; its interval would be that of an accuracy."""
    names = {}
    exec(DISPLAY.partition("```")[0], names)
    lag, of_run = names["METRIC_SET"], names["Lag"].of_run
    lag.tables, lag.bounds = METRIC_SETS["accuracy"].tables, {}
    lag.of_run = lambda results: of_run(lag, results).eval("neither_lag = 4 * neither_lag")
    setattr(lag, attribute, value)
    monkeypatch.setitem(METRIC_SETS, "accuracy", lag)
    with refused(f"metric set .*:Lag: {message}"):
        tabulate(runs, tmp_path / "tables", ALTERNATIVES, settings)


@pytest.mark.parametrize(
    ("expected", "present"),
    [(ALTERNATIVES, True), (NINE + ALTERNATIVES + OF_EVERY_SET, False)],
    ids=["others", "nothing ran"],
)
def test_the_page_shows_what_there_is_and_no_more(runs, settings, tmp_path, expected, present):
    tables, folder = tmp_path / "tables", runs if present else tmp_path / "none"
    tabulate(folder, tables, expected, settings)
    assert all((tables / name).exists() for name in TABLE_FILES)
    page = make_report(tmp_path, settings, runs=folder)
    assert "Two cues" in page and 'id="groups"' in page
    ordered = re.findall("^## (.*)$", (tables / "tables.md").read_text(), re.M)[:-1]
    titles = [unescape(title) for title in re.findall("<h2 id=[^>]*>(.*?)</h2>", page)]
    assert [title for title in ordered if title in titles] == [
        title for title in titles if title in ordered
    ], "tables.md has the order of the page"
    assert ('id="verdict"' in page) == (len(expected) > len(ALTERNATIVES)), "of the paper's studies"
    assert (tmp_path / "figures/training/net.svg").exists() == present


SQUARES = """
title: Squares
headline: {without: free, shortcut: tied}
routes: {squares: [free, tied]}
studies:
  free:
    title: Free
    meaning: no shortcut
    scene: squares:Squares
    bound: [target]
    roles: {target: 3, cue: 3}
    rows:
      - {splits: [train, val, test], group: id, cells: [[0, 0], [1, 1], [2, 2], [0, 1]]}
  tied:
    title: Tied
    meaning: a shortcut
    scene: squares:Squares
    roles: {target: 3, cue: 3}
    rows:
      - {splits: [train, val, test], group: id, cells: {cue: same}}
      - {splits: [test], group: ood, cells: {cue: other}}
"""


def squares(folder: Path, text: str, baselines: Sequence[str], names: dict[str, str]) -> dict:
    """Tables of perfect runs of own studies; their configuration. names: study -> binding."""
    (folder / "squares.yaml").write_text(text)
    settings = {"studies_from": [str(folder / "squares.yaml")], "sources": "embedded"}
    expected = [run_of(name, *item, 0) for name in baselines for item in names.items()]
    for run in expected:
        square_studies = known_studies(settings)
        write_cells(
            folder / "runs", run, lambda cell, position: cell["target_class"], 3, square_studies
        )
    tabulated(folder, expected, settings)
    return settings


TIED = SQUARES[SQUARES.index("  tied:") :]


def test_figures_of_one_name_are_both_kept(tmp_path):
    """Study `tied` with `small_net`, and `tied_small` with `net`."""
    text = SQUARES + TIED.replace("tied:", "tied_small:")
    names = {"free": "colour", "tied": "colour-corner", "tied_small": "colour-corner"}
    make_report(tmp_path, squares(tmp_path, text, ["net", "small_net"], names))
    assert sum(name.startswith("p_matrix/") for name in drawn_in(tmp_path)) == 6


def test_a_study_without_a_headline_has_pictures(tmp_path):
    text = SQUARES.replace("headline: {without: free, shortcut: tied}\n", "")
    settings = squares(tmp_path, text, ["net"], {"free": "colour", "tied": "colour-corner"})
    report_data = report_data_of(tmp_path, settings)
    (report_data.images / "tied/colour-corner/0").mkdir(parents=True)
    assert [item.name for item in sheet_figures(report_data)] == ["sheets/tied_colour-corner"]
    assert "looks/tied_colour-corner" in [item.name for item in looking_figures(report_data)]
    calls = [item.name for item in visualisation_figures(report_data)]
    assert calls == ["exhibits/net_free_colour", "exhibits/net_tied_colour-corner"]


def test_counter_examples_alone_have_pictures(tmp_path):
    runs = [run_of("net", "fgo-20", "shape-hue", 0)]
    write_cells(tmp_path / "runs", runs[0], lambda cell, position: cell["target_class"], 3)
    tabulated(tmp_path, runs, {"sources": "embedded"})
    report_data = report_data_of(tmp_path, {"sources": "embedded"})
    assert [item.name for item in looking_figures(report_data)] == ["looks/fgo-20_shape-hue"]
    calls = [item.name for item in visualisation_figures(report_data)]
    assert calls == ["exhibits/net_fgo-20_shape-hue"]


def test_another_scenes_shortcuts_have_their_own_headline_factors_and_routes(tmp_path):
    path = tmp_path / "squares.yaml"
    path.write_text(SQUARES)
    expected = [
        run_of("net", study, binding, sample)
        for study, *bindings in (
            ("free", "colour", "corner"),
            ("tied", "colour-corner", "corner-colour"),
        )
        for binding in bindings
        for sample in range(2)
    ]
    settings = {"studies_from": [str(path)], "sources": "embedded"}
    for run in expected:  # two of three images are right, one of three where the cue misleads

        def right(cell, position):
            return (cell["target_class"] + (position >= 1 + (cell["group"] == "id"))) % 3

        write_cells(tmp_path / "runs", run, right, 3, known_studies(settings))
    tables = tabulated(tmp_path, expected, settings)
    assert set(tables["runs"]["status"]) == {"ok"}
    p = tables["p_matrix"].set_index(["study", "target", "group"])["mean"]
    assert p["tied", "corner", "ood"] == pytest.approx(1 / 3) and p[
        "free", "colour", "id"
    ] == pytest.approx(2 / 3)
    page = make_report(tmp_path, settings)
    assert drawn_in(tmp_path) == {
        "p_matrix/free_net",
        "p_matrix/tied_net",
        "curves/faavg_squares",
        "training/net",
        "asymmetry/tied",
        "ranking/tied",
    }
    assert "net recognises colour in 33\N{NO-BREAK SPACE}% of the test images where corner" in page
    assert "DiagViB" not in page and "hue" not in json.dumps(
        json.loads(page.split('id="matrix-data">')[1].split("</script>")[0])["cells"]
    )


def test_headline_numbers_are_of_all_bindings_and_factors_or_left_out():
    """As in the tables: a mean over the bindings that happen to exist is another number."""

    def found(*rows) -> dict[str, float]:
        columns = ["binding", "metric", "mean"]
        return scores(pd.DataFrame(rows, columns=columns).assign(verdict=""), ["m", "k"])

    missing = float("nan")
    assert found(("a-b", "m", 0.9), ("b-a", "m", 0.5), ("", "m", 0.65)) == {"m": 0.65}
    assert found(("a-b", "m", 0.9), ("b-a", "m", missing), ("", "m", missing)) == {}
    assert found(("", "m", 0.9), ("", "m", 0.8), ("", "k", 0.4), ("", "k", missing)) == {"m": 0.85}


def test_headline_numbers_say_how_many_of_the_decided_cells_agree():
    verdicts = ["agrees", "agrees", "differs", "cannot tell", ""]
    subject = pd.DataFrame({"verdict": verdicts}).assign(binding="", metric="m", mean=0.5)
    assert scores(subject, ["m"]) == {"m": 0.5, "agreeing": 0.6667, "decided": 3}


def test_a_sample_that_lacks_a_run_has_no_mean():
    runs = pd.DataFrame({"sample": [0, 0, 1, 1], "found": [0.5, 0.7, 0.9, np.nan]})
    assert by_sample(runs, "found").tolist() == pytest.approx([0.6, np.nan], nan_ok=True)


def test_a_sample_that_lacks_a_seed_has_no_combinations(tmp_path, settings, square_studies):
    seeds = [Run("net", "two-places", "colour-corner", 0, seed=seed).keys for seed in (0, 1)]
    for run, combinations in zip(seeds, (0, 4), strict=True):
        write_cells(tmp_path / "runs", run, predict(0), 10, square_studies)
        tables = tabulated(tmp_path, seeds, settings, "accuracy")
        assert len(tables["combinations"]) == combinations
        assert set(tables["accuracy"]["n"]) == {bool(combinations)}


def test_the_interval_of_one_sample_knows_that_classes_are_of_unequal_size():
    """Else, by simulation, 81 % of the intervals contain the truth."""
    sizes, rates = {"blond": 2660, "other": 17302}, {"blond": 0.45, "other": 0.99}
    rows = [{"target_class": name, "n": n} for name, n in sizes.items()]
    description = {"study": "s", "baseline": "b", "binding": "x-y", "group": "all"}
    description |= {"sample": 0, "seed": 0}
    result = group_images(pd.DataFrame(rows).assign(**description), {}).iloc[0]
    assert result["metric"] == "all_accuracy" and round(result["images"]) == 9222
    generator = np.random.default_rng(0)
    draws = [generator.binomial(n, rates[name], 2000) / n for name, n in sizes.items()]
    low, high = image_interval(np.mean(draws, 0), result["images"])
    truth = np.mean([*rates.values()])
    assert 0.9 < ((low <= truth) & (truth <= high)).mean() < 0.96
    equal = pd.DataFrame([{"target_class": name, "n": 300} for name in "abc"]).assign(**description)
    assert group_images(equal, {})["images"].tolist() == [900]


def test_a_mean_over_cues_is_of_the_images_of_all_cues():
    rows = [("zgo", "m", "shape", cue, 0, 0, 0.5, 0.7, 18, 9) for cue in ("hue", "scale")]
    names = ["study", "baseline", "target", "cue", "sample", "seed"]
    names += ["ood_accuracy", "id_accuracy", "ood_n", "id_n"]
    case = {
        row["metric"]: row["images"] for row in means_over_cues(pd.DataFrame(rows, columns=names))
    }
    assert case == {"faavg": 36, "famin": 18, "id_accuracy": 18}
