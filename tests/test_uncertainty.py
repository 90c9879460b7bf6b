"""Intervals, paired comparisons and corrections: known answers."""

import numpy as np
import pandas as pd
import pytest

from diagvib.report.page_tables import folded_tables
from diagvib.results.read_runs import collect_runs
from diagvib.results.shortcut import metrics_table
from diagvib.results.uncertainty import (
    baseline_comparisons,
    crossed_interval,
    holm,
    overall_table,
    paired_difference,
    sample_interval,
    sample_means,
    sign_flip_p,
)
from simulated_designs import (
    ALIKE,
    SKEWED,
    UNLIKE,
    coverage,
    normal_runs,
    normal_samples,
    null_comparisons,
    skewed_runs,
    skewed_samples,
    with_gaps,
)
from synthetic_grid import BASELINES, BINDINGS, STUDIES, effects, level, right_per_class, write_grid
from synthetic_runs import expected_runs


def model_frame(
    baselines=BASELINES[:2], studies=STUDIES, bindings=BINDINGS, samples: int = 5
) -> pd.DataFrame:
    """The result of `collect_runs` for the generative model of `synthetic_grid`."""
    frame = pd.DataFrame(expected_runs(baselines, studies, bindings, samples))
    frame["cue"] = frame["cue"].fillna("")
    values = [right_per_class(run, 3333) / 3333 for run in frame.to_dict("records")]
    return frame.assign(
        status="ok",
        reason="",
        id_accuracy=values,
        ood_accuracy=values,
        comparable=True,
        sources="official",
    )


def test_files_of_the_model_are_read_as_the_model_says(tmp_path):
    expected = expected_runs(BASELINES[:2], ["zso", "zgo"], ["shape-hue", "hue-shape"], samples=2)
    write_grid(tmp_path, expected, per_class=50, epochs=2)
    frame = collect_runs(tmp_path, expected)
    assert frame["id_accuracy"].tolist() == pytest.approx(
        [right_per_class(r, 50) / 50 for r in expected]
    )


def test_aggregates_equal_the_closed_form_within_their_intervals():
    frame = model_frame()
    metrics = metrics_table(frame).query("metric == 'faavg'")
    cues = {
        target: [c for c in frame["target"].unique() if c != target]
        for target in frame["target"].unique()
    }
    truth = np.array(
        [
            level(r.study, r.target, None)
            if r.study == "zso"
            else np.mean([level(r.study, r.target, cue) for cue in cues[r.target]])
            for r in metrics.itertuples()
        ]
    )
    # 95 % intervals: a cell in twenty may miss
    assert ((metrics["low"] <= truth) & (truth <= metrics["high"])).mean() >= 0.95
    overall = overall_table(frame)
    truth = [
        np.mean(
            [level(s, t, None) if s == "zso" else level(s, t, c) for t in cues for c in cues[t]]
        )
        for s in overall["study"]
    ]
    assert ((overall["low"] <= truth) & (truth <= overall["high"])).all()
    assert (
        abs(
            np.mean(
                [
                    effects({"sample": s, "baseline": "", "study": "", "binding": ""})
                    for s in range(5)
                ]
            )
        )
        < 0.05
    )


TIMES = 1000
# Three standard errors of a share of 0.95 or 0.05 over this many simulations.
MARGIN = 3 * (0.05 * 0.95 / TIMES) ** 0.5


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_intervals_cover_the_truth_as_often_as_they_say(n):
    assert coverage(sample_interval, normal_samples, 0.5, n, TIMES) == pytest.approx(
        0.95, abs=MARGIN
    )
    assert coverage(crossed_interval, normal_runs(ALIKE), 0.5, n, TIMES) == pytest.approx(
        0.95, abs=MARGIN
    )
    assert coverage(crossed_interval, normal_runs(UNLIKE), 0.5, n, TIMES) == pytest.approx(
        0.95, abs=MARGIN
    )


