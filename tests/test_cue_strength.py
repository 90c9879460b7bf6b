"""The map of shortcuts: which studies are doses, the half-way strength and its interval, the table,
the figure."""

from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from diagvib.foundation.files import definition_path
from diagvib.report.curves import cue_strength_figures, strength_curves
from diagvib.results.cells import RUN_KEYS
from diagvib.results.metric_sets.cue_strength import (
    TITLE,
    cue_strength,
    dose,
    half_way,
    half_way_tables,
)
from diagvib.settings.jobs import stage_settings
from diagvib.settings.resolve import load_config
from diagvib.studies.known_studies import SHIPPED, KnownStudies
from diagvib.studies.study import Study, load_studies, load_study
from reports import band_of, drawn_in, make_report
from synthetic_runs import expected_runs, tabulated, write_run
from synthetic_studies import changed_study, own_study

SHARES = {
    "zgo": 0,
    "fgo-0.5": 0.005,
    "fgo-1": 0.01,
    "fgo-2": 0.02,
    "fgo-5": 0.05,
    "fgo-10": 0.1,
    "fgo-20": 0.2,
    "fgo-50": 0.5,
}
SPREADS = {"": 1, "-spread-50": 0.5, "-spread-25": 0.25, "-spread-10": 0.1}


def test_doses_are_the_studies_that_differ_in_nothing_else():
    shares = {name: SHARES[name] for name in ("zgo", "fgo-1", "fgo-5", "fgo-20")}
    expected = {name: (1, share) for name, share in SHARES.items()}
    for (name, share), (ending, spread) in product(shares.items(), SPREADS.items()):
        expected[name + ending] = (spread, share)
    for spread in (50, 25, 10, 0):
        expected[f"zso-spread-{spread}"] = (spread / 100, pytest.approx(2 / 3))
    case = {name: dose(study) for name, study in load_studies().items()}
    assert {name: values for name, values in case.items() if values} == expected


def test_a_draw_jobs_settings_have_the_spread():
    config = load_config(definition_path("cue_strength.yaml"))
    all_recipes, half = (
        stage_settings(config, "draw", f"zgo{ending}") for ending in ("", "-spread-50")
    )
    assert "spread" not in all_recipes.study and half.study["spread"] == {"cue": 0.5}


def only(*means: float, without: float = 1.0) -> tuple[float, float, float]:
    """The half-way strength of a single sample."""
    shares = np.array([0, 0.001, 0.01, 0.1])[: len(means)]
    return half_way(shares, np.array(means)[:, None], np.array([without]))


def test_the_half_way_strength_by_hand():
    # Half-way from 0.2 to 1 is 0.6, half of the way from 0.4 to 0.8, and so from 1 to 10 %.
    assert only(0.2, 0.3, 0.4, 0.8)[0] == pytest.approx(10**-1.5)
    # Half-way is 0.5. Means that fall are pooled: 0.4 at 0.1 and 1 %, then 0.8.
    assert only(0.0, 0.5, 0.3, 0.8)[0] == pytest.approx(10**-1.75)
    assert only(0.2, 0.7, 0.8, 0.9)[0] == 0
    assert only(0.2, 0.3, 0.4, 0.5)[0] == np.inf
    assert np.isnan(only(0.91, 0.95, 1.0, 1.0)).all(), "the cue costs less than 10 points"
    assert np.isnan(only(0.2, 0.3, 0.4, 0.8)[1:]).all(), "one sample has no interval"


def test_a_sample_that_lacks_a_run_is_left_out():
    shares, values = np.array([0, 0.01, 0.1]), np.array([[0.2], [0.4], [0.8]])
    additions = np.hstack([values, [[0.0], [np.nan], [0.1]], [[0.0], [0.1], [0.2]]])
    result = half_way(shares, additions, np.array([1.0, 1.0, np.nan]))
    np.testing.assert_equal(result, half_way(shares, values, np.array([1.0])))
    assert np.isnan(half_way(shares, additions[:, 1:2], np.array([1.0]))).all()


def test_the_interval_has_the_shares_whose_change_may_be_zero():
    """Around 10 %, all samples are half-way, but for 0.05 more, less and nothing."""
    shares, values = np.array([0, 0.01, 0.1, 1]), np.zeros((4, 3))
    values[2:] = [[0.55, 0.5, 0.45], [0.9, 0.9, 0.9]]
    middle, low, high = half_way(shares, values, np.ones(3))
    wide = t.ppf(0.975, 2) * 0.05 / 3**0.5
    # From 1 to 10 %, mean and spread grow in proportion; from 10 to 100 %, the spread ends at 0.
    below, above = 0.5 / (0.5 + wide), wide / (0.4 + wide)
    assert middle == pytest.approx(0.1)
    assert (low, high) == pytest.approx((10 ** (below - 2), 10 ** (above - 1)), rel=0.1)


