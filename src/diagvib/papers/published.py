"""What numbers of any paper have in common."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd


def is_comparable(runs: pd.DataFrame) -> bool:
    """Whether anything ran, and everything that ran used the papers' sources."""
    ok = runs[runs["status"] == "ok"]
    return bool(len(ok)) and bool(ok["comparable"].astype(bool).all())


def matching(paper: pd.DataFrame, conditions: Mapping) -> Iterator[dict]:
    matches = np.logical_and.reduce([paper[key] == value for key, value in conditions.items()])
    yield from paper[matches].to_dict("records")