@pytest.mark.parametrize("n", [2, 3, 5])
def test_intervals_cover_the_truth_though_runs_are_missing(n):
    assert coverage(
        crossed_interval, with_gaps(normal_runs(UNLIKE), 0.1), 0.5, n, TIMES
    ) == pytest.approx(0.95, abs=MARGIN)


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_skewed_accuracies_close_to_one_are_covered_less_often_but_never_left_out_of_range(n):
    intervals = []

    def kept(values):
        intervals.append(sample_interval(values))
        return intervals[-1]

    assert coverage(kept, skewed_samples(*SKEWED), SKEWED[0], n, TIMES) > 0.85
    assert coverage(crossed_interval, skewed_runs(*SKEWED), SKEWED[0], n, TIMES) > 0.85
    assert np.min(intervals) >= 0 and np.max(intervals) <= 1


@pytest.mark.parametrize("n", [2, 3, 5])
def test_fewer_than_six_samples_give_no_p_and_an_interval_that_covers(n):
    found = null_comparisons(paired_difference, normal_runs(UNLIKE), normal_runs(UNLIKE), n, TIMES)
    assert found["coverage"] == pytest.approx(0.95, abs=MARGIN) and found["without_p"] == 1


@pytest.mark.parametrize(("n", "times"), [(6, 1000), (20, 200)])
def test_baselines_that_do_not_differ_are_seldom_found_to_differ(n, times):
    margin = 3 * (0.05 * 0.95 / times) ** 0.5
    found = null_comparisons(paired_difference, normal_runs(UNLIKE), normal_runs(UNLIKE), n, times)
    assert found["coverage"] == pytest.approx(0.95, abs=margin)
    # Of six samples only 2 of 64 ways are as extreme as the most extreme one.
    assert found["false_alarms"] == pytest.approx(2 / 64 if n == 6 else 0.05, abs=margin)
    assert found["without_p"] == 0


def test_two_samples_of_one_pair_prove_nothing():
    result = paired_difference(np.array([[0.62], [0.61]]), np.array([[0.55], [0.55]]))
    assert np.isnan(result["p"]) and result["low"] < 0.065 < result["high"]


def test_a_real_difference_is_found():
    generator = np.random.default_rng(6)
    first, second = (normal_runs(UNLIKE)(generator, 20) + gain for gain in (0.06, 0))
    result = paired_difference(first, second)
    assert result["p"] < 0.001 and result["low"] > 0 and abs(result["difference"] - 0.06) < 0.04


def test_the_interval_is_students_over_the_samples_means():
    low, high = sample_interval(np.array([0.4, 0.5, np.nan, 0.6]))
    assert (low, high) == pytest.approx(
        (0.5 - 4.3027 * 0.1 / 3**0.5, 0.5 + 4.3027 * 0.1 / 3**0.5), abs=1e-5
    )
    # Thirty pairs do not make two samples sixty observations.
    assert (
        crossed_interval(np.tile([[0.4], [0.6]], 30))
        == sample_interval(np.array([0.4, 0.6]))
        == (0, 1)
    )
    assert sample_interval(np.array([-0.5, 0.5]), within=(-1, 1)) == (-1, 1)


def test_constant_values_have_an_interval_of_no_width_and_one_sample_has_none():
    assert sample_interval(np.full(5, 0.4)) == pytest.approx((0.4, 0.4))
    assert crossed_interval(np.full((5, 30), 0.4)) == pytest.approx((0.4, 0.4))
    assert np.isnan(sample_interval(np.array([0.4, np.nan]))).all()
    assert np.isnan(crossed_interval(np.array([[0.1, 0.9], [np.nan, np.nan]]))).all()


def test_a_sample_without_the_hard_pair_is_not_taken_for_a_better_one():
    bindings = np.array([0.9, 0.8, 0.2])
    values = np.add.outer([0, 0.02, 0.04], bindings)
    whole = sample_means(values)
    values[1, 2] = np.nan
    assert sample_means(values) == pytest.approx(whole)
    assert sample_means(np.vstack([values, np.full(3, np.nan)])) == pytest.approx(whole)
    assert sample_means(np.column_stack([values, np.full(3, np.nan)])) == pytest.approx(whole)


