"""Public names: the metrics of the paper."""

from collections.abc import Callable
from functools import wraps

import numpy as np
import pandas as pd

from diagvib.results.metrics import faavg, famin
from diagvib.results.uncertainty import Estimate
from diagvib.training import accuracy

__all__ = ["Estimate", "faavg", "famin", "mean_per_class_accuracy", "per_class_accuracy"]


def _of_one_kind(function: Callable) -> Callable:
    """ValueError for numbers beside names, which never equal them, and for missing predictions."""

    @wraps(function)
    def checked(labels: np.ndarray, predictions: np.ndarray):
        kinds = [pd.api.types.infer_dtype(np.ravel(part)) for part in (labels, predictions)]
        if len({*kinds}) > 1 and not {"string", "bytes"}.isdisjoint(kinds):
            raise ValueError(
                f"labels are {kinds[0]} and predictions {kinds[1]}, so none would be right; give both "
                "as names of classes, or both as their numbers"
            )
        if (missing := pd.isna(np.asarray(predictions))).any():
            raise ValueError(f"prediction {int(missing.argmax())} is missing (None or NaN)")
        return function(labels, predictions)

    return checked


mean_per_class_accuracy = _of_one_kind(accuracy.mean_per_class_accuracy)
per_class_accuracy = _of_one_kind(accuracy.per_class_accuracy)
