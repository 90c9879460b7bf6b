"""The benchmark's numbers (paper, Sec. 3.4): a run's accuracies, and their aggregates over cues and
samples."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from diagvib.training.accuracy import mean_per_class_accuracy, per_class_accuracy

__all__ = [
    "Estimate",
    "accuracy_array",
    "estimate",
    "faavg",
    "famin",
    "mean_per_class_accuracy",
    "paired_change",
    "per_class_accuracy",
]


class Estimate(float):
    """A mean over dataset samples with its uncertainty; used as a number, it is the mean.

    stderr: standard error of the mean (ddof 1: the divisor is n - 1, nan for n < 2; the paper does
    not state its divisor). n: the number of samples that counted. Unpacks as `mean, stderr, n =
    estimate`.
    """

    stderr: float
    n: int

    def __new__(cls, mean: float, stderr: float, n: int) -> "Estimate":
        self = super().__new__(cls, mean)
        self.stderr, self.n = float(stderr), int(n)
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

    def __getnewargs__(self) -> tuple[float, float, int]:
        return self.mean, self.stderr, self.n

    def __repr__(self) -> str:
        return f"Estimate(mean={self.mean:.6g}, stderr={self.stderr:.6g}, n={self.n})"


def estimate(values: np.ndarray) -> Estimate:
    """Mean, standard error (ddof 1) and n of float[samples]; NaN is a missing run and is left
    out."""
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    n = len(values)
    mean = values.mean() if n else np.nan
    stderr = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return Estimate(mean, stderr, n)


def accuracy_array(runs: pd.DataFrame, values: pd.Series) -> np.ndarray:
    """float[samples, cues] of one (study, baseline, target) for the functions below, NaN where a
    run is missing.

    runs: columns sample, cue; values: one per run, in the same order.
    """
    samples, rows = np.unique(runs["sample"].to_numpy(), return_inverse=True)
    cues, columns = np.unique(runs["cue"].to_numpy(dtype=str), return_inverse=True)
    acc = np.full((len(samples), len(cues)), np.nan)
    acc[rows, columns] = values
    return acc


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


def paired_change(acc: np.ndarray, reference: np.ndarray) -> Estimate:
    """Mean over samples of the mean over cues of paired differences, a study's minus a reference
    study's (Table 2).

    Its `.std`, over the samples' means over the cues with ddof 1, is compared with the paper's
    spread, which is taken to be the same; the paper does not state its ddof. acc, reference:
    float[samples, cues] `ood` accuracies, rows and columns in the same order, NaN where a run is
    missing.
    """
    return faavg(acc - reference)


def _checked(acc: np.ndarray) -> np.ndarray:
    acc = np.asarray(acc, dtype=np.float64)
    if acc.ndim != 2 or acc.shape[1] == 0:
        raise ValueError(
            f"accuracies must be [samples, cues] with at least one cue, not of shape {acc.shape}"
        )
    return acc
