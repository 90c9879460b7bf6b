"""The accuracy of one run on one group of test images (paper, Sec. 3.4): mean over classes of
per-class accuracy.

Separate from `metrics`, so that changing how runs are aggregated is no reason to train them again.
"""

import numpy as np
import pandas as pd
import pyarrow as pa


def per_class_accuracy(labels: np.ndarray, predictions: np.ndarray) -> dict:
    """Share of correct predictions per class, over the classes present in `labels`, in order of
    their names.

    labels, predictions: [N] of any comparable type. ValueError if empty, of unequal length, or with
    missing labels.
    """
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.ndim != 1 or labels.shape != predictions.shape:
        raise ValueError(
            f"labels {labels.shape} and predictions {predictions.shape} must be two lists of equal length"
        )
    if len(labels) == 0:
        raise ValueError("no labels: the accuracy of nothing is undefined")
    codes, names = pd.factorize(labels, sort=True)
    if (codes < 0).any():
        raise ValueError(f"label {int(np.argmin(codes))} is missing (None or NaN)")
    totals, hits = np.bincount(codes), np.bincount(codes, weights=labels == predictions)
    return dict(zip(names.tolist(), (hits / totals).tolist(), strict=True))


def mean_per_class_accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """acc_ij: mean over the classes present in `labels` of per-class accuracy, over the whole group
    at once.

    labels, predictions: [N] of any comparable type. ValueError if empty, of unequal length, or with
    missing labels. (Paper, Sec. 3.4.)
    """
    return float(np.mean(list(per_class_accuracy(labels, predictions).values())))


def group_metrics(table: pa.Table, target: str, predicted: np.ndarray) -> dict:
    """Per group present: mean per-class accuracy (paper, Sec. 3.4), number of images, and each
    class's accuracy. predicted: the classes' names, [N]."""
    group, label = (table[c].to_numpy(zero_copy_only=False) for c in ("group", target))
    metrics = {}
    for name in sorted(set(group)):
        members = group == name
        per_class = per_class_accuracy(label[members], predicted[members])
        accuracy = float(np.mean(list(per_class.values())))
        metrics[name] = {"accuracy": accuracy, "n": int(members.sum()), "per_class": per_class}
    return metrics
