"""Numbers and missing runs as texts, for tables and figures."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.results.uncertainty import image_interval, sample_interval


def percent(
    mean: float,
    spread: float,
    n: int,
    expected: int,
    change: bool = False,
    images: float = math.nan,
) -> str:
    """`41.2 ± 2.0`, with n where it matters: `(n = 1)`, `(n = 4 of 5)`. `-` if nothing ran.

    A spread that would be printed as 0.0 is left out, since samples that are all alike do not show
    that others are; of an accuracy near 0 or 100 %, the bound is given: `100.0 (≥ 88.4)`. change:
    the mean is a difference of accuracies. images: if known, the number in a sample; then a single
    one has the interval over its images, `11.1 (1.4 to 34.7; n = 1)`.
    """
    if n == 0:
        return "-"
    text, notes = f"{100 * mean:.1f}", [f"n = {n:.0f} of {expected:.0f}"] if n < expected else []
    if spread >= 0.0005:
        text += f" ± {100 * spread:.1f}"
    else:
        low, high = (math.nan, math.nan) if change else sample_interval(np.full(int(n), mean))
        if n == 1 and images > 0:
            low, high = image_interval(mean, images)
        bound = [] if math.isnan(low) else [interval(low, high)]
        notes = bound + (notes or ([f"n = {n:.0f}"] if n == 1 or not bound else []))
    return f"{text} ({'; '.join(notes)})" if notes else text


def of_samples(row: Mapping, change: bool = False) -> str:
    """`percent` of a row with a mean over dataset samples (`metric_set.NUMBERS`)."""
    numbers = (row[key] for key in ("mean", "stderr", "n", "expected"))
    return percent(*numbers, change, row.get("images", math.nan))


def points(change: float) -> str:
    """A change of accuracy in percentage points: `+3.1`; `-` if unknown."""
    return "-" if math.isnan(change) else f"{100 * change:+z.1f}"


def interval(low: float, high: float, change: bool = False) -> str:
    """A 95 % interval in percent: `41.2 to 43.0`, at the edge `≤ 1.9` or `≥ 98.1`; `n too small`
    if there is none. change: of a difference of accuracies: `-3.1 to +0.4`."""
    if math.isnan(low):
        return "n too small"
    if change:
        return f"{points(low)} to {points(high)}"
    low, high = round(low, 3), round(high, 3)
    if low > 0 and high < 1:
        return f"{100 * low:.1f} to {100 * high:.1f}"
    return f"≤ {100 * high:.1f}" if high < 1 else f"≥ {100 * low:.1f}" if low > 0 else "n too small"


def describe_missing(runs: pd.DataFrame) -> list[str]:
    """One line per kind of missing run, naming its runs; empty if every expected run is complete.

    runs: the frame of `read_runs.read_runs`.
    """
    return _described(runs, runs["status"] != "ok")


def describe_doubtful(runs: pd.DataFrame) -> list[str]:
    """The same of complete runs with a reason to distrust their numbers."""
    doubtful = (runs["status"] == "ok") & (runs["reason"].fillna("") != "")
    return _described(runs.assign(status="doubtful"), doubtful)


def _described(runs: pd.DataFrame, wanted: pd.Series) -> list[str]:
    lines = []
    configured = runs.groupby(["baseline", "study"], sort=False).size()
    for (baseline, study, status, reason), group in runs[wanted].groupby(
        ["baseline", "study", "status", "reason"], sort=False, dropna=False
    ):
        if len(group) == configured[baseline, study]:
            which = f"all {len(group)} runs" if len(group) > 1 else "the only run"
        else:
            which = "; ".join(
                f"{binding} {_samples(rows)}"
                for binding, rows in group.groupby("binding", sort=False)
            )
        lines.append(f"{baseline}, {study}: {which}: {status} ({reason})")
    return lines


def missing_runs(runs: pd.DataFrame, listed: Path) -> str:
    """One line about all missing and damaged runs, for the terminal; empty if there are none.
    listed: the file that names each."""
    missing = runs[runs["status"] != "ok"]
    if missing.empty:
        return ""
    counts = ", ".join(
        f"{baseline} {n:,}" for baseline, n in missing["baseline"].value_counts(sort=False).items()
    )
    return f"{len(missing):,} of {len(runs):,} runs are missing or damaged ({counts}); {listed} lists them"


def _samples(rows: pd.DataFrame) -> str:
    names = ", ".join(str(s) for s in rows["sample"])
    return f"sample{'s' if len(rows) > 1 else ''} {names}"
