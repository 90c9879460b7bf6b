"""The papers' numbers beside ours."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from diagvib.papers.diagvib6 import published as diagvib6
from diagvib.papers.imagenet_w import published as imagenet_w
from diagvib.papers.published import is_comparable
from diagvib.papers.spawrious import published as spawrious
from diagvib.papers.whac_a_mole import published as whac_a_mole
from diagvib.studies.known_studies import KnownStudies

# Set of metrics -> the paper's number for a row of it.
_PAPERS = {
    "shortcut": diagvib6.paper_number,
    "gaps": whac_a_mole.paper_number,
    "average": spawrious.paper_number,
    "watermark": imagenet_w.paper_number,
}


def beside_papers(
    metrics: pd.DataFrame,
    runs: pd.DataFrame,
    known_studies: KnownStudies,
    baselines: Mapping[str, dict],
) -> pd.DataFrame:
    """The table `metrics` with paper, difference (ours minus the paper's), printed and note.

    They are empty where no paper has a number for this scene or study, binding, model, method and
    selection rule (for DiagViB-6: study, target and baseline's name), or if the sources of the
    baseline's runs are not comparable. How the runs differ otherwise is in the table `comparison`.
    """
    rows = metrics.to_dict("records")
    comparable = {
        baseline
        for baseline, baseline_runs in runs.groupby("baseline")
        if is_comparable(baseline_runs)
    }
    paper_values = [
        _PAPERS[row["metric_set"]](row, known_studies, baselines.get(row["baseline"], {}))
        if row["baseline"] in comparable and row["metric_set"] in _PAPERS
        else {}
        for row in rows
    ]
    spawrious.add_means(rows, paper_values)
    paper = np.array([entry.get("paper", np.nan) for entry in paper_values], dtype=float)
    return metrics.assign(
        paper=paper,
        difference=metrics["mean"] - paper,
        printed=[entry.get("printed", "") for entry in paper_values],
        note=[
            entry.get("note") or row["note"] for entry, row in zip(paper_values, rows, strict=True)
        ],
    )
