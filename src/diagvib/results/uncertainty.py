"""The uncertainty of aggregates: intervals and paired comparisons.

The unit is the dataset sample: all runs of one share its classes, so 30 bindings of two samples are
two observations, not 60. The bindings are fixed: they are all that a scene has (or those
configured), and another sample would have the same ones. So every statement is about the mean over
these bindings in a new dataset sample, and its uncertainty is the spread of the samples' means.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import betaincinv, stdtrit

LEVEL = 0.95
# With fewer dataset samples there is no interval: two show hardly anything of their spread.
FEWEST = 3
# Closer than this to 0 or 1, the samples drawn may all be alike although others are not. There, a
# sample is worth this many independent images: around a cell's mean m, the accuracies of samples
# have the variance m (1 - m) / 10 in the 486 cells of docs/results/laptop/runs.csv (7.6 where the
# cue misleads, 19 in distribution; benchmarks/simulated_designs.py simulates the former).
EDGE = 0.2
WORTH = 10
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
    """Mean, standard error (ddof 1) and n of float[samples]; NaN is a missing run and is left
    out."""
    samples = np.asarray(values, dtype=np.float64)
    values = samples[~np.isnan(samples)]
    n = len(values)
    mean = values.mean() if n else np.nan
    stderr = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return Estimate(mean, stderr, n, samples)


def half_width(freedom: float | np.ndarray) -> float | np.ndarray:
    """Half of the 95 % t interval's width, in standard errors. freedom: degrees of freedom; NaN for
    fewer than one."""
    return stdtrit(freedom, (1 + LEVEL) / 2)


def sample_interval(
    plus: np.ndarray, minus: np.ndarray | None = None, accuracies: bool = True
) -> tuple[float, float]:
    """95 % interval of the mean over dataset samples of an accuracy, or of a difference of
    accuracies on the same samples. accuracies: False for any other measure, whose interval is
    Student's t; so is that of values below 0 or above 1.

    plus, minus: float[samples] or float[terms, samples], between 0 and 1, NaN for a missing run
    (then the sample is left out); the interval is that of the sum of `plus` less that of `minus`.
    It is Student's t. If every term's mean is within EDGE of 0 or 1, where spreads are skewed and
    often not seen at all, it is extended to what each term's mean allows: Clopper and Pearson's
    interval for WORTH images per sample, combined as by Zou and Donner (2008). (nan, nan) for fewer
    than FEWEST samples, or equal values elsewhere. It contains the truth at least 93 % of the time
    in simulations: benchmarks/README.md.
    """
    first, second = (
        np.empty((0, np.shape(plus)[-1])) if part is None else np.atleast_2d(part).astype(float)
        for part in (plus, minus)
    )
    terms = np.concatenate([first, second])
    terms = terms[:, ~np.isnan(terms).any(axis=0)]
    signs = np.repeat([1, -1], [len(first), len(second)])
    mean, stderr, n = estimate(signs @ terms)
    if n < FEWEST:
        return np.nan, np.nan
    below = above = half_width(n - 1) * stderr
    accuracies &= bool(((terms > -_NO_SPREAD) & (terms < 1 + _NO_SPREAD)).all())
    means = terms.mean(axis=1).clip(0, 1)  # sums of differences may lie just beyond
    if accuracies and (np.minimum(means, 1 - means) < EDGE).all():
        lower, upper = image_interval(means, n * WORTH)
        down, up = means - lower, upper - means
        below = max(below, np.linalg.norm(np.where(signs > 0, down, up)))
        above = max(above, np.linalg.norm(np.where(signs > 0, up, down)))
    elif stderr < _NO_SPREAD:
        return np.nan, np.nan
    low, high = np.round([mean - below, mean + above], 12)
    if accuracies:
        low, high = np.clip([low, high], -len(second), len(first))
    return float(low), float(high)


def image_interval(means: np.ndarray, images: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper and Pearson's 95 % interval for a share of this many independent images."""

    def least(share: np.ndarray) -> np.ndarray:
        right = share * images
        return betaincinv(np.maximum(right, 1e-12), images - right + 1, (1 - LEVEL) / 2)

    return least(means), 1 - least(1 - means)
