"""The uncertainty of aggregates: intervals and paired comparisons.

The unit is the dataset sample: all runs of one share its classes, so 30 bindings of two samples are
two observations, not 60, and neither do seeds add any: a sample's value is its mean over them, so
that the spread of these means holds both sources of chance. The bindings are fixed: they are all that a scene has (or those
configured), and another sample would have the same ones. So every statement is about the mean over
these bindings in a new dataset sample, and its uncertainty is the spread of the samples' means.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import betaincinv, stdtrit

CONFIDENCE = 0.95
# With fewer dataset samples there is no interval: two show hardly anything of their spread.
FEWEST = 3
# The share of runs that may be unlike the n that were drawn: where the mean is near 1 they may fail,
# near 0 succeed. At most one in eight, or as many as n runs may miss by chance (the rule of three).
UNLIKE, MISSED = 1 / 8, 3
# Of paired runs, which mostly succeed together in a sample, that share is 1 / n, at most 6 %.
PAIRED, PAIRED_MISSED = 0.06, 1
# Values that are all equal have an interval only within this distance of 0 or 1.
EDGE = 0.2
# Spreads below this are rounding errors.
_NO_SPREAD = 1e-12


class Estimate(float):
    """A mean over dataset samples with its uncertainty; used as a number, it is the mean.

    stderr: standard error of the mean (ddof 1: the divisor is n - 1, nan for n < 2; the paper does
    not state its divisor). n: the number of samples that counted. samples: the value of each, NaN
    for those that did not count. Unpacks as `mean, stderr, n = estimate`.
    """

    stderr: float
    n: int
    samples: np.ndarray

    # The defaults are for pickle, which sets the attributes afterwards.
    def __new__(cls, mean: float, stderr=np.nan, n=0, samples=()) -> "Estimate":
        self = super().__new__(cls, mean)
        self.stderr, self.n, self.samples = float(stderr), int(n), samples
        return self

    @property
    def mean(self) -> float:
        return float(self)

    @property
    def std(self) -> float:
        """Standard deviation over the samples (ddof 1)."""
        return self.stderr * self.n**0.5

    def __iter__(self) -> Iterator[float]:
        return iter((self.mean, self.stderr, self.n))

    def __repr__(self) -> str:
        return f"Estimate(mean={self.mean:.6g}, stderr={self.stderr:.6g}, n={self.n})"


def estimate(values: np.ndarray) -> Estimate:
    """Mean, standard error (ddof 1) and n of float[samples], or of the means over the seeds of
    float[samples, seeds]; NaN is a missing run, whose sample is left out."""
    samples = np.asarray(values, dtype=np.float64)
    if samples.ndim == 2:
        samples = samples.mean(axis=1)
    values = samples[~np.isnan(samples)]
    n = len(values)
    mean = values.mean() if n else np.nan
    stderr = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return Estimate(mean, stderr, n, samples)


def half_width(freedom: float | np.ndarray) -> float | np.ndarray:
    """Half of the 95 % t interval's width, in standard errors. freedom: degrees of freedom; NaN for
    fewer than one."""
    return stdtrit(freedom, (1 + CONFIDENCE) / 2)


def sample_interval(
    plus: np.ndarray, minus: np.ndarray | None = None, bounds: tuple[float, float] | None = None
) -> tuple[float, float]:
    """95 % interval of the mean over dataset samples of an accuracy, or of a difference of
    accuracies on the same samples. bounds: of any other measure, the least and the greatest value
    that it may have; its interval is Student's t within them, and so is that of values below 0 or
    above 1.

    plus, minus: float[samples] or float[terms, samples], between 0 and 1, NaN for a missing run
    (then the sample is left out); the interval is that of the sum of `plus` less that of `minus`.
    It is Student's t of that sum, so what the terms share cancels, and at least `allowance`. (nan,
    nan) for fewer than FEWEST samples, or equal values further than EDGE from 0 and 1. How often it
    contains the truth in simulations:
    benchmarks/README.md.
    """
    first_values, second_values = (
        np.empty((0, np.shape(plus)[-1])) if part is None else np.atleast_2d(part).astype(float)
        for part in (plus, minus)
    )
    terms = np.concatenate([first_values, second_values])
    terms = terms[:, ~np.isnan(terms).any(axis=0)]
    signs = np.repeat([1, -1], [len(first_values), len(second_values)])
    mean, stderr, n = estimate(signs @ terms)
    if n < FEWEST:
        return np.nan, np.nan
    below = above = half_width(n - 1) * stderr
    means = terms.mean(axis=1).clip(0, 1)  # sums of differences may lie just beyond
    accuracies = bounds is None and ((terms > -_NO_SPREAD) & (terms < 1 + _NO_SPREAD)).all()
    near = accuracies and (np.minimum(means, 1 - means) < EDGE).all()
    if stderr < _NO_SPREAD and not near:
        return np.nan, np.nan
    if accuracies:
        bounds = -len(second_values), len(first_values)
        below, above = np.maximum([below, above], allowance(means, signs, n))
    low, high = np.round([mean - below, mean + above], 12)
    return tuple(np.clip([low, high], *(bounds or (-np.inf, np.inf))).tolist())


def allowance(means: np.ndarray, signs: np.ndarray, n: int) -> tuple[float, float]:
    """How far the interval of a sum of terms reaches below and above it at least: what `unlike` allows
    for each term, combined as by Zou and Donner (2008). signs: 1 or -1 of each term."""
    fall, rise = unlike(means, n)
    ways = np.where(signs > 0, [fall, rise], [rise, fall])
    return tuple(np.linalg.norm(way) for way in ways)


def unlike(means: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """How much lower, and higher, the mean of each term may be if some runs are unlike the n that
    were drawn: fully where all means are within 15 points of 0 or 1, not at all between 40 and 60 %.
    Several terms are paired."""
    falling = min(UNLIKE, MISSED / n)
    rising = falling if len(means) == 1 else min(PAIRED, PAIRED_MISSED / n)
    near = np.clip(4 * np.stack([means, 1 - means]) - 2.4, 0, 1)
    fall, rise = np.minimum(near, near.max(axis=0).min())
    return falling * fall, rising * rise


def image_interval(means: np.ndarray, images: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's 95 % interval for a share of this many independent images."""

    def least(share: np.ndarray) -> np.ndarray:
        right = share * images
        return betaincinv(np.maximum(right, 1e-12), images - right + 1, (1 - CONFIDENCE) / 2)

    return least(means), 1 - least(1 - means)
