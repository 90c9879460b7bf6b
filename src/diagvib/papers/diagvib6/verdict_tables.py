"""The verdicts for readers: sentences and tables."""

from collections.abc import Iterator

import pandas as pd

from diagvib.papers.diagvib6.agreement import (
    agreement_sentence,
    rule_sentence,
    simulated_sentence,
)
from diagvib.papers.diagvib6.verdicts import COMPARED, LEAST_SAMPLES, MARGIN, verdict_sentence
from diagvib.results.reader_tables import Frames, Table, points
from diagvib.studies.known_studies import KnownStudies

VERDICT = "Comparison with the paper"
MARKED = (
    "A mark after our number compares it with the paper's: `=` agrees, the whole 95 % interval of the difference lies "
    f"within {100 * MARGIN:.0f} points; `≠` differs, it reaches beyond that and excludes zero; `?` cannot tell, neither "
    f"of these or fewer than {LEAST_SAMPLES} samples. The paper states neither the divisor of its spreads nor what the "
    "standard deviation in its Table 2 is taken over; here it is that of paired differences over the samples."
)


def verdict_found(comparison: pd.DataFrame) -> list[str]:
    """How many cells agree with the paper's, and why others cannot be compared."""
    reason_counts = comparison.loc[
        comparison["verdict"] == "not comparable", "reason"
    ].value_counts()
    reasons = [
        f"Not comparable, {count} cell{'s' * (count > 1)}: {reason}."
        for reason, count in reason_counts.items()
    ]
    return [verdict_sentence(comparison), *reasons]


def verdict_tables(tables: Frames, known_studies: KnownStudies) -> Iterator[Table]:
    """No tables if no cell can be compared."""
    comparison, agreement = tables["comparison"], tables["agreement"]
    if not comparison["verdict"].isin(COMPARED).any():
        return
    sentences = verdict_found(comparison)
    if len(agreement):
        sentences += [agreement_sentence(agreement), rule_sentence()]
    sentences += [MARKED, simulated_sentence()]
    # Of the smallest groups, those that differ.
    smallest = agreement["by"].str.contains(",", regex=False).astype(bool)
    stated = agreement[~smallest | (agreement["statement"] == "differs")]
    rows = [
        [
            r.by,
            r.name,
            str(r.cells),
            points(r.mean_difference) if r.by != "spread" else "-",
            f"{r.score:.2f}",
            f"{r.usual:.2f}",
            f"{r.p:.3f}",
            r.statement,
        ]
        for r in stated.itertuples()
    ]
    heads = ["by", "name", "compared", "mean difference", "score", "90 % of honest below", "p"]
    heads += ["statement"]
    yield Table("All cells together", heads, rows, section=VERDICT, introduction=sentences)
    cells_with_runs = comparison[comparison["n"] > 0]
    title = f"Cell by cell: {len(cells_with_runs)} cells of the paper's {len(comparison)}"
    heads = ["table", "study", "baseline", "factor", "metric", "ours", "paper", "difference"]
    heads += ["±", "verdict", "remarks"]
    rows = [
        [
            r.table,
            known_studies.title(r.study),
            r.baseline,
            r.target,
            r.metric,
            f"{100 * r.ours:z.1f}",
            f"{100 * r.paper:.0f}",
            points(r.difference),
            "-" if r.uncertainty != r.uncertainty else f"{100 * r.uncertainty:.1f}",
            r.verdict,
            "; ".join(filter(None, (r.reason, r.mentions))),
        ]
        for r in cells_with_runs.itertuples()
    ]
    yield Table(title, heads, rows, section=VERDICT, introduction=sentences, folded=True)
