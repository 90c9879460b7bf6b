"""Intervals and paired comparisons: known answers, and simulations under the published law."""

import numpy as np
import pandas as pd
import pytest
from simulated_designs import World, accuracies, share, truths

from diagvib.papers.diagvib6.finding import overall_sentence
from diagvib.papers.diagvib6.shortcut import baseline_comparisons, overall_table
from diagvib.results.reader_tables import interval, percent
from diagvib.results.uncertainty import sample_interval
from diagvib.studies.known_studies import SHIPPED

TIMES = 1000
# Three standard errors of a share of 0.95 over this many simulations, below 0.95.
LEAST_COVERAGE = 0.95 - 3 * (0.05 * 0.95 / TIMES) ** 0.5


@pytest.mark.parametrize("mean", [0.003, 0.5])
def test_intervals_contain_the_truth_though_hardly_any_sample_shows_it(mean):
    draws = accuracies(np.random.default_rng(3), [mean], (3, TIMES))[0]
    assert share(sample_interval, draws, mean) > LEAST_COVERAGE


@pytest.mark.parametrize("means", [(0.97, 0.99), (0.3, 0.99)])
def test_differences_are_covered(means):
    draws = accuracies(np.random.default_rng(4), means, (3, TIMES))
    covered = share(lambda pair: sample_interval(*pair), draws, means[0] - means[1])
    assert covered > LEAST_COVERAGE


@pytest.mark.parametrize(
    ("means", "n", "world"),
    [
        ([0.98], 5, World(failed=0.1)),
        ([0.02], 3, World(spread=1)),
        ([0.98, 0.98], 5, World(failed=0.1)),
        ([0.02, 0.01], 5, World()),
        ([0.02, 0.01], 3, World(shared=0.95)),
        ([0.05, 0.02], 10, World(spread=1)),
        ([0.13, 0.1], 3, World()),
    ],
)
def test_the_edge_is_covered(means, n, world):
    """With failed runs, skewed laws, and samples whose effects are shared."""
    draws = accuracies(np.random.default_rng(5), means, (n, TIMES), world)
    left, *right = truths(means, world)
    assert share(lambda terms: sample_interval(*terms), draws, left - sum(right)) > LEAST_COVERAGE


def test_the_interval_is_students_over_the_samples_means():
    low, high = sample_interval(np.array([0.4, 0.5, np.nan, 0.6]))
    half = 4.3027 * 0.1 / 3**0.5
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)
    assert sample_interval(np.array([0.1, 0.5, 0.9])) == (0, 1)
    # Of differences too, which may be as low as -1; a common sample effect cancels.
    left, right = np.array([0.3, 0.5, 0.7]), np.array([0.51, 0.7, 0.89])
    half = 4.3027 * 0.01 / 3**0.5
    assert sample_interval(left, right) == pytest.approx((-0.2 - half, -0.2 + half), abs=1e-5)
    assert sample_interval([0.0, 0.0, 1.0], [1.0, 0.9, 0.3])[0] == -1


def test_what_is_no_accuracy_has_students_interval_within_its_bounds():
    errors = np.array([0.019, 0.02, 0.021])
    half = 4.3027 * 0.001 / 3**0.5
    result = sample_interval(errors, bounds=(0, 1))
    assert result == pytest.approx((0.02 - half, 0.02 + half), abs=1e-6)
    low, high = sample_interval(np.array([0.001, 0.002, 0.02]), bounds=(0, 1))
    assert low == 0 and 0.03 < high < 0.05
    for beyond in (-20, 5):
        result = sample_interval(errors + beyond)
        assert result == pytest.approx((beyond + 0.02 - half, beyond + 0.02 + half), abs=1e-6)


def test_samples_that_are_all_alike_give_a_bound_at_the_edge_and_nothing_elsewhere():
    """One run in eight may be unlike those drawn, and of many runs three at most."""
    assert sample_interval(np.zeros(3)) == pytest.approx((0, 1 / 8))
    assert sample_interval(np.ones(3)) == pytest.approx((7 / 8, 1))
    assert sample_interval(np.ones(60)) == pytest.approx((57 / 60, 1))
    assert np.isnan(sample_interval(np.full(5, 0.4))).all()
    # The edge is 20 points wide; of a difference, both means must be within it.
    assert np.isnan(sample_interval(np.full(3, 0.79))).all()
    assert sample_interval(np.full(3, 0.81))[0] < 0.71
    assert np.isnan(sample_interval(np.ones(3), np.full(3, 0.5))).all()
    # Extended, never narrowed.
    low, high = sample_interval(np.array([0.82, 0.9, 1.0]))
    assert low < 0.9067 - 4.3027 * 0.0902 / 3**0.5 + 1e-3 and high == 1


