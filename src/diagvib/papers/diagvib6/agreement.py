"""The joint statement: are all compared cells together consistent with the paper?

One test, calibrated by simulating honest reproductions of the paper. docs/agreement.md describes it
and says how often it finds wrong reproductions, and how often it rejects honest ones.
"""

from functools import cache

import numpy as np
import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.foundation.seeding import named_generator
from diagvib.papers.diagvib6.verdicts import COMPARED, LEAST_SAMPLES, PAPER_SAMPLES
from diagvib.results.variation import grid
from diagvib.studies.known_studies import SHIPPED
from diagvib.studies.metric_needs import ID, OOD

# Below this p, the results differ from the paper.
SIGNIFICANCE = 0.05
_STATEMENT_TEXTS = {
    "differs": "the results differ from the paper",
    "cannot tell": f"with fewer than {LEAST_SAMPLES} dataset samples, agreement with the paper "
    "cannot be judged",
    "no evidence against": "no evidence against the paper's numbers",
}
STATEMENTS = tuple(_STATEMENT_TEXTS)
DRAWS = 299
# An offset up to this size, common to a baseline or to all cells, counts as harmless.
TOLERANCE = 0.02
# The share of the variance between dataset samples that all cells of a target have in common.
SHARED = 0.7
# Differences are measured in units of no less than this.
_LEAST_UNIT = 0.01
# A group's score is measured in the score that this share of honest reproductions stays below.
_TYPICAL_SHARE = 0.9
_GROUPS = [
    ["baseline"],
    ["study"],
    ["target"],
    ["study", "target"],
    ["baseline", "target"],
]
_SPREADS = ["smaller than the paper's", "larger than the paper's"]
COLUMNS = ["by", "name", "cells", "mean_difference", "score", "usual", "p", "statement"]


