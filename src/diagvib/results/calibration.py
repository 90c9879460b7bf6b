"""Calibration: how far the probabilities of predictions are from how often they are right."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets.metric_set import (
    concatenated,
    of_all_bindings,
    over_samples,
    pivot,
)
from diagvib.results.table import Table, of_samples

SET = "calibration"  # in the column metric_set
TITLE = "Calibration"
BINS = 15
_ECE = "_ece"
_ABOUT = [
    f"Expected calibration error of the predicted class, {BINS} bins of equal width (Guo et al., 2017): the mean "
    "absolute difference between a bin's accuracy and its mean probability, weighted by its images; in percent, mean ± "
    "standard error over the {samples}."
]


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """confidence: the probability of each predicted class, float[N]; correct: bool[N]."""
    bins = np.ceil(np.clip(confidence, 0, 1) * BINS).astype(int)
    return float(np.abs(np.bincount(bins, correct - confidence)).sum() / len(bins))


def calibration_errors(predictions: pa.Table, target: str) -> dict[str, float]:
    """`ece` of all images, and `{group}_ece` of each test group. predictions: columns group, target,
    prediction, confidence."""
    # As plain strings: a class that no image is predicted as is no category of the predictions.
    group, label, predicted = (
        np.array(predictions[name].to_pylist()) for name in ("group", target, "prediction")
    )
    confidence, correct = predictions["confidence"].to_numpy(), label == predicted
    every = {"ece": slice(None)}
    every |= {f"{name}{_ECE}": group == name for name in dict.fromkeys(group.tolist())}
    return {name: calibration_error(confidence[at], correct[at]) for name, at in every.items()}


def calibration(runs: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """Rows for the table `metrics`. runs: as from `read_runs`."""
    parts = []
    for _, own in runs.groupby("study", sort=False):
        known = [name for name in own if name.endswith(_ECE) and own[name].notna().any()]
        parts.append(over_samples(own, known, baselines, {}, dict.fromkeys(known, (0, 1))))
    return concatenated(parts, []).assign(metric_set=SET, note="")


def calibration_sentence(rows: pd.DataFrame, known: KnownStudies) -> str:
    """The study and test group in which a baseline's probabilities are furthest off; empty if there is none."""
    ran = of_all_bindings(rows[(rows["study"] != "") & rows["mean"].notna()])
    if ran.empty:
        return ""
    most = ran.loc[ran["mean"].idxmax()]
    return (
        f"Furthest off: {most['baseline']} in {known.title(most['study'])}, test group "
        f"{most['metric'].removesuffix(_ECE)}. On average, its probabilities are {100 * most['mean']:.0f} points away "
        "from how often it is right."
    )


def calibration_tables(rows: pd.DataFrame, known: KnownStudies) -> Iterator[Table]:
    """A table for each study, with a column for each test group. rows: from `calibration`."""
    for study, own in rows.groupby("study", sort=False):
        heads = {name: name.removesuffix(_ECE) for name in own["metric"].unique()}
        text = partial(of_samples, change=True)
        lines = pivot(of_all_bindings(own), "metric", heads, text)
        title = known.title(study)
        yield Table(title, *lines, [], TITLE, _ABOUT, folded=True)
