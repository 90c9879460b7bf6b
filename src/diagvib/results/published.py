"""The papers' numbers beside ours: each set of metrics knows those of its paper."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.studies.known_studies import KnownStudies


def beside_papers(
    metrics: pd.DataFrame,
    runs: pd.DataFrame,
    known_studies: KnownStudies,
    baselines: Mapping[str, dict],
) -> pd.DataFrame:
    """The table `metrics` with paper, difference (ours minus the paper's), printed and note.

    They are empty where no paper has a number for this scene or study, binding, model, method and
    selection rule (`MetricSet.paper_number`), or if the sources of the
    baseline's runs are not comparable. How the runs differ otherwise is in the table `comparison`.
    """
    rows = metrics.to_dict("records")
    comparable = {
        baseline
        for baseline, baseline_runs in runs.groupby("baseline")
        if is_comparable(baseline_runs)
    }
    paper_values: list[dict] = [{} for _ in rows]
    for name, metric_set in METRIC_SETS.items():
        positions = [
            position
            for position, row in enumerate(rows)
            if row["metric_set"] == name and row["baseline"] in comparable
        ]
        numbers = metric_set.paper_numbers(
            [rows[position] for position in positions], known_studies, baselines
        )
        for position, number in zip(positions, numbers, strict=True):
            paper_values[position] = number
    paper = np.array([entry.get("paper", np.nan) for entry in paper_values], dtype=float)
    return metrics.assign(
        paper=paper,
        difference=metrics["mean"] - paper,
        printed=[entry.get("printed", "") for entry in paper_values],
        note=[
            entry.get("note") or row["note"] for entry, row in zip(paper_values, rows, strict=True)
        ],
    )


def is_comparable(runs: pd.DataFrame) -> bool:
    """Whether anything ran, and everything that ran used the papers' sources."""
    ok = runs[runs["status"] == "ok"]
    return bool(len(ok)) and bool(ok["comparable"].astype(bool).all())