def agreement_table(comparison: pd.DataFrame, variance_ratio: float = 1) -> pd.DataFrame:
    """A row for all compared cells, for each group of them, and for the spread between samples.

    comparison: the table of `verdicts.comparison_table`. variance_ratio: of ours, by how much means
    over seeds lower the variance between samples; the paper has one seed. Columns: by, name, cells,
    mean_difference (ours minus the paper's), score (RMS z; of a spread, its ratio to the other
    side's), usual (what the score of nine in ten honest reproductions stays below), p, statement
    (one of STATEMENTS). A group's p is the share of honest reproductions in which any group is as
    far above its usual score; p of all cells, in the first row, is the smallest of these.
    """
    cells = comparison[comparison["verdict"].isin(COMPARED)].reset_index(drop=True)
    if not len(cells):
        return pd.DataFrame(columns=COLUMNS)
    groups = [("overall", "all", cells.index)]
    for by in _GROUPS:
        scores = cells.groupby(cells[by].agg(", ".join, axis=1), sort=False).indices.items()
        groups += [(", ".join(by), name, members) for name, members in scores]
    scores = _test(cells, [members for *_, members in groups], variance_ratio)
    groups += [("spread", name, cells.index) for name in _SPREADS]
    rows = [
        (
            by,
            name,
            len(members),
            cells["difference"][members].mean(),
            score,
            typical,
            p,
            STATEMENTS[
                0 if p < SIGNIFICANCE else 1 if cells["n"][members].median() < LEAST_SAMPLES else 2
            ],
        )
        for (by, name, members), (score, typical, p) in zip(groups, scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def variance_ratio(runs: pd.DataFrame) -> float:
    """The variance between dataset samples' means over their seeds, as a share of that between runs
    with the same number of a seed; 1 with one seed. runs: as from `read_runs.read_runs`."""
    if not runs["seed"].any():
        return 1.0
    plain, misled = (runs.get(f"{group}_accuracy", np.nan) for group in (ID, OOD))
    tested = np.where(runs["cue"] == "", plain, misled)
    groups = runs.assign(tested=tested).groupby(["study", "baseline", "target"])
    grids = [values for _, part in groups if len(values := grid(part, "tested")) > 1]
    of_runs = sum(values.var(axis=0, ddof=1).mean() for values in grids)
    of_means = sum(values.mean(axis=1).var(ddof=1) for values in grids)
    least = 1 / runs["seed"].nunique()
    return float(np.clip(of_means / of_runs, least, 1)) if of_runs else 1.0


def _test(cells: pd.DataFrame, groups: list, variance_ratio: float) -> np.ndarray:
    """Score, usual score and p of each group of cells, then of the two spreads: float[groups, 3].

    groups: the numbers of their cells. If the paper is right, both sides have one mean and one
    variance between runs on different samples, estimated from both together; with these, both sides
    are simulated.
    """
    members = np.zeros((len(cells), len(groups)))
    for column, group in enumerate(groups):
        members[group, column] = 1 / len(group)
    n = cells["n"].to_numpy()
    contrast = cells["metric"].isin(SHIPPED.contrasts).to_numpy()
    # The paper prints a contrast's spread as a standard deviation, the others' as standard errors.
    step = np.where(contrast, 0.01, 0.01 * PAPER_SAMPLES**0.5)

    def printed(deviation):
        return (np.round(deviation / step) * step) ** 2 + step**2 / 12

    def variance(theirs, our_variance):
        return ((PAPER_SAMPLES - 1) * theirs + (n - 1) * our_variance) / (PAPER_SAMPLES + n - 2)

    columns = ["paper", "paper_stderr", "ours", "stderr"]
    paper, theirs, ours, our_spread = cells[columns].fillna(0).to_numpy(float).T
    theirs, our_spread = printed(theirs * PAPER_SAMPLES**0.5), our_spread**2 * n / variance_ratio
    mean = (PAPER_SAMPLES * paper + n * ours) / (PAPER_SAMPLES + n)
    variances = variance(theirs, our_spread), variance(theirs, our_spread) * variance_ratio
    simulated = _draws(cells, contrast, mean, variances)
    simulated_paper, simulated_ours = simulated[..., :PAPER_SAMPLES], simulated[..., PAPER_SAMPLES:]
    counted = np.arange(simulated_ours.shape[-1]) < n[:, None]
    mean = (simulated_ours * counted).sum(-1) / n
    squares = ((simulated_ours - mean[..., None]) ** 2 * counted).sum(-1)
    # The first row has the accuracies found; those below are simulated, as if all were right.
    theirs = np.vstack([theirs, printed(simulated_paper.std(-1, ddof=1))])
    our_spread = np.vstack([our_spread, squares / np.maximum(n - 1, 1) / variance_ratio])
    difference = np.vstack([ours - paper, mean - simulated_paper.mean(-1).round(2)])
    unit = variance(theirs, our_spread) * (1 / PAPER_SAMPLES + variance_ratio / n) + _LEAST_UNIT**2
    wider = np.sqrt((our_spread.sum(-1) + 1e-3) / (theirs.sum(-1) + 1e-3))
    scores = np.column_stack([np.sqrt(difference**2 / unit @ members), 1 / wider, wider])
    typical = np.quantile(scores, _TYPICAL_SHARE, axis=0)
    ratio = scores / typical
    p = (ratio.max(1)[:, None] >= ratio[0]).mean(0)
    p[0] = p.min()
    return np.column_stack([scores[0], typical, p])


def _draws(
    cells: pd.DataFrame,
    contrast: np.ndarray,
    mean: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Accuracies of honest reproductions: float32[DRAWS, cells, the paper's samples then ours].
    variances: of each side's."""
    rng = named_generator("joint statement", len(cells))
    baseline, target = (pd.factorize(cells[name])[0] for name in ("baseline", "target"))
    samples = PAPER_SAMPLES + int(cells["n"].max())
    effect = rng.standard_normal((DRAWS, target.max() + 1, samples), np.float32)
    simulated = rng.standard_normal((DRAWS, len(cells), samples), np.float32)
    simulated *= (1 - SHARED) ** 0.5
    simulated += SHARED**0.5 * effect[:, target]
    for side, variance in zip(
        (simulated[..., :PAPER_SAMPLES], simulated[..., PAPER_SAMPLES:]), variances, strict=True
    ):
        side *= np.sqrt(variance)[:, None]
    simulated += mean[:, None]
    offset = rng.uniform(-TOLERANCE, TOLERANCE, (DRAWS, baseline.max() + 1))
    offset[::2] = offset[::2, :1]  # in half of the draws, the same for all baselines
    simulated[..., PAPER_SAMPLES:] += (offset[:, baseline] * ~contrast)[..., None]
    return np.clip(simulated, np.where(contrast, -1, 0)[:, None], 1, dtype=np.float32)


def agreement_sentence(agreement: pd.DataFrame) -> str:
    """The statement on all compared cells, p and the worst group first; '' for none."""
    if not len(agreement):
        return ""
    p, statement = agreement.loc[0, ["p", "statement"]]
    worst = agreement.loc[(agreement["score"] / agreement["usual"]).idxmax()]
    group = "all cells"
    if worst["by"] != "overall":
        names = zip(worst["by"].split(", "), worst["name"].split(", "), strict=True)
        group = ", ".join(map(" ".join, names))
    return f"All compared cells together: p = {p:.3f}, furthest off: {group}; {_STATEMENT_TEXTS[statement]}."


def rule_sentence() -> str:
    """The test in words."""
    return (
        f"p is the share of {DRAWS} simulated honest reproductions in which some group of cells (all, a baseline, "
        "a study, a target, a study's or a baseline's target), or the spread between the samples, is at least as "
        f"unusual as the worst one here; it cannot be below {1 / (1 + DRAWS):.3f}. Below {SIGNIFICANCE}, the results "
        f"differ from the paper: neither other dataset samples nor an offset of {100 * TOLERANCE:.0f} points "
        "explain them. Otherwise, nothing speaks against the paper's numbers, which does not prove that they are "
        "reproduced. A group's score is its RMS z: the root mean square of the differences, each in units of its "
        "standard error, which counts as at least one point; that of a spread is its ratio to the other side's."
    )


@cache
def simulated_reproductions() -> pd.DataFrame:
    """Results of `benchmarks/reproductions.py`: a row for each kind of reproduction, of all
    baselines or resnet18."""
    return pd.read_csv(definition_path("papers/reproductions.csv"))


def simulated_sentence() -> str:
    """How often honest reproductions are found to differ, cell by cell and together."""
    rows = simulated_reproductions()
    rows = rows[rows["reproduction"].str.startswith("honest")]
    return (
        f"In simulations of honest reproductions, at most {100 * rows['cells differs'].max():.1f} % of the cells "
        f"are found to differ, and by the joint test {100 * rows['differs'].min():.0f} to "
        f"{100 * rows['differs'].max():.0f} % of the reproductions (docs/agreement.md)."
    )