def test_samples_without_a_common_pair_cannot_be_compared():
    values = np.array([[0.5, 0.6, np.nan, np.nan], [np.nan, np.nan, 0.7, 0.8]])
    assert np.isnan(sample_means(values)).all() and np.isnan(crossed_interval(values)).all()
    result = paired_difference(values, np.zeros((2, 4)))
    assert (
        result["difference"] == pytest.approx(0.65) and np.isnan([result["low"], result["p"]]).all()
    )


def test_the_same_runs_give_the_same_answers():
    values = np.random.default_rng(2).normal(0, 0.1, 20)
    assert sign_flip_p(values) == sign_flip_p(values.copy())


def test_sign_flips_of_a_worked_example():
    # Of 64 sign patterns, those with equal signs, and with only the smallest one changed, have a
    # mean as far from zero.
    assert sign_flip_p(np.array([0.1, 0.2, 0.3, 0.4, 0.5, -0.01])) == pytest.approx(2 * 2 / 64)
    assert sign_flip_p(np.full(6, 0.05)) == pytest.approx(2 / 64)
    assert sign_flip_p(np.zeros(6)) == 1
    assert np.isnan(sign_flip_p(np.full(5, 0.05)))


def test_holm_of_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, np.nan, 0.4]) == pytest.approx([0.8, np.nan, 0.8], nan_ok=True)
    assert len(holm([])) == 0


def test_a_baseline_that_is_always_five_points_better():
    second = np.random.default_rng(3).random((12, 30)) * 0.9
    result = paired_difference(second + 0.05, second)
    assert result["difference"] == pytest.approx(0.05)
    assert (result["low"], result["high"]) == pytest.approx((0.05, 0.05))
    assert result["superiority"] == 1 and result["p"] < 0.001
    assert (result["samples"], result["bindings"]) == (12, 30)


def test_effect_size_is_cohens_d_over_pairs():
    change = np.tile([0.1, 0.2, 0.3], (2, 1))
    assert paired_difference(change, np.zeros((2, 3)))["effect"] == pytest.approx(0.2 / 0.1)
    assert np.isnan(paired_difference(np.zeros((2, 3)), np.zeros((2, 3)))["effect"])


def test_every_two_baselines_are_compared_on_every_study():
    few = baseline_comparisons(model_frame(BASELINES[:3], ["zso", "zgo"]))
    assert (
        len(few) == 2 * 3
        and few[["p", "p_holm"]].isna().all(axis=None)
        and few["low"].notna().all()
    )
    table = baseline_comparisons(
        model_frame(BASELINES[:3], ["zso", "zgo"], BINDINGS[:6], samples=8)
    )
    assert (table["p_holm"] >= table["p"]).all()
    assert (table["p_holm"] > 0.05).all()  # the model's baselines are alike
    assert len(baseline_comparisons(model_frame(BASELINES[:1], ["zgo"]))) == 0


def test_a_p_that_the_design_cannot_give_is_a_dash_with_the_reason_below():
    frame = model_frame(studies=["zgo"])
    tables = folded_tables(
        {
            "overall": overall_table(frame),
            "baselines": baseline_comparisons(frame),
            "selection": pd.DataFrame(columns=["metric"]),
        }
    )
    table = tables[1]
    assert table["rows"][0][table["heads"].index("p")] == {
        "text": "-",
        "small": "",
        "kind": "",
        "value": "",
    }
    assert "none for fewer than 6 samples" in table["note"]
    assert not any("bootstrap" in text for own in tables for text in (own["title"], own["note"]))


def test_with_nothing_in_common_there_is_nothing_to_compare():
    first, second = np.array([[0.5, np.nan]]), np.array([[np.nan, 0.5]])
    result = paired_difference(first, second)
    assert np.isnan(result["difference"]) and (result["samples"], result["bindings"]) == (0, 0)


def test_where_nothing_ran_there_is_no_mean_and_no_warning(recwarn):
    assert (
        len(sample_means(np.full((5, 3), np.nan))) == 0
        and np.isnan(crossed_interval(np.full((5, 3), np.nan))).all()
    )
    assert not recwarn
