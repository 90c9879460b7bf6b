"""Models that the paper lacks, or whose runs cannot be compared with it, next to the paper's nine:
for orientation.

A reference is not a reproduction: protocol, sources and model may all differ.
"""

from itertools import chain

import pandas as pd

from diagvib.reproduction.published import PAPER_CUES, read_paper_tables
from diagvib.reproduction.verdicts import COMPARED

# Represents the nine where only one is named: the authors published its settings.
FIRST = "resnet18"
KEYS = ["study", "baseline", "target", "metric"]
REFERENCE = [*KEYS, "ours", "paper_low", "paper_high", "paper_resnet18", "protocol"]


def reference_table(metrics: pd.DataFrame, comparison: pd.DataFrame, judged: dict) -> pd.DataFrame:
    """The numbers of baselines without a compared cell, each next to the range of the paper's nine.

    metrics: the rows of the set `shortcut` in the table `metrics`; comparison: of
    `verdicts.comparison_table`; judged: of `comparability.judge_runs`. Only averages over the
    paper's cues. Columns: REFERENCE; protocol: what differed from the paper's.
    """
    compared = set(comparison.loc[comparison["verdict"].isin(COMPARED), "baseline"])
    paper = read_paper_tables().groupby(["study", "target", "metric"], sort=False)
    paper = {key: rows.set_index("baseline")["paper_mean"] for key, rows in paper}
    rows = []
    for row in metrics.itertuples(index=False):
        theirs = paper.get((row.study, row.target, row.metric))
        whole = row.cues in (0, PAPER_CUES)
        if theirs is None or row.baseline in compared or not whole or not row.n:
            continue
        rows.append(
            {
                **{key: getattr(row, key) for key in KEYS},
                "ours": row.mean,
                "paper_low": theirs.min(),
                "paper_high": theirs.max(),
                "paper_resnet18": theirs[FIRST],
                "protocol": "; ".join(
                    chain(*judged.get((row.baseline, row.study, row.target), ()))
                ),
            }
        )
    return pd.DataFrame(rows, columns=REFERENCE)


def reference_note(reference: pd.DataFrame) -> str:
    """A sentence for every place that shows the reference: that it is one, and how it differs from
    the paper."""
    parts = [
        "For orientation, not a reproduction: models without a comparable cell, next to the paper's nine"
    ]
    sources = sorted(set(reference["sources"]) - {"official"})
    parts += (
        [f"From {' and '.join(sources)} sources, so the images are not the paper's"]
        if sources
        else []
    )
    for protocol, rows in reference[reference["protocol"] != ""].groupby("protocol", sort=False):
        parts.append(f"{', '.join(rows['baseline'].unique())}: {protocol}")
    return ". ".join(parts) + "."
