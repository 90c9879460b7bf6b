"""The joint statement: do the cells of a baseline, of a study, or all cells agree with the paper?

A statement rests on four numbers, each with a pass mark. The marks were set by simulation;
docs/agreement.md says what equal distributions and wrong reproductions score.
"""

from functools import cache

import numpy as np
import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.results.verdicts import COMPARED, DECIDED, LEAST_SAMPLES, MARGIN, PAPER_SAMPLES

# For `reproduced`: upper limits for mean_difference (in either direction) and rms_z, lower ones for
# agreeing and order.
MARKS = {"mean_difference": 0.04, "rms_z": 1.75, "agreeing": 0.6, "order": 0.85}
# Below these there is no `reproduced`: the number of cells, and the share of them that is decided.
LEAST_CELLS, LEAST_DECIDED = 24, 0.15
# With too few samples or cells for `reproduced`, an rms_z above this multiple of its mark is still
# `not reproduced`.
FAR_OFF = 2
STATEMENTS = ("reproduced", "not reproduced", "cannot tell")
# Only pairs of cells that are at least this far apart in the paper are checked for their order.
APART = 0.1
# A printed spread of 0 does not mean certainty.
_LEAST_SPREAD = 0.01
COLUMNS = [
    "by",
    "name",
    "cells",
    "decided",
    "mean_difference",
    "rms_z",
    "agreeing",
    "order",
    "statement",
    "reason",
]


def agreement_table(comparison: pd.DataFrame) -> pd.DataFrame:
    """A row for all cells, for each baseline and for each study with compared cells.

    comparison: the table of `verdicts.comparison_table`. Columns: by, name, cells (compared),
    decided, mean_difference (signed), rms_z, agreeing (share of the decided cells), order,
    statement (one of STATEMENTS), reason.
    """
    compared = comparison[comparison["verdict"].isin(COMPARED)]
    groups = [("overall", "all", compared)] if len(compared) else []
    groups += [
        (by, name, cells)
        for by in ("baseline", "study")
        for name, cells in compared.groupby(by, sort=False)
    ]
    return pd.DataFrame(
        [{"by": by, "name": name, **_score(cells)} for by, name, cells in groups], columns=COLUMNS
    )


def _score(cells: pd.DataFrame) -> dict:
    difference, decided = cells["difference"].to_numpy(), cells["verdict"].isin(DECIDED)
    # In units of the paper's spread alone: a wide spread of ours must not make a difference look
    # small.
    scale = np.sqrt(
        (cells["paper_stderr"] ** 2 + _LEAST_SPREAD**2) * (1 + PAPER_SAMPLES / cells["n"])
    )
    scores = {
        "cells": len(cells),
        "decided": int(decided.sum()),
        "mean_difference": float(difference.mean()),
        "rms_z": float(np.sqrt(np.mean((difference / scale) ** 2))),
        "agreeing": float((cells["verdict"][decided] == "agrees").mean()),
        "order": order_agreement(cells["ours"].to_numpy(), cells["paper"].to_numpy()),
    }
    statement, reason = _state(scores, float(cells["n"].median()))
    return {**scores, "statement": statement, "reason": reason}


def order_agreement(ours: np.ndarray, paper: np.ndarray) -> float:
    """Of all pairs of cells more than APART apart in the paper, the share that are in the same
    order in ours (ties half).

    Kendall's concordance without the pairs whose order in the paper may be chance: 1 for the same
    order, 0.5 for no relation.
    """
    above = paper[:, None] - paper > APART
    alike = np.sign(ours[:, None] - ours)[above]
    return float((alike + 1).mean() / 2) if alike.size else float("nan")


def _state(scores: dict, samples: float) -> tuple[str, str]:
    missed = missed_marks(scores)
    few = [f"n = {samples:.0f}, at least {LEAST_SAMPLES} needed"] if samples < LEAST_SAMPLES else []
    few += (
        [f"{scores['cells']} cells, at least {LEAST_CELLS} needed"]
        if scores["cells"] < LEAST_CELLS
        else []
    )
    if few and scores["rms_z"] > FAR_OFF * MARKS["rms_z"]:
        return "not reproduced", f"far off: RMS z {scores['rms_z']:.1f}"
    if few:
        return "cannot tell", "; ".join(few)
    if missed:
        return "not reproduced", f"missed: {', '.join(missed)}"
    share = scores["decided"] / scores["cells"]
    if share < LEAST_DECIDED:
        return (
            "cannot tell",
            f"{100 * share:.0f} % of cells are decided, at least {100 * LEAST_DECIDED:.0f} % needed",
        )
    return "reproduced", ""


