"""The paper's tables: its numbers, and ours in the same layout (Tables 2 and A2-A9)."""

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.results.known_studies import KnownStudies
from diagvib.results.uncertainty import sample_interval

# The number of possible cues for a target in the paper: all other factors. FAAvg over fewer cues is
# a different number.
PAPER_CUES = 5

METRIC_TITLES = {
    "faavg": "FAAvg: mean over cues of the accuracy where the shortcut misleads",
    "famin": "FAMin: the worst cue",
    "id_accuracy": "In-distribution accuracy, mean over cues (not in the paper)",
}


@cache
def read_paper_tables() -> pd.DataFrame:
    """Every number of the paper's Tables 2 and A2-A9, as fractions.

    Columns: table (2, A2 ...), study, baseline, target, metric (faavg | famin, or a contrast's),
    paper_mean, paper_spread, spread_kind (stderr; of a contrast std). One row per key.
    """
    raw = pd.read_csv(definition_path("papers/diagvib6.csv"))
    return pd.DataFrame(
        {
            "table": raw["table"].str.removeprefix("table_").str.upper(),
            "study": raw["study"].str.lower(),
            "baseline": raw["baseline"],
            "target": raw["factor"],
            "metric": raw["metric"],
            "paper_mean": raw["mean_percent"] / 100,
            "paper_spread": raw["spread_percent"] / 100,
            "spread_kind": raw["spread_kind"],
        }
    )


def beside_paper(rows: pd.DataFrame, spread: str, comparable: bool) -> pd.DataFrame:
    """Add paper_mean, paper_{spread} and difference (ours minus the paper's) to tidy rows.

    rows: columns study, baseline, target, metric, cues (0: a study without them), mean. The columns
    stay empty if the paper has no number, if fewer cues than the paper's were configured, or if the
    runs' sources are not comparable.
    """
    paper = read_paper_tables().drop(columns=["table", "spread_kind"])
    joined = rows.merge(paper, on=["study", "baseline", "target", "metric"], how="left")
    same = joined["cues"].isin([0, PAPER_CUES]) & comparable
    joined[["paper_mean", "paper_spread"]] = joined[["paper_mean", "paper_spread"]].where(same)
    joined["difference"] = joined["mean"] - joined["paper_mean"]
    return joined.rename(columns={"paper_spread": f"paper_{spread}"})


def metric_titles(known: KnownStudies) -> dict[str, str]:
    """Titles of the metrics for readers: those of the set `shortcut`, then the contrasts."""
    return METRIC_TITLES | {metric: contrast.title for metric, contrast in known.contrasts.items()}


def of_paper(studies: Iterable[str]) -> bool:
    """Whether the paper has numbers for any of these studies."""
    return not set(read_paper_tables()["study"]).isdisjoint(studies)


def percent(mean: float, spread: float, n: int, expected: int, change: bool = False) -> str:
    """`41.2 ± 2.0`, with n where it matters: `(n = 1)`, `(n = 4 of 5)`. `-` if nothing ran.

    A spread that would be printed as 0.0 is left out, since samples that are all alike do not show
    that others are; of an accuracy near 0 or 100 %, the bound is given: `100.0 (≥ 88.4)`. change:
    the mean is a difference of accuracies.
    """
    if n == 0:
        return "-"
    text, notes = f"{100 * mean:.1f}", [f"n = {n:.0f} of {expected:.0f}"] if n < expected else []
    if spread >= 0.0005:
        text += f" ± {100 * spread:.1f}"
    else:
        low, high = (math.nan, math.nan) if change else sample_interval(np.full(int(n), mean))
        bound = [] if math.isnan(low) else [interval(low, high)]
        notes = bound + (notes or ([] if bound else [f"n = {n:.0f}"]))
    return f"{text} ({'; '.join(notes)})" if notes else text


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


def paper_percent(mean: float, spread: float) -> str:
    """With the paper's rounding: `41 ± 2`."""
    return f"{100 * mean:.0f} ± {100 * spread:.0f}"


def describe_missing(runs: pd.DataFrame) -> list[str]:
    """One line per kind of missing run, naming its runs; empty if every expected run is complete.

    runs: the frame of `read_runs.collect_runs`.
    """
    lines = []
    configured = runs.groupby(["baseline", "study"], sort=False).size()
    missing = runs[runs["status"] != "ok"]
    for (baseline, study, status, reason), group in missing.groupby(
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


def with_paper(names: list[str], ours: list[str], theirs: list[str]) -> list[list[str]]:
    """A line of texts and, below it, the paper's, if it has any."""
    return [[*names, *ours], *([["paper", *[""] * (len(names) - 1), *theirs]] if theirs else [])]
