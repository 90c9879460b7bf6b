"""Accuracies with a known mean, to see how often an interval contains it and how often a verdict is
a false alarm.

A dataset sample's accuracy in a cell follows a beta or a logistic-normal law around the cell's mean;
the cells of a sample are correlated through a Gaussian copula, and what they do not share is the
noise of training; some runs may fail; what is measured has the binomial noise of the test images.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, ndtr, ndtri

# Test images of a group, and the correlation of sample effects between studies, in the published
# runs (docs/results/laptop/runs.csv).
IMAGES, SHARED = 900, 0.79
# Variance of the samples as if each were this many images: m (1 - m) / 7.6 around a cell's mean m, of
# P_ij on misleading cues in those runs, by moments, without the test images' noise.
FITTED = 7.6
CHANCE = 1 / 3


class World(NamedTuple):
    """How dataset samples differ. spread: standard deviation of a logistic-normal law, in logits; 0:
    the beta law, of `worth` images; failed: the share of the first cell's runs that are at chance."""

    worth: float = FITTED
    spread: float = 0
    shared: float = SHARED
    images: int = IMAGES
    failed: float = 0


AS_FITTED = World()


def accuracies(
    generator: np.random.Generator, means, shape: tuple[int, ...], world: World = AS_FITTED
) -> np.ndarray:
    """float[cells, *shape]: measured accuracies of cells with these means, without failed runs."""
    common, own = generator.standard_normal(shape), generator.standard_normal((len(means), *shape))
    level = ndtr(world.shared**0.5 * common + (1 - world.shared) ** 0.5 * own)
    return _measured(generator, means, level, world)


def accuracies_by_seed(
    generator: np.random.Generator, means, shape: tuple[int, int, int], noise: float, world: World
) -> np.ndarray:
    """float[cells, samples, seeds, times]: the same of runs with several seeds on each sample. noise:
    the share of the variance between runs that seeds make; each seed of a sample draws its own."""
    samples, _, times = shape
    common = generator.standard_normal((samples, 1, times))
    own = generator.standard_normal((len(means), samples, 1, times))
    of_seeds = generator.standard_normal((len(means), *shape))
    of_sample = world.shared**0.5 * common + (1 - world.shared) ** 0.5 * own
    level = ndtr((1 - noise) ** 0.5 * of_sample + noise**0.5 * of_seeds)
    return _measured(generator, means, level, world)


def _measured(generator: np.random.Generator, means, level: np.ndarray, world: World) -> np.ndarray:
    """Accuracies at these quantiles of the cells' laws, without failed runs."""
    shape = level.shape[1:]
    law = np.stack([_quantiles(mean, world, each) for mean, each in zip(means, level, strict=True)])
    if world.failed:
        law[0][generator.random(shape) < world.failed] = CHANCE
    return generator.binomial(world.images, law) / world.images


def _quantiles(mean: float, world: World, level: np.ndarray) -> np.ndarray:
    if not world.spread:
        return betaincinv(mean * (world.worth - 1), (1 - mean) * (world.worth - 1), level)
    at, weights = hermegauss(60)

    def beyond(middle: float) -> float:
        return weights @ expit(middle + world.spread * at) / weights.sum() - mean

    return expit(brentq(beyond, -20, 20) + world.spread * ndtri(level))


def truths(means: Sequence[float], world: World) -> np.ndarray:
    """The means of cells, with the first one's failed runs."""
    failed = np.array([world.failed, *[0] * (len(means) - 1)])
    return (1 - failed) * means + failed * CHANCE


def share(interval: Callable, drawn: np.ndarray, truth: float) -> float:
    """How often the interval of float[..., samples, times] contains the truth, of those that have
    one."""
    ends = np.array([interval(drawn[..., at]) for at in range(drawn.shape[-1])])
    ends = ends[~np.isnan(ends[:, 0])]
    return float(((ends[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[:, 1])).mean())
