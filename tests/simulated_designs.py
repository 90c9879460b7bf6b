"""Accuracies with a known mean, to see how often an interval contains it and how often a verdict is
a false alarm.

A dataset sample's accuracy in a cell follows a beta law, whose variance is m (1 - m) / worth around
the cell's mean m; the cells of a sample are correlated through a Gaussian copula; what is measured
has the binomial noise of the test images.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtr

from conftest import REPOSITORY

# Test images of a group, and the correlation of sample effects between studies, in the published
# runs (`test_the_law_is_that_of_the_published_runs`).
IMAGES, SHARED = 900, 0.79
# Variance of the samples as if each were this many images: of P_ij on misleading cues.
FITTED = 7.6


def published_cells() -> pd.DataFrame:
    """P_ij of the published runs: rows cells (study, target, cue), columns samples."""
    runs = pd.read_csv(REPOSITORY / "docs/results/laptop/runs.csv").dropna(subset="cue")
    return runs.pivot_table(
        index=["study", "target", "cue"], columns="sample", values="ood_accuracy"
    )


def fitted_worth(cells: np.ndarray) -> float:
    """The worth of float[cells, samples] by moments, without the test images' noise."""
    spread = cells.var(axis=1, ddof=1)
    chance = cells.mean(axis=1) * (1 - cells.mean(axis=1)) + spread / cells.shape[1]
    return (1 - 1 / IMAGES) / (spread.sum() / chance.sum() - 1 / IMAGES)


def accuracies(
    generator: np.random.Generator, means, shape: tuple[int, ...], worth: float = FITTED
) -> np.ndarray:
    """float[cells, *shape]: measured accuracies of cells with these means."""
    common, own = generator.standard_normal(shape), generator.standard_normal((len(means), *shape))
    level = ndtr(SHARED**0.5 * common + (1 - SHARED) ** 0.5 * own)
    mean = np.reshape(means, (-1, *[1] * len(shape)))
    law = betaincinv(mean * (worth - 1), (1 - mean) * (worth - 1), level)
    return generator.binomial(IMAGES, law) / IMAGES


def student(values: np.ndarray) -> tuple[float, float]:
    """The plain t interval of float[3 samples], for comparison."""
    half = 4.302653 * values.std(ddof=1) / 3**0.5
    return values.mean() - half, values.mean() + half


def share(interval: Callable, drawn: np.ndarray, truth: float) -> float:
    """How often the interval of float[..., samples, times] contains the truth, of those that have
    one."""
    ends = np.array([interval(drawn[..., at]) for at in range(drawn.shape[-1])])
    ends = ends[~np.isnan(ends[:, 0])]
    return float(((ends[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= ends[:, 1])).mean())