def test_pairs_are_kept_near_the_edge():
    """What two terms share cancels; beyond that, one run in eight of the better one may fail, and
    few succeed where the other of its sample does not."""
    assert sample_interval(np.ones(3), np.ones(3)) == pytest.approx((-1 / 8, 1 / 8))
    assert sample_interval(np.zeros(3), np.zeros(3)) == pytest.approx((-0.06, 0.06))
    assert sample_interval(np.zeros(20), np.zeros(20)) == pytest.approx((-0.05, 0.05))
    shared = np.array([0.05, 0.25, 0.1])
    low, high = sample_interval(shared + np.array([0.01, 0.02, 0]), shared)
    assert (low, high) == pytest.approx((0.01 - 0.06, 0.01 + 0.06))
    low, high = sample_interval(shared + np.array([0.1, 0, 0.2]), shared)
    assert high == pytest.approx(0.1 + 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    # Where one of them is in the middle, its spread is seen.
    steady = np.array([0.5, 0.51, 0.49])
    assert sample_interval(np.ones(3), steady)[0] == pytest.approx(0.5 - 4.3027 * 0.01 / 3**0.5)


@pytest.mark.parametrize("values", [[], [0.4], [0.0, 0.0], [0.1, 0.9, np.nan], [np.nan] * 3])
def test_fewer_than_three_samples_have_no_interval(values, recwarn):
    assert np.isnan(sample_interval(np.array(values))).all() and not recwarn


def test_intervals_are_printed_as_what_they_are():
    assert interval(*sample_interval(np.zeros(3))) == "≤ 12.5"
    assert interval(*sample_interval(np.ones(10))) == "≥ 87.5"
    assert interval(0.412, 0.43) == "41.2 to 43.0"
    assert interval(-0.031, 0.004, change=True) == "-3.1 to +0.4"
    assert interval(np.nan, np.nan) == interval(0.0, 1.0) == "n too small"


def test_no_spread_is_not_printed_as_certainty():
    assert percent(0.412, 0.02, 3, 3) == "41.2 ± 2.0"
    assert percent(1.0, 0.0, 3, 3) == "100.0 (≥ 87.5)"
    assert percent(0.0, 0.0004, 3, 5) == "0.0 (≤ 12.5; n = 3 of 5)"
    assert percent(0.5, 0.0, 3, 3) == "50.0 (n = 3)"
    assert percent(0.0, 0.0, 3, 3, change=True) == "0.0 (n = 3)"


def test_one_sample_has_the_interval_over_its_images():
    """Clopper and Pearson's: of none of n images, the upper end is 1 - 0.025 ** (1 / n)."""
    assert percent(0.0, np.nan, 1, 1, images=100) == f"0.0 (≤ {100 * (1 - 0.025**0.01):.1f}; n = 1)"
    assert percent(2 / 18, np.nan, 1, 1, images=18) == "11.1 (1.4 to 34.7; n = 1)"
    assert percent(0.5, np.nan, 1, 5) == "50.0 (n = 1 of 5)"
    assert percent(np.nan, np.nan, 0, 5) == "-"
    assert percent(-0.0001, 0.01, 3, 3, change=True) == "0.0 ± 1.0"


def runs_frame(**accuracies: np.ndarray) -> pd.DataFrame:
    """Runs of a study without cues; accuracies: of each baseline, float[samples, bindings]."""
    return pd.DataFrame(
        [
            ("zso", baseline, str(binding), "", sample, value)
            for baseline, values in accuracies.items()
            for (sample, binding), value in np.ndenumerate(values)
        ],
        columns=["study", "baseline", "binding", "cue", "sample", "id_accuracy"],
    )


def test_a_sample_that_lacks_a_binding_does_not_count():
    """Else one without a hard binding would look better."""
    values = np.add.outer([0, 0.02, 0.04, 0.1], np.array([0.9, 0.8, 0.2]))
    values[3, 2] = np.nan
    (rows,) = overall_table(runs_frame(net=values)).to_dict("records")
    assert rows["mean"] == pytest.approx(np.mean([1.9, 1.96, 2.02]) / 3)
    assert (rows["n"], rows["expected"], rows["bindings"]) == (3, 4, 3)
    (rows,) = baseline_comparisons(runs_frame(net=values, other=values * 0)).to_dict("records")
    assert rows["samples"] == 3
    values[:, 1] = np.nan
    assert np.isnan(overall_table(runs_frame(net=values))["mean"][0])


def test_with_a_cue_the_accuracy_counts_where_it_misleads():
    frame = runs_frame(net=np.full((3, 2), 0.9), other=np.full((3, 2), 0.8))
    misled = {"net": 0.4, "other": 0.1}
    frame = frame.assign(cue="hue", ood_accuracy=frame["baseline"].map(misled))
    assert overall_table(frame)["mean"].to_list() == pytest.approx([0.4, 0.1])
    pairs = baseline_comparisons(frame)
    assert pairs["difference"][0] == pytest.approx(0.3)
    message = "(of 1); the largest measured: net minus other in ZSO, +30.0 points"
    assert message in overall_sentence(pairs, SHIPPED)


def test_baselines_are_compared_on_the_bindings_that_both_have():
    fewer = runs_frame(net=np.full((3, 2), 0.5), other=np.tile([0.25, 0.25, 0.9, 0.9], (3, 1)))
    (result,) = baseline_comparisons(fewer).to_dict("records")
    assert (result["difference"], result["bindings"]) == (0.25, 2)
    alternative = fewer["baseline"] == "other"
    separate = fewer.assign(binding=fewer["binding"].where(alternative, "own " + fewer["binding"]))
    assert baseline_comparisons(separate).empty


def test_a_baseline_that_is_always_five_points_better():
    right = np.random.default_rng(3).random((12, 30)) * 0.9
    gain = 0.05 + 0.001 * np.arange(-6, 6)[:, None]
    (result,) = baseline_comparisons(runs_frame(net=right + gain, other=right)).to_dict("records")
    assert result["difference"] == pytest.approx(0.0495)
    assert 0.045 < result["low"] < 0.0495 < result["high"] < 0.055
    assert (result["samples"], result["bindings"]) == (12, 30)