def runs(curves: dict, samples: int = 3) -> pd.DataFrame:
    """Runs of small_cnn; curves: binding -> study -> accuracy where the cue misleads, or, of a
    binding without a cue, on all images."""
    rows = []
    for binding, part in curves.items():
        target, _, cue = binding.partition("-")
        for (study, value), sample in product(part.items(), range(samples)):
            accuracy = {"id_accuracy" if not cue else "ood_accuracy": value + 0.01 * sample}
            keys = {"baseline": "small_cnn", "study": study, "binding": binding, "target": target}
            rows.append({**keys, "cue": cue, "sample": sample, "seed": 0, **accuracy})
    return pd.DataFrame(rows, columns=[*RUN_KEYS, "id_accuracy", "ood_accuracy"])


CURVES = {
    "shape": {"zso": 0.9},
    "shape-hue": {
        **{"fgo-20": 0.8, "zgo": 0.0, "fgo-5": 0.2, "fgo-20-spread-10": 0.9},
        **{"zgo-spread-10": 0.6, "fgo-5-spread-10": 0.8, "fgo-10": 0.6, "cgo-1": 0.3},
    },
    "shape-scale": {"zgo": 0.88, "fgo-5": 0.9, "fgo-10": 0.9, "fgo-20": 0.9},
    "shape-texture": {"zgo": 0.0, "fgo-5": 0.1, "fgo-10": 0.1, "fgo-20": 0.2},
    "hue-scale": {"zgo": 0.0, "fgo-5": 0.1, "fgo-10": 0.1, "fgo-20": 0.2},
    "shape-lightness": {"zgo": 0.0, "fgo-5": 0.1},
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return cue_strength(runs(CURVES), SHIPPED)


# Studies of one curve -> accuracy where the cue misleads.
CURVE = {"zgo": 0.1, "fgo-5": 0.4, "fgo-20": 0.8}


def on_scene(scene: str) -> list[Study]:
    """Those studies with another scene."""
    return [changed_study(name, f"own-{name}", scene=scene) for name in CURVE]


def curve_of(studies: list[Study]) -> dict[str, float]:
    return dict(zip((item.name for item in studies), CURVE.values(), strict=True))


def test_curves_of_two_scenes_stand_beside_each_other():
    mine = on_scene("squares:Squares")
    curves = {"shape-hue": CURVE, "colour-corner": curve_of(mine)}
    known_studies = KnownStudies(definitions=(*map(load_study, CURVE), *mine))
    strengths = cue_strength(runs(curves), known_studies)
    assert strengths["study"].to_list() == [*CURVE, *curve_of(mine)]


def test_scenes_with_factors_of_the_same_names_are_not_mixed():
    """The first curve is shown, with a reference of its own scene."""
    mine = on_scene("diagvib.scenes.digits.scene:Digits")
    known_studies = KnownStudies(definitions=(*map(load_study, ("zso", *CURVE)), *mine))
    part, control = curve_of(mine), {"shape": {"zso": 0.9}}
    curves = cue_strength(runs({**control, "shape-hue": {"zgo": 0.2, **part}}), known_studies)
    assert curves["study"].to_list() == [*part] and curves["without"].isna().all()
    curves = cue_strength(runs({**control, "shape-hue": {**CURVE, **part}}), known_studies)
    assert curves["study"].to_list() == [*CURVE]
    assert curves["without"].to_list() == pytest.approx([0.91] * 3)


def test_a_curve_has_a_row_for_each_share(frame):
    subject = frame[(frame["cue"] == "hue") & (frame["spread"] == 1)]
    assert subject["counter_examples"].to_list() == [0, 0.05, 0.1, 0.2]
    assert subject["study"].to_list() == ["zgo", "fgo-5", "fgo-10", "fgo-20"]
    assert subject["mean"].to_list() == pytest.approx([0.01, 0.21, 0.61, 0.81])
    assert subject["without"].to_list() == pytest.approx([0.91] * 4) and set(subject["n"]) == {3}
    # Half-way is 0.46, 25 of the 40 points from 5 to 10 %.
    assert subject["half_way"].to_list() == pytest.approx([0.05 * 2 ** (25 / 40)] * 4)
    assert (subject["half_way_low"] < subject["half_way"]).all()
    assert (subject["half_way"] < subject["half_way_high"]).all()
    narrow = frame[frame["spread"] == 0.1]
    assert narrow["study"].to_list() == ["zgo-spread-10", "fgo-5-spread-10", "fgo-20-spread-10"]
    assert set(narrow["half_way"]) == {0}
    assert not len(frame[frame["cue"] == "lightness"]), "two shares are no curve"
    assert not len(cue_strength(runs({"shape-hue": {"zgo": 0.1, "cgo-1": 0.2}}), SHIPPED))
    assert frame.loc[frame["target"] == "hue", ["without", "half_way"]].isna().all(axis=None)


def test_a_curve_that_ends_without_a_relation_is_its_own_reference():
    curve = {"zgo": 0.2, "fgo-5": 0.3, "fgo-20": 0.4, "zso": 0.5}
    curve = {f"{study}-spread-25": value for study, value in curve.items()}
    output = cue_strength(runs({"shape": {"zso": 0.9}, "shape-hue": curve}), SHIPPED)
    assert output["counter_examples"].to_list() == pytest.approx([0, 0.05, 0.2, 2 / 3])
    assert output["without"].to_list() == pytest.approx([0.51] * 4)
    # Half-way is 0.36, half of the way from 5 to 20 %.
    assert output["half_way"].to_list() == pytest.approx([0.1] * 4)


def test_studies_with_another_number_of_classes_are_no_points_of_a_curve():
    rows = [
        {"splits": ["train", "val", "test"], "group": "id", "cells": {"cue": "same"}},
        {"splits": ["test"], "group": "ood", "cells": {"cue": "other"}},
    ]
    six = own_study(rows, "six", roles={"target": 6, "cue": 6}, metrics="shortcut")
    studies = load_studies() | {"six": six}
    curve = runs({"shape-hue": CURVES["shape-hue"] | {"six": 0.5}})
    assert dose(six) == (1, 0)
    curves = cue_strength(curve.iloc[::-1], KnownStudies(definitions=tuple(studies.values())))
    assert curves.empty, "the first, six, has the only point of its curve"
    curves = cue_strength(curve, KnownStudies(definitions=tuple(studies.values())))
    assert "six" not in curves["study"].to_list() and not curves.empty


def test_each_baseline_has_a_reference_of_its_own():
    curve = {"shape-hue": CURVES["shape-hue"]}
    better = runs({"shape": {"zso": 0.9}, **curve})
    worse = runs({"shape": {"zso": 0.7}, **curve}).assign(baseline="other")
    curves = cue_strength(pd.concat([better, worse]), SHIPPED).drop_duplicates("baseline")
    assert curves["without"].to_list() == pytest.approx([0.91, 0.71])


def test_the_table_for_readers(frame):
    (table,) = half_way_tables(frame, SHIPPED.factors(frame["study"]))
    assert table.heads == ["baseline", "spread", "target", "hue", "scale", "texture"]
    cells = {tuple(row[1:3]): row[3:] for row in table.rows}
    assert cells["100", "shape"][0].startswith("7.7 (")
    assert cells["100", "shape"][1:] == ["no loss", "> 20 (18.7 to > 20)"]
    assert cells["10", "shape"] == ["< 5 (< 5 to > 20)", "", ""]
    assert cells["100", "hue"] == ["", "-", ""]
    assert not next(half_way_tables(frame[:0], [])).rows


def test_the_figures_have_a_panel_for_each_pair(frame):
    report_data = SimpleNamespace(frames={"cue_strength": frame}, known_studies=SHIPPED)
    draws = {figure.name: figure for figure in cue_strength_figures(report_data)}
    assert list(draws) == [
        f"cue_strength/{name}" for name in ("spread_100", "spread_10", "small_cnn")
    ]
    axes = draws["cue_strength/small_cnn"].draw().axes
    assert len(axes) == 6 and [item.get_title() for item in axes][:3] == [
        "cue hue",
        "cue scale",
        "cue texture",
    ]
    lines = [line.get_label() for item in axes for line in item.get_lines()]
    assert (lines.count("spread 100 %"), lines.count("spread 10 %")) == (4, 1)


def test_tables_and_report_have_the_map(tmp_path):
    studies = ["zso", "zgo", "fgo-5", "fgo-20", "fgo-50"]
    expected = expected_runs(["small_cnn"], studies, ["shape-texture"], samples=3)
    for run in expected:
        if run["study"] != "fgo-50":
            write_run(tmp_path / "runs", run, comparable=False)
    settings = {"sources": "embedded", "samples": 3, "counts": {}, "image_size": 128}
    tabulated(tmp_path, expected, settings)
    written = pd.read_csv(tmp_path / "tables/cue_strength.csv")
    assert written["study"].to_list() == studies[1:]
    assert written["half_way"].isna().all(), "no sample has all runs"
    assert "| small_cnn | 100 | shape | - |" in (tmp_path / "tables/tables.md").read_text()
    page = make_report(tmp_path, settings)
    assert "cue_strength/spread_100" in drawn_in(tmp_path) and f">{TITLE}</h2>" in page


def test_a_curve_is_drawn_with_its_interval_reference_and_half_way_strength(frame):
    subject = frame[(frame["target"] == "shape") & (frame["cue"] == "hue") & (frame["spread"] == 1)]
    (axes,) = strength_curves(subject, "baseline", ["shape", "hue"], 1 / 3).axes
    _, curve, without, half = axes.lines
    assert curve.get_xydata().tolist() == subject[["counter_examples", "mean"]].to_numpy().tolist()
    assert without.get_ydata()[0] == pytest.approx(subject["without"].iloc[0])
    assert half.get_xdata()[0] == pytest.approx(subject["half_way"].iloc[0])
    band = band_of(axes)
    assert (band.min(), band.max()) == pytest.approx((subject["low"].min(), subject["high"].max()))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "5", "10", "20"]


def test_a_study_has_no_bindings_whose_cue_cannot_differ_less():
    config = load_config(definition_path("cue_strength.yaml"))
    study = config.study("fgo-5-spread-50")
    possible = KnownStudies(definitions=(study,)).possible_cues(study.name)
    assert possible == Counter(b.target for b in config.study_bindings(study.name, "all"))
    assert (possible["shape"], possible["hue"]) == (5, 4)
