"""Labels beside the features of a view, in the columns of a file of float16."""

import torch
from torch import Tensor

_DIGITS = 2048


def label_columns(labels: Tensor) -> Tensor:
    """Labels int64[B] as float32[B, 2], which float16 keeps without rounding: from 2,049 on, it
    rounds whole numbers."""
    return torch.stack([labels // _DIGITS, labels % _DIGITS], 1).float()


def labels_in(columns: Tensor) -> Tensor:
    """The labels int64[B] of `label_columns`."""
    high, low = columns.long().unbind(1)
    return high * _DIGITS + low
