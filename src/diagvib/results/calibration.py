"""Calibration: how well predicted probabilities match accuracy."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.results.metric_sets.metric_set import (
    concatenated,
    of_all_bindings,
    over_samples,
    pivot,
)
from diagvib.results.reader_tables import Table, of_samples
from diagvib.studies.known_studies import KnownStudies

SET = "calibration"  # in the column metric_set
TITLE = "Calibration"
BINS = 15
_ECE = "_ece"
_INTRODUCTION = [
    f"Expected calibration error of the predicted class, {BINS} bins of equal width (Guo et al., 2017): the mean "
    "absolute difference between a bin's accuracy and its mean probability, weighted by its images; in percent, mean ± "
    "standard error over the {samples}."
]


def is_calibration(name: str) -> bool:
    """Whether a column of runs is a calibration error."""
    return name.endswith(_ECE)


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
    images = {"ece": slice(None)}
    images |= {f"{name}{_ECE}": group == name for name in dict.fromkeys(group.tolist())}
    return {
        name: calibration_error(confidence[rows], correct[rows]) for name, rows in images.items()
    }


def calibration(runs: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """Rows for the table `metrics`. runs: as from `read_runs`."""
    parts = []
    for _, study_runs in runs.groupby("study", sort=False):
        columns = [
            name for name in study_runs if is_calibration(name) and study_runs[name].notna().any()
        ]
        parts.append(
            over_samples(study_runs, columns, baselines, {}, dict.fromkeys(columns, (0, 1)))
        )
    return concatenated(parts, []).assign(metric_set=SET, note="")


def calibration_sentence(rows: pd.DataFrame, known_studies: KnownStudies) -> str:
    """The study and test group in which a baseline's probabilities are furthest off; empty if there is none."""
    means = of_all_bindings(rows[(rows["study"] != "") & rows["mean"].notna()])
    if means.empty:
        return ""
    worst = means.loc[means["mean"].idxmax()]
    pool = f" of {len(means)} measured" if len(means) > 1 else ", as measured"
    return (
        f"Worst calibrated{pool}: {worst['baseline']} in {known_studies.title(worst['study'])}, test group "
        f"{worst['metric'].removesuffix(_ECE)}. Its probabilities differ from its accuracy by "
        f"{100 * worst['mean']:.0f} points on average."
    )


def calibration_tables(rows: pd.DataFrame, known_studies: KnownStudies) -> Iterator[Table]:
    """A table for each study, with a column for each test group. rows: from `calibration`."""
    for study, study_rows in rows.groupby("study", sort=False):
        heads = {name: name.removesuffix(_ECE) for name in study_rows["metric"].unique()}
        text = partial(of_samples, change=True)
        lines = pivot(of_all_bindings(study_rows), "metric", heads, text)
        title = known_studies.title(study)
        yield Table(title, *lines, [], TITLE, _INTRODUCTION, folded=True)
