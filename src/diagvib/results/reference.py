"""Models that the paper lacks, or whose runs cannot be compared with it, next to the paper's nine:
for orientation.

A reference is not a reproduction: protocol, sources and model may all differ. It can show whether a
model falls for the same shortcuts, in the same order of factors, as those that the paper tried.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pandas as pd

from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import PAPER_CUES, read_paper_tables
from diagvib.results.verdicts import COMPARED

# Represents the nine where only one is named: the authors published its settings.
FIRST = "resnet18"
# The order of fewer factors is not worth a number.
LEAST_FACTORS = 4
KEYS = ["study", "baseline", "target", "metric"]
REFERENCE = [*KEYS, "ours", "paper_low", "paper_high", "paper_resnet18", "rank", "of", "protocol"]
LIKENESS = ["study", "baseline", "metric", "factors", "like", "pearson", "spearman"]


def reference_table(
    metrics: pd.DataFrame, contrasts: pd.DataFrame, comparison: pd.DataFrame, judged: dict
) -> pd.DataFrame:
    """The numbers of baselines without a compared cell, each next to the range of the paper's nine.

    metrics, contrasts: as of `shortcut.metrics_table` and `shortcut.contrasts_table`; comparison:
    of `verdicts.comparison_table`; judged: of `comparability.judge_runs`. Only averages over the
    paper's cues. Columns: REFERENCE; rank: ours among `of` numbers, 1 is the highest; protocol:
    what differed from the paper's.
    """
    compared = set(comparison.loc[comparison["verdict"].isin(COMPARED), "baseline"])
    columns = [*KEYS, "mean", "n", "cues"]
    ours = pd.concat(
        [table[columns] for table in (metrics, contrasts) if len(table)] or [metrics[columns]]
    )
    paper = read_paper_tables().groupby(["study", "target", "metric"], sort=False)
    paper = {key: rows.set_index("baseline")["paper_mean"] for key, rows in paper}
    rows = []
    for row in ours.itertuples(index=False):
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
                "rank": 1 + int((theirs > row.mean).sum()),
                "of": 1 + len(theirs),
                "protocol": "; ".join(
                    chain(*judged.get((row.baseline, row.study, row.target), ()))
                ),
            }
        )
    return pd.DataFrame(rows, columns=REFERENCE)


def likeness_table(reference: pd.DataFrame) -> pd.DataFrame:
    """How alike two models order the factors: a row for each of the paper's nine, by study,
    baseline and metric.

    Pearson's and Spearman's correlation over the factors, of which there are at least
    LEAST_FACTORS; NaN where either side is the same for all.
    """
    paper = read_paper_tables().pivot(
        index=["study", "baseline", "metric"], columns="target", values="paper_mean"
    )
    rows = []
    for (study, baseline, metric), own in reference.groupby(
        ["study", "baseline", "metric"], sort=False
    ):
        if len(own) < LEAST_FACTORS:
            continue
        # Rounded, since computed means of equal accuracies may differ by about 1e-17.
        ours = own.set_index("target")["ours"].round(9)
        for like in dict.fromkeys([FIRST, *paper.index.get_level_values("baseline")]):
            theirs = paper.loc[(study, like, metric), ours.index].astype(float)
            rows.append(
                {
                    "study": study,
                    "baseline": baseline,
                    "metric": metric,
                    "factors": len(own),
                    "like": like,
                    "pearson": _correlation(ours, theirs),
                    "spearman": _correlation(ours.rank(), theirs.rank()),
                }
            )
    return pd.DataFrame(rows, columns=LIKENESS)


def _correlation(a: pd.Series, b: pd.Series) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else np.nan


def reference_sentences(
    reference: pd.DataFrame, likeness: pd.DataFrame, known: KnownStudies = SHIPPED
) -> Iterator[str]:
    """A sentence for each baseline and study: its FAAvg next to resnet18's, and how alike they
    order the factors."""
    shown = reference[reference["metric"] == "faavg"]
    for (baseline, study), own in shown.groupby(["baseline", "study"], sort=False):
        own = own.sort_values("target", key=lambda names: names.map(known.factors([study]).index))
        yield (
            f"{baseline}, {known.title(study)}: {_percents(own['ours'])} for {', '.join(own['target'])}, "
            f"compared with {_percents(own['paper_resnet18'])} for the paper's {FIRST}"
            f"{_likeness(likeness, baseline, study)}."
        )


def _percents(values: pd.Series) -> str:
    return "/".join(f"{100 * value:.0f}" for value in values)


def _likeness(likeness: pd.DataFrame, baseline: str, study: str) -> str:
    own = likeness[
        (likeness["baseline"] == baseline)
        & (likeness["study"] == study)
        & (likeness["metric"] == "faavg")
    ]
    known = own[own["pearson"].notna()]
    first = known[known["like"] == FIRST]
    if not len(first):
        return ""
    row = first.iloc[0]
    order = (
        "the order of the factors is the same"
        if row["spearman"] > 0.999
        else f"the order of the factors is similar (Spearman {row['spearman']:.2f})"
        if row["spearman"] > 0.8
        else f"the order of the factors is different (Spearman {row['spearman']:.2f})"
    )
    return (
        f"; {order}, Pearson {row['pearson']:.2f}, over {row['factors']} factors (the paper's nine: "
        f"{known['pearson'].min():.2f} to {known['pearson'].max():.2f})"
    )


def reference_note(reference: pd.DataFrame) -> str:
    """What must be said wherever the reference is shown: that it is one, and what differs from the
    paper."""
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
