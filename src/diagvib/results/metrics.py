"""The benchmark's numbers (paper, Sec. 3.4): a run's accuracies, and their aggregates over cues and
samples."""

import numpy as np
import pandas as pd

from diagvib.results.uncertainty import Estimate, estimate


def accuracy_array(runs: pd.DataFrame, column: str) -> np.ndarray:
    """float[samples, cues] of one (study, baseline, target) for the functions below, NaN where a
    run is missing.

    runs: columns sample, cue, and the one with their accuracies.
    """
    return runs.pivot(index="sample", columns="cue", values=column).to_numpy(float)


def faavg(acc: np.ndarray) -> Estimate:
    """FAAvg_i: mean over samples of the mean over cues.

    acc: float[samples, cues], NaN where a run is missing; a sample that lacks a cue is left out.
    ValueError unless two-dimensional with at least one cue. (Paper, Sec. 3.4.)
    """
    return estimate(_checked(acc).mean(axis=1))


def famin(acc: np.ndarray) -> Estimate:
    """FAMin_i: mean over samples of the worst cue's accuracy. Arguments, missing runs and errors as
    for `faavg`."""
    return estimate(_checked(acc).min(axis=1))


def _checked(acc: np.ndarray) -> np.ndarray:
    acc = np.asarray(acc, dtype=np.float64)
    if acc.ndim != 2 or acc.shape[1] == 0:
        raise ValueError(
            f"accuracies must be [samples, cues] with at least one cue, not of shape {acc.shape}"
        )
    return acc
