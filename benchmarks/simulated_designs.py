"""Accuracies with a known mean, to see how often an interval contains it and how often a verdict is
a false alarm.

A dataset sample's accuracy in a cell follows a beta law, whose variance is m (1 - m) / worth around
the cell's mean m; the cells of a sample are correlated through a Gaussian copula; what is measured
has the binomial noise of the test images.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv, ndtr

# Test images of a group, and the correlation of sample effects between studies, in the published
# runs (docs/results/laptop/runs.csv).
IMAGES, SHARED = 900, 0.79
# Variance of the samples as if each were this many images: of P_ij on misleading cues in those runs,
# by moments, without the test images' noise.
FITTED = 7.6


def accuracies(
    generator: np.random.Generator, means, shape: tuple[int, ...], worth: float = FITTED
) -> np.ndarray:
    """float[cells, *shape]: measured accuracies of cells with these means."""
    common, own = generator.standard_normal(shape), generator.standard_normal((len(means), *shape))
    level = ndtr(SHARED**0.5 * common + (1 - SHARED) ** 0.5 * own)
    mean = np.reshape(means, (-1, *[1] * len(shape)))
    law = betaincinv(mean * (worth - 1), (1 - mean) * (worth - 1), level)
    return generator.binomial(IMAGES, law) / IMAGES


def share(interval: Callable, drawn: np.ndarray, truth: float) -> float:
    """How often the interval of float[..., samples, times] contains the truth, of those that have
    one."""
    ends = np.array([interval(drawn[..., at]) for at in range(drawn.shape[-1])])
    ends = ends[~np.isnan(ends[:, 0])]
    return float(((ends[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[:, 1])).mean())
