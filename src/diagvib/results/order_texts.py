"""What the tables of `orders` say in words: sentences, and tables of texts."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from diagvib.results.known_studies import KnownStudies
from diagvib.results.orders import CLOSE, exchange_p, paper_faavg
from diagvib.results.paper import METRIC_TITLES, interval
from diagvib.results.verdicts import MARGIN

ORDERS_TITLE = "In which order?"
ORDERS_NOTE = (
    "Numbers from another protocol cannot be compared with the paper's, but their order can. Correlations are "
    "Spearman's. p is exact: the share of all permutations of the factors' names that give at least as much agreement; "
    "it is not corrected for the number of rows. The 95 % interval treats the factors as a random sample of many, with "
    "one observation per factor, so it tends to be too wide. The order of the factors in a single study has no "
    "interval: with six factors, it would contain most values. Pairs are compared only if every pair of a study has "
    "run."
)
_METRICS = {metric: title.partition(":")[0] for metric, title in METRIC_TITLES.items()}
# With more baselines, only the table says how alike any two are.
_FEW = 3
# Heads, rows of texts, and sentences.
Texts = tuple[str, list[str], list[list[str]], list[str]]


def order_texts(tables: Mapping[str, pd.DataFrame], known: KnownStudies) -> Iterator[Texts]:
    """Title, heads, rows and sentences of each table that has rows."""
    for title, name, make in (
        ("Target factors", "factor_orders", _factors),
        ("Pairs of target and cue", "pair_orders", _pairs),
        ("Which factor of a pair wins", "pair_winners", _winners),
        ("How close the numbers are, for orientation", "closeness", _closeness),
    ):
        if len(tables[name]):
            yield title, *make(tables[name], known)


def _factors(table: pd.DataFrame, known: KnownStudies) -> tuple:
    rows = [
        [
            r.baseline,
            known.title(r.study) if r.study else f"mean over {r.studies} studies",
            _METRICS[r.metric],
            f"paper's {r.like}",
            str(r.factors),
            *_order(r),
        ]
        for r in table.itertuples(index=False)
    ]
    told = [
        f"Over the {r.factors} target factors, {_METRICS[r.metric]} of {r.baseline} and of the paper's {r.like} "
        f"have a rank correlation of {_correlation(r)}, mean over {r.studies} studies."
        for r in table[table["study"] == ""].itertuples(index=False)
    ]
    return ["baseline", "study", "metric", "compared with", "factors", *_HEADS], rows, told


def _pairs(table: pd.DataFrame, known: KnownStudies) -> tuple:
    headline, few = known.headline(table["study"]), table["baseline"].nunique() <= _FEW
    rows = [
        [r.baseline, known.title(r.study), _beside(r), str(r.pairs), *_order(r)]
        for r in table.itertuples(index=False)
    ]
    told = [
        pair_sentence(r, known)
        for r in table.itertuples(index=False)
        if headline and r.study == headline.shortcut and (r.paper or few)
    ]
    return ["baseline", "study", "compared with", "pairs", *_HEADS], rows, told


def pair_sentence(row, known: KnownStudies) -> str:
    """A row of `orders.pair_orders` in words."""
    theirs = f"FAAvg_i - FAAvg_j of the paper's {row.like}" if row.paper else f"that of {row.like}"
    return (
        f"{known.title(row.study)}: over the {row.pairs} pairs of target and cue, P_ij of {row.baseline} and "
        f"{theirs} have a rank correlation of {_correlation(row)}."
    )


def _beside(row) -> str:
    return f"the paper's {row.like}" if row.paper else row.like


_HEADS = ["Spearman", "p", "95 % interval"]


def _order(row) -> list[str]:
    return [
        f"{row.spearman:.2f}",
        f"{row.p:.3f}",
        f"{row.low:.2f} to {row.high:.2f}" if row.low == row.low else "-",
    ]


def _correlation(row) -> str:
    return f"{row.spearman:.2f} (95 % interval {row.low:.2f} to {row.high:.2f}, p = {row.p:.3f})"


def _winners(table: pd.DataFrame, known: KnownStudies) -> tuple:
    rows = [
        [
            r.baseline,
            known.title(r.study),
            f"{r.first}, {r.second}",
            f"{100 * r.p_first:.1f}",
            f"{100 * r.p_second:.1f}",
            f"{100 * r.share:.1f}",
            interval(r.low, r.high),
            r.winner or "-",
            r.expected or "-",
            f"{r.verdict}{f' ({r.reason})' if r.reason else ''}",
        ]
        for r in table.itertuples(index=False)
    ]
    told = [_won(own, known) for _, own in table.groupby("baseline", sort=False)]
    heads = [
        "baseline",
        "study",
        "i, j",
        "P_ij",
        "P_ji",
        "i wins, %",
        "95 % interval",
        "winner",
        "expected",
        "verdict",
    ]
    return heads, rows, told


def _won(own: pd.DataFrame, known: KnownStudies) -> str:
    """`12 of 14 decided pairs are won by ...`. p: that of these wins, less the losses, under
    permuted names."""
    first, decided = own.iloc[0], own[own["verdict"] != "undecided"]
    theirs = paper_faavg(first["study"], first["like"])
    ours = pd.DataFrame(0.0, theirs.index, theirs.index)
    for row in decided.itertuples(index=False):
        ours.loc[row.winner, row.first if row.winner == row.second else row.second] = 1
    p = exchange_p(
        ours.to_numpy(), np.sign(np.subtract.outer(theirs.to_numpy(), theirs.to_numpy()))
    )
    n = own["n"].max()
    samples = f"up to {n} dataset samples" if n > 1 else "one dataset sample, so without intervals"
    return (
        f"{known.title(first['study'])}, {first['baseline']}: {(decided['verdict'] == 'agrees').sum()} of "
        f"{len(decided)} decided pairs are won by the factor that the FAAvg of the paper's {first['like']} ranks "
        f"higher (p = {p:.3f}; {len(own) - len(decided)} undecided; {samples})."
    )


def _closeness(table: pd.DataFrame, known: KnownStudies) -> tuple:
    rows = [
        [baseline, known.title(study), f"paper's {like}", str(len(own)), *map(str, _counts(own))]
        for (baseline, study, like), own in table.groupby(["baseline", "study", "like"], sort=False)
    ]
    told = []
    for (baseline, like), own in table.groupby(["baseline", "like"], sort=False):
        close, apart, unknown = _counts(own)
        told.append(
            f"For orientation, not a reproduction: of {len(own)} numbers of {baseline}, compared with those of "
            f"the paper's {like}, {close} are close (the whole interval within {100 * MARGIN:.0f} points), "
            f"{apart} apart, and {unknown} undecided."
        )
    return ["baseline", "study", "compared with", "cells", *CLOSE.values()], rows, told


def _counts(own: pd.DataFrame) -> list[int]:
    return [int((own["closeness"] == kind).sum()) for kind in CLOSE.values()]
