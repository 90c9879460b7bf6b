"""Bootstrap intervals, paired comparisons and corrections: answers that are known before."""

import numpy as np
import pandas as pd
import pytest

from diagvib.collect import collect_runs
from diagvib.tables import metrics_table
from diagvib.uncertainty import (
    baseline_comparisons,
    crossed_interval,
    crossed_means,
    holm,
    overall_table,
    paired_difference,
    sample_interval,
)
from synthetic_grid import BASELINES, PAIRS, STUDIES, effects, level, right_per_class, write_grid
from synthetic_runs import expected_runs


def model_frame(baselines=BASELINES[:2], studies=STUDIES, pairs=PAIRS, samples: int = 5) -> pd.DataFrame:
    """What `collect_runs` gives for the generative model of `synthetic_grid`."""
    frame = pd.DataFrame(expected_runs(baselines, studies, pairs, samples))
    frame["cue"] = frame["cue"].fillna("")
    values = [right_per_class(run, 3333) / 3333 for run in frame.to_dict("records")]
    return frame.assign(status="ok", reason="", id_accuracy=values, ood_accuracy=values, comparable=True,
                        sources="official")


def test_files_of_the_model_are_read_as_the_model_says(tmp_path):
    expected = expected_runs(BASELINES[:2], ["zso", "zgo"], ["shape-hue", "hue-shape"], samples=2)
    write_grid(tmp_path, expected, per_class=50, epochs=2)
    frame = collect_runs(tmp_path, expected)
    assert frame["id_accuracy"].tolist() == pytest.approx([right_per_class(r, 50) / 50 for r in expected])


def test_aggregates_equal_the_closed_form_within_their_intervals():
    frame = model_frame()
    metrics = metrics_table(frame).query("metric == 'faavg'")
    cues = {target: [c for c in frame["target"].unique() if c != target] for target in frame["target"].unique()}
    truth = np.array([level(r.study, r.target, None) if r.study == "zso" else
                      np.mean([level(r.study, r.target, cue) for cue in cues[r.target]]) for r in metrics.itertuples()])
    # 95 % intervals: a cell in twenty may miss
    assert ((metrics["low"] <= truth) & (truth <= metrics["high"])).mean() >= 0.95
    overall = overall_table(frame)
    truth = [np.mean([level(s, t, None) if s == "zso" else level(s, t, c) for t in cues for c in cues[t]])
             for s in overall["study"]]
    assert ((overall["low"] <= truth) & (truth <= overall["high"])).all()
    assert abs(np.mean([effects({"sample": s, "baseline": "", "study": "", "pair": ""}) for s in range(5)])) < 0.05


def test_intervals_over_samples_cover_the_truth_as_often_as_they_say():
    draws = np.random.default_rng(0).normal(0.5, 0.1, (1000, 5))
    intervals = np.array([sample_interval(row) for row in draws])
    covered = ((intervals[:, 0] <= 0.5) & (intervals[:, 1] >= 0.5)).mean()
    assert 0.9 < covered < 0.99


def test_intervals_over_samples_and_pairs_cover_the_truth():
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        values = (0.5 + generator.normal(0, 0.05, (10, 1)) + generator.normal(0, 0.1, (1, 30))
                  + generator.normal(0, 0.02, (10, 30)))
        low, high = crossed_interval(values)
        covered += abs(0.5 - (low + high) / 2) <= (high - low) / 2
    assert covered / 200 > 0.88


def test_constant_values_have_an_interval_of_no_width_and_one_sample_has_none():
    assert sample_interval(np.full(5, 0.4)) == pytest.approx((0.4, 0.4))
    assert crossed_interval(np.full((5, 30), 0.4)) == pytest.approx((0.4, 0.4))
    assert np.isnan(sample_interval(np.array([0.4, np.nan]))).all()
    assert np.isnan(crossed_interval(np.array([[0.1, 0.9], [np.nan, np.nan]]))).all()


def test_a_missing_run_takes_no_part():
    values = np.full((5, 4), 0.3)
    values[1, 2] = np.nan
    assert crossed_means(values) == pytest.approx(0.3)


def test_the_same_runs_give_the_same_intervals():
    values = np.random.default_rng(2).random((5, 30))
    assert crossed_interval(values) == crossed_interval(values.copy())


def test_holm_of_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, np.nan, 0.4]) == pytest.approx([0.8, np.nan, 0.8], nan_ok=True)
    assert len(holm([])) == 0


def test_a_baseline_that_is_always_five_points_better():
    second = np.random.default_rng(3).random((5, 30)) * 0.9
    result = paired_difference(second + 0.05, second)
    assert result["difference"] == pytest.approx(0.05)
    assert (result["low"], result["high"]) == pytest.approx((0.05, 0.05))
    assert result["superiority"] == 1 and result["p"] < 0.001
    assert (result["samples"], result["pairs"]) == (5, 30)


def test_effect_size_is_cohens_d_over_pairs():
    change = np.tile([0.1, 0.2, 0.3], (2, 1))
    assert paired_difference(change, np.zeros((2, 3)))["effect"] == pytest.approx(0.2 / 0.1)
    assert np.isnan(paired_difference(np.zeros((2, 3)), np.zeros((2, 3)))["effect"])


def test_baselines_that_do_not_differ_are_seldom_found_to_differ():
    generator = np.random.default_rng(4)
    found = [paired_difference(*generator.normal(0.5, 0.1, (2, 5, 30)))["p"] < 0.05 for _ in range(100)]
    assert np.mean(found) < 0.1


def test_every_two_baselines_are_compared_on_every_study():
    table = baseline_comparisons(model_frame(BASELINES[:3], ["zso", "zgo"]))
    assert len(table) == 2 * 3
    assert (table["p_holm"] >= table["p"]).all()
    assert (table["p_holm"] > 0.05).all()  # the model's baselines are alike
    assert len(baseline_comparisons(model_frame(BASELINES[:1], ["zgo"]))) == 0


def test_with_nothing_in_common_there_is_nothing_to_compare():
    first, second = np.array([[0.5, np.nan]]), np.array([[np.nan, 0.5]])
    result = paired_difference(first, second)
    assert np.isnan(result["difference"]) and (result["samples"], result["pairs"]) == (0, 0)
