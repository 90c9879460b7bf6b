"""Runs with a known truth, to see how often an interval covers it and how often a test raises a
false alarm.

Normal: a run's accuracy is the pair's level + sample effect + run effect; the sample effect is
shared by all runs of a dataset sample and baseline, the run effect is separate for each run.
Skewed: the sample's mean accuracy, and from it that of its runs, comes from Beta distributions
close to 1 (close to 0 is the mirror image).
"""

from collections.abc import Callable
from itertools import starmap

import numpy as np
from scipy.stats import beta, norm

from diagvib.results.gaps import judge_gap, ratio_interval

SAMPLE_SPREAD, RUN_SPREAD, BINDINGS = 0.03, 0.02, 30
# The accuracy of every pair, with mean 0.5: pairs that are alike, and pairs as hard and easy as the
# benchmark's.
ALIKE, UNLIKE = np.full(BINDINGS, 0.5), np.linspace(0.3, 0.7, BINDINGS)
# Mean and standard deviation of a dataset sample's accuracy.
SKEWED, VERY_SKEWED, NARROW = (0.97, 0.03), (0.99, 0.02), (0.97, 0.01)
_RUN_CONCENTRATION = 60

# A function from a generator and a number of samples to values.
Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal_samples(generator: np.random.Generator, n: int) -> np.ndarray:
    """float[n samples] with mean 0.5."""
    return generator.normal(0.5, SAMPLE_SPREAD, n)


def normal_runs(levels: np.ndarray) -> Draw:
    """float[n samples, pairs] around the levels' mean."""
    return lambda generator, n: (
        levels
        + generator.normal(0, SAMPLE_SPREAD, (n, 1))
        + generator.normal(0, RUN_SPREAD, (n, BINDINGS))
    )


def skewed_samples(mean: float, spread: float) -> Draw:
    """float[n samples] with that mean."""
    total = mean * (1 - mean) / spread**2 - 1
    return lambda generator, n: generator.beta(mean * total, (1 - mean) * total, n)


def skewed_runs(mean: float, spread: float) -> Draw:
    """float[n samples, pairs] with that mean."""

    def draw(generator: np.random.Generator, n: int) -> np.ndarray:
        # Beta distributions end before 0 and 1.
        of_sample = np.clip(skewed_samples(mean, spread)(generator, n), 1e-9, 1 - 1e-9)[:, None]
        return generator.beta(
            of_sample * _RUN_CONCENTRATION, (1 - of_sample) * _RUN_CONCENTRATION, (n, BINDINGS)
        )

    return draw


def with_gaps(draw: Draw, share: float) -> Draw:
    """The same with a share of the runs missing."""

    def gappy(generator: np.random.Generator, n: int) -> np.ndarray:
        values = draw(generator, n)
        values[generator.random(values.shape) < share] = np.nan
        return values

    return gappy


def coverage(interval: Callable, draw: Draw, truth: float, n: int, times: int) -> float:
    """How often the interval from n samples contains the truth."""
    generator = np.random.default_rng(n)
    found = (interval(draw(generator, n)) for _ in range(times))
    return float(np.mean([low <= truth <= high for low, high in found]))


def null_comparisons(
    compare: Callable, first: Draw, second: Draw, n: int, times: int
) -> dict[str, float]:
    """Two baselines with equal means compared: how often the interval contains 0, p is below 0.05,
    and there is no p."""
    generator = np.random.default_rng(n)
    draws = ((first(generator, n), second(generator, n)) for _ in range(times))
    found = list(starmap(compare, draws))
    p = np.array([result["p"] for result in found])
    return {
        "coverage": float(np.mean([result["low"] <= 0 <= result["high"] for result in found])),
        "false_alarms": float((p < 0.05).mean()),
        "without_p": float(np.isnan(p).mean()),
    }


def paired_gaps(mean: float, reference: float, skewed: bool) -> Draw:
    """float[2, n samples]: a method's gaps and ERM's on the same dataset samples, with these means.

    Normal: a sample's effect on both (0.05) and one for each run (0.04). Skewed: the accuracies
    behind the gaps are close to 1 in distribution, and Beta with a spread of 0.1 where the cue
    misleads; half of the variance is shared.
    """

    def draw(generator: np.random.Generator, n: int) -> np.ndarray:
        means = np.array([[mean], [reference]])
        if not skewed:
            return means + generator.normal(0, 0.05, n) + generator.normal(0, 0.04, (2, n))
        common, own = generator.normal(0, 1, n), generator.normal(0, 1, (2, n))
        total = (1 + means) * -means / 0.1**2 - 1
        misled = beta.ppf(norm.cdf((common + own) / 2**0.5), (1 + means) * total, -means * total)
        return misled - 1 + 0.01 - generator.beta(2, 198, (2, n))

    return draw


def paired_t(pair: np.ndarray) -> tuple[float, float]:
    """The 95 % t interval of the mean difference, as in `gaps.judge_gap`."""
    judged = judge_gap(*pair)
    return judged["low"], judged["high"]


def paired_bootstrap(pair: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of the mean differences of samples drawn with replacement."""
    difference = pair[0] - pair[1]
    drawn = np.random.default_rng(0).integers(0, len(difference), (1000, len(difference)))
    return tuple(np.quantile(difference[drawn].mean(axis=1), [0.025, 0.975]))


def ratio(pair: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the ratio of means, `gaps.ratio_interval`, which may be unbounded."""
    low, high = ratio_interval(*pair)
    return (low, high) if low == low else (-np.inf, np.inf)
