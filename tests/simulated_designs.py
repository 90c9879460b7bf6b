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
from scipy.stats import beta, norm, rankdata, t

from diagvib.results.gaps import judge_gap, ratio_interval
from diagvib.results.orders import rank_scores

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


def _two_sides(generator: np.random.Generator, alike: float, shape: tuple[int, ...]) -> np.ndarray:
    """float[2, *shape]: standard normal, both sides correlated by `alike`."""
    first, other = generator.standard_normal((2, *shape))
    return np.stack([first, alike * first + (1 - alike**2) ** 0.5 * other])


def alike_factors(
    generator: np.random.Generator, alike: float, own: float, studies: int, factors: int
) -> np.ndarray:
    """float[2, studies, factors]: FAAvg as two papers would print it, of newly drawn factors.

    A factor's level counts in all studies, a share `own` of the variance in one alone; from study
    to study the accuracies rise, up to 1 where many are the same. Whole percents.
    """
    level = (1 - own) ** 0.5 * _two_sides(generator, alike, (1, factors))
    level = level + own**0.5 * _two_sides(generator, alike, (studies, factors))
    return np.clip(0.55 + 0.35 * level + np.linspace(0, 0.35, studies)[:, None], 0, 1).round(2)


def alike_pairs(
    generator: np.random.Generator, alike: float, own: float, noise: float, factors: int
) -> np.ndarray:
    """float[2, factors, factors]: P_ij of two models. A factor's strength as target is its strength
    as cue, except for a share `own` of the variance; noise: standard deviation of a pair's own
    part, where that of a strength is 1."""
    target = _two_sides(generator, alike, (factors,))
    cue = (1 - own) ** 0.5 * target + own**0.5 * _two_sides(generator, alike, (factors,))
    pairs = (
        target[:, :, None] - cue[:, None] + noise * _two_sides(generator, alike, (factors, factors))
    )
    return (1 / (1 + np.exp(-2 * pairs))).round(2)


def scored_factors(drawn: np.ndarray) -> list[np.ndarray]:
    """The studies of `alike_factors` as `orders.rank_scores` gives them, without those where all
    are the same."""
    where = np.eye(drawn.shape[-1], dtype=bool)
    scored = (
        rank_scores(np.diag(first), np.diag(second), where)
        for first, second in zip(*drawn, strict=True)
    )
    return [both for both in scored if both is not None]


def scored_pairs(drawn: np.ndarray) -> list[np.ndarray]:
    """The same for `alike_pairs`, which is one study."""
    both = rank_scores(*drawn, ~np.eye(drawn.shape[-1], dtype=bool))
    return [] if both is None else [both]


def mean_spearman(drawn: np.ndarray) -> np.ndarray:
    """float[...], from float[2, ..., studies, factors]: the mean over the studies that have an
    order."""
    ranks = rankdata(drawn, axis=-1) - (drawn.shape[-1] + 1) / 2
    lengths = np.sqrt((ranks**2).sum(axis=-1).prod(axis=0))
    there = lengths > 0
    return (ranks.prod(axis=0).sum(axis=-1) / np.where(there, lengths, 1)).sum(axis=-1) / there.sum(
        axis=-1
    )


def bootstrap_over_factors(drawn: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of `mean_spearman` over factors drawn with replacement. drawn: from
    `alike_factors`."""
    picks = np.random.default_rng(0).integers(0, drawn.shape[-1], (200, drawn.shape[-1]))
    return tuple(
        np.nanquantile(mean_spearman(np.moveaxis(drawn[..., picks], 2, 1)), [0.025, 0.975])
    )


def jackknife_over_factors(drawn: np.ndarray) -> tuple[float, float]:
    """Fisher's z of `mean_spearman`, its spread from leaving out each factor in turn, t."""
    n = drawn.shape[-1]
    z = np.arctanh(
        np.clip(
            [
                mean_spearman(drawn),
                *(mean_spearman(np.delete(drawn, i, axis=-1)) for i in range(n)),
            ],
            -0.97,
            0.97,
        )
    )
    half = t.ppf(0.975, n - 1) * np.sqrt((n - 1) * z[1:].var())
    return np.tanh(z[0] - half), np.tanh(z[0] + half)
