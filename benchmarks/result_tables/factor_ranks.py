"""Which factor wins in committed runs, beside what the paper's tables say of it."""

from functools import cache

import numpy as np

from diagvib.papers.diagvib6.factor_ranks import factor_pairs, factor_ranks, factor_tables
from diagvib.results.reader_tables import Frames, interval, points
from diagvib.results.uncertainty import sample_interval
from diagvib.studies.known_studies import SHIPPED
from result_tables.committed import Row, runs, studies
from result_tables.diagvib6 import PAPER, accuracies, paper

# The paper's networks with random weights that are trained end to end on labels.
NETWORKS = (PAPER, "alexnet", "resnet50", "densenet161", "wide_resnet50_2")


@cache
def tidy_tables(folder: str) -> Frames:
    """The tables of committed runs that these are made from."""
    results = runs(folder).fillna({"cue": ""})
    return {
        "asymmetry": factor_pairs(results, SHIPPED),
        "ranking": factor_ranks(results, SHIPPED),
    }


def ranking_table(folder: str) -> list[Row]:
    return _readers_table(folder, 0)


def pairs_table(folder: str) -> list[Row]:
    return _readers_table(folder, 1)


def _readers_table(folder: str, number: int) -> list[Row]:
    """One of `factor_tables`, without the baseline if there is only one."""
    table = [*factor_tables(tidy_tables(folder), SHIPPED)][number]
    start = int(len({row[0] for row in table.rows}) == 1)
    return [row[start:] for row in (table.heads, *table.rows)]


def asymmetry_table(folder: str) -> list[Row]:
    """The mean of P_ij + P_ji - 100 over the pairs, in points, which FAAvg gives, too: ours with its
    interval over the samples, and that of the paper's networks."""
    means = accuracies(folder)
    rows = [["study", "ours", "95 % interval", "paper, resnet18", "paper, five networks"]]
    for study in studies(means.drop(index="zso", level=0)):
        values = means.loc[study].mean().to_numpy()
        low, high = sample_interval(values)
        row = [study.upper(), points(2 * values.mean() - 1)]
        row.append(interval(2 * low - 1, 2 * high - 1, change=True))
        theirs = {name: paper(baseline=name) for name in NETWORKS}
        if study in theirs[PAPER].index:
            published = {
                name: 2 * table.loc[study, "mean"].mean() - 1 for name, table in theirs.items()
            }
            error = (
                2 * np.linalg.norm(theirs[PAPER].loc[study, "stderr"]) / means.loc[study].shape[0]
            )
            row.append(f"{points(published[PAPER])} ± {100 * error:.1f}")
            row.append(f"{points(min(published.values()))} to {points(max(published.values()))}")
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    return rows
