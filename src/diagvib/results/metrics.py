"""The benchmark's numbers (paper, Sec. 3.4): a run's accuracies, and their aggregates over cues and
samples."""

import numpy as np
import pandas as pd

from diagvib.results.uncertainty import Estimate, estimate


def accuracy_array(runs: pd.DataFrame, column: str) -> np.ndarray:
    """float[samples, seeds, cues] of one (study, baseline, target) for the functions below, NaN
    where a run is missing.

    runs: columns sample, seed, cue, and the one with their accuracies.
    """
    table = runs.pivot(index=["sample", "seed"], columns="cue", values=column)
    numbers = [level.sort_values() for level in table.index.levels]
    grid = table.reindex(pd.MultiIndex.from_product(numbers)).to_numpy(float)
    return grid.reshape(*map(len, numbers), -1)


def below_chance(accuracy: float | pd.Series, chance: float) -> bool | pd.Series:
    """Whether accuracies, a number or a column, are below chance; one at chance is not, even if a
    mean over samples has made its last digit too small."""
    return accuracy < chance - 1e-9


def faavg(acc: np.ndarray) -> Estimate:
    """FAAvg_i: mean over samples of the mean over cues.

    acc: float[samples, cues], or float[samples, seeds, cues], of which a sample has the mean of its
    seeds' results; NaN where a run is missing; a sample that lacks one is left out. ValueError for
    another shape, or without cues. (Paper, Sec. 3.4.)
    """
    return estimate(_checked(acc).mean(axis=-1))


def famin(acc: np.ndarray) -> Estimate:
    """FAMin_i: mean over samples of the worst cue's accuracy. Arguments, missing runs and errors as
    for `faavg`."""
    return estimate(_checked(acc).min(axis=-1))


def _checked(acc: np.ndarray) -> np.ndarray:
    acc = np.asarray(acc, dtype=np.float64)
    if acc.ndim not in (2, 3) or acc.shape[-1] == 0:
        raise ValueError(
            "accuracies must be [samples, cues] or [samples, seeds, cues] with at least one cue, not of "
            f"shape {acc.shape}"
        )
    return acc