def missed_marks(scores: dict) -> list[str]:
    """Names of the marks that a statement's numbers miss; NaN misses none."""
    return [
        name
        for name, missed in (
            ("mean difference", abs(scores["mean_difference"]) > MARKS["mean_difference"]),
            ("RMS z", scores["rms_z"] > MARKS["rms_z"]),
            ("share that agrees", scores["agreeing"] < MARKS["agreeing"]),
            ("order", scores["order"] < MARKS["order"]),
        )
        if missed
    ]


def marks_sentence() -> str:
    """The pass marks in words."""
    return (
        f"Reproduced: mean difference within {100 * MARKS['mean_difference']:.0f} points, RMS z at most "
        f"{MARKS['rms_z']}, at least {100 * MARKS['agreeing']:.0f} % of the decided cells agree, and at least "
        f"{100 * MARKS['order']:.0f} % of the pairs more than {100 * APART:.0f} points apart in the paper "
        f"have the same order; at least {LEAST_CELLS} cells, {100 * LEAST_DECIDED:.0f} % of them decided."
    )


def agreement_sentence(agreement: pd.DataFrame) -> str:
    """The statement on all cells, then those on baselines: `Together: reproduced (...). resnet18:
    ...`; '' for none."""
    if not len(agreement):
        return ""
    overall = agreement.iloc[0]
    why = f" ({overall['reason']})" if overall["reason"] else ""
    each = agreement[agreement["by"] == "baseline"].groupby("statement", sort=False)["name"]
    return (
        "; ".join(
            [
                f"All compared cells together: {overall['statement']}{why}",
                *(f"{statement}: {', '.join(names)}" for statement, names in each),
            ]
        )
        + "."
    )


# The assumptions of the simulations: the columns of `config/papers/reproductions.csv` that state
# them.
RULE = {
    "margin": MARGIN,
    "least samples": LEAST_SAMPLES,
    "least cells": LEAST_CELLS,
    "least decided": LEAST_DECIDED,
    **{f"mark {name}": value for name, value in MARKS.items()},
}
SIMULATED = (
    "Simulated from the paper's own numbers and spreads (docs/agreement.md): the share of cells with each "
    "verdict; the share of simulations in which all cells together, a baseline, or a study counts as "
    "reproduced (in a wrong reproduction, only those baselines and studies whose numbers are wrong); and the "
    "median over simulations of the numbers behind the statement on all cells."
)


@cache
def simulated_reproductions() -> pd.DataFrame:
    """Results of `benchmarks/reproductions.py`: a row for each kind of reproduction, of all
    baselines or resnet18."""
    return pd.read_csv(definition_path("papers/reproductions.csv"))


def simulated_sentence() -> str:
    """How often cells from equal distributions are found to differ."""
    rows = simulated_reproductions()
    rows = rows[(rows["baselines"] == "all nine") & rows["reproduction"].str.startswith("equal")]
    differ = rows.set_index("reproduction")["cells differs"]
    same = 100 * differ["equal: same dataset samples"]
    return (
        f"In simulations of equal distributions, {same:.1f} % of the cells are found to differ when both sides use "
        f"the same dataset samples, as they do by default, and at most {100 * differ.max():.1f} % otherwise."
    )


def simulated_lines() -> tuple[list[str], list[list[str]]]:
    """Heads and texts of `simulated_reproductions`."""
    heads = [
        "baselines",
        "reproduction",
        "agree",
        "differ",
        "cannot tell",
        "all reproduced",
        "baselines reproduced",
        "studies reproduced",
        "mean difference",
        "RMS z",
        "same order",
    ]
    shares = [
        *(f"cells {verdict}" for verdict in COMPARED),
        *(f"{by}: reproduced" for by in ("overall", "baseline", "study")),
    ]
    rows = [
        [
            row["baselines"],
            row["reproduction"],
            *(f"{100 * row[name]:.1f} %" for name in shares),
            f"{100 * row['median mean_difference']:.1f}",
            f"{row['median rms_z']:.2f}",
            f"{100 * row['median order']:.0f} %",
        ]
        for _, row in simulated_reproductions().iterrows()
    ]
    return heads, rows
