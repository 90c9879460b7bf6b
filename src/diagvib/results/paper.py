"""The paper's tables: its numbers, and ours set in the same form (Tables 2 and A2-A9)."""

import math

import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.scenes.digits.factors import FACTORS

# Every pair of the paper: a target factor's five possible cues. FAAvg over fewer cues is another number.
PAPER_CUES = len(FACTORS) - 1

METRIC_TITLES = {
    "faavg": "FAAvg: mean over cues of the accuracy where the shortcut misleads",
    "famin": "FAMin: the worst cue",
    "id_accuracy": "In-distribution accuracy, mean over cues (not in the paper)",
    "improvement_over_zgo": "CHGO minus ZGO: what two classes without a shortcut lend to the third",
}


def read_paper_tables() -> pd.DataFrame:
    """Every number of the paper's Tables 2 and A2-A9, as fractions.

    Columns: table (2, A2 ...), study, baseline, target, metric (faavg | famin | improvement_over_zgo), paper_mean,
    paper_spread, spread_kind (stderr; for improvement_over_zgo std). One row per key.
    """
    raw = pd.read_csv(definition_path("paper_tables.csv"))
    return pd.DataFrame({
        "table": raw["table"].str.removeprefix("table_").str.upper(),
        "study": raw["study"].str.lower(), "baseline": raw["baseline"], "target": raw["factor"],
        "metric": raw["metric"], "paper_mean": raw["mean_percent"] / 100, "paper_spread": raw["spread_percent"] / 100,
        "spread_kind": raw["spread_kind"],
    })


def beside_paper(rows: pd.DataFrame, spread: str, comparable: bool) -> pd.DataFrame:
    """Add paper_mean, paper_{spread} and difference (ours minus the paper's) to tidy rows.

    rows: columns study, baseline, target, metric, cues, mean. The columns stay empty where the paper has no number,
    where fewer cues than the paper's were configured, or where the runs' sources are not comparable.
    """
    paper = read_paper_tables().drop(columns=["table", "spread_kind"])
    joined = rows.merge(paper, on=["study", "baseline", "target", "metric"], how="left")
    same = ((joined["cues"] == PAPER_CUES) | (joined["study"] == "zso")) & comparable
    joined[["paper_mean", "paper_spread"]] = joined[["paper_mean", "paper_spread"]].where(same)
    joined["difference"] = joined["mean"] - joined["paper_mean"]
    return joined.rename(columns={"paper_spread": f"paper_{spread}"})


def percent(mean: float, spread: float, n: int, expected: int) -> str:
    """`41.2 ± 2.0`, with n where it says something: `(n = 1)`, `(n = 4 of 5)`. `-` where nothing ran."""
    if n == 0:
        return "-"
    text = f"{100 * mean:.1f}" + ("" if math.isnan(spread) else f" ± {100 * spread:.1f}")
    if n < expected:
        return f"{text} (n = {n:.0f} of {expected:.0f})"
    return text if n > 1 else f"{text} (n = 1)"


def points(change: float) -> str:
    """A change of accuracy in percentage points: `+3.1`; `-` where it is unknown."""
    return "-" if math.isnan(change) else f"{100 * change:+z.1f}"


def paper_percent(mean: float, spread: float) -> str:
    """The paper's rounding: `41 ± 2`."""
    return f"{100 * mean:.0f} ± {100 * spread:.0f}"


def describe_holes(runs: pd.DataFrame) -> list[str]:
    """One line per kind of hole among expected runs, each naming its runs; empty when every run is there.

    runs: the frame of `tables.collect_runs`.
    """
    lines = []
    configured = runs.groupby(["baseline", "study"], sort=False).size()
    holes = runs[runs["status"] != "ok"]
    for (baseline, study, status, reason), group in holes.groupby(
            ["baseline", "study", "status", "reason"], sort=False, dropna=False):
        if len(group) == configured[baseline, study]:
            which = f"all {len(group)} runs"
        else:
            which = "; ".join(f"{binding} {_samples(rows)}" for binding, rows in group.groupby("binding", sort=False))
        lines.append(f"{baseline}, {study}: {which}: {status} ({reason})")
    return lines


def _samples(rows: pd.DataFrame) -> str:
    names = ", ".join(str(s) for s in rows["sample"])
    return f"sample{'s' if len(rows) > 1 else ''} {names}"
