"""Do our numbers agree with the paper's? For every cell of Tables 2 and A2-A9: our number, the difference, its
uncertainty, a verdict.

The rule, its reasons and the scores of wrong reproductions: docs/agreement.md.
"""

from itertools import chain

import numpy as np
import pandas as pd

from diagvib.papers.diagvib6.published import PAPER_CUES, PAPER_KEYS, read_paper_tables
from diagvib.results.uncertainty import half_width
from diagvib.studies.known_studies import SHIPPED

COMPARED = ("agrees", "differs", "cannot tell")
VERDICTS = (*COMPARED, "not run", "not comparable")
PAPER_SAMPLES = 5
# An agreeing cell's full interval lies within this margin; with fewer samples than this, nothing is
# decided.
MARGIN = 0.05
LEAST_SAMPLES = 3
# The paper prints whole percents.
_HALF_STEP = 0.005
_ROUNDING_VARIANCE = (2 * _HALF_STEP) ** 2 / 12
COLUMNS = [
    "table",
    *PAPER_KEYS,
    "ours",
    "stderr",
    "n",
    "expected",
    "paper",
    "paper_stderr",
    "difference",
    "uncertainty",
    "verdict",
    "reason",
    "mentions",
]


def comparison_table(
    metrics: pd.DataFrame,
    frame: pd.DataFrame,
    judgements: dict,
    paper: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row per number of the paper: ours, difference, uncertainty (half a 95 % interval),
    verdict, reason.

    metrics: the rows of the set `shortcut` in the table `metrics`; frame: from
    `read_runs.read_runs`; judgements: from `comparability.judge_runs`; paper: the numbers to compare
    with, by default `published.read_paper_tables`. A cell agrees if the full interval of its difference
    lies within MARGIN; it differs if the interval does not and excludes zero; otherwise, or with
    fewer than LEAST_SAMPLES samples, the verdict is "cannot tell". `reason` says why a cell has no
    verdict, or what its verdict rests on; `mentions` how its training differs although it is
    compared.
    """
    paper = read_paper_tables() if paper is None else paper
    ours = metrics[[*PAPER_KEYS, "mean", "stderr", "n", "expected", "cues"]]
    ours = ours.astype({"mean": float, "stderr": float}).rename(columns={"mean": "ours"})
    rows = paper.merge(ours, on=PAPER_KEYS, how="left")
    rows["paper_stderr"] = np.where(
        rows["spread_kind"] == "std",
        rows["paper_spread"] / np.sqrt(PAPER_SAMPLES),
        rows["paper_spread"],
    )
    rows["difference"] = rows["ours"] - rows["paper_mean"]
    rows["uncertainty"] = _uncertainty(rows)
    embedded = {
        (r.baseline, r.study, r.target)
        for r in frame[frame["status"] == "ok"].itertuples()
        if not r.comparable
    }
    verdicts = [_verdict(row, judgements, embedded) for row in rows.itertuples()]
    rows[["verdict", "reason", "mentions"]] = pd.DataFrame(verdicts, rows.index)
    rows = rows.rename(columns={"paper_mean": "paper"})
    rows.loc[~rows["verdict"].isin(COMPARED), ["difference", "uncertainty"]] = np.nan
    return rows[COLUMNS]


def _uncertainty(rows: pd.DataFrame) -> np.ndarray:
    """Half the width of an interval that contains the difference in at least 95 % of cases; NaN
    below two samples.

    Welch's t with both standard errors, plus the rounding. A printed spread s may be any value that
    rounds to it, with mean square s^2 + 1/12 percent^2; the printed mean is off by up to half a
    percent, which is added directly. On the paper's own dataset samples, what both sides share
    cancels from the difference but not from the standard errors; how much is unknown, since the
    paper prints no number for a single sample, so the interval tends to be too wide.
    """
    of_samples = np.where(rows["spread_kind"] == "std", 1, PAPER_SAMPLES) * (
        rows["paper_spread"].to_numpy() ** 2 + _ROUNDING_VARIANCE
    )
    theirs = of_samples / PAPER_SAMPLES
    ours, n = rows["stderr"].to_numpy(dtype=np.float64) ** 2, rows["n"].to_numpy(dtype=np.float64)
    freedom = (ours + theirs) ** 2 / (
        ours**2 / np.maximum(n - 1, 1) + theirs**2 / (PAPER_SAMPLES - 1)
    )
    return half_width(freedom) * np.sqrt(ours + theirs) + _HALF_STEP


def _verdict(row, judgements: dict, embedded: set) -> tuple[str, str, str]:
    """Verdict, reason and mentions of one cell."""
    contrast = SHIPPED.contrasts.get(row.metric)
    studies = (contrast.study, contrast.reference) if contrast else (row.study,)
    cells = [(row.baseline, study, row.target) for study in studies]
    missing_studies = ", ".join(cell[1] for cell in cells if cell not in judgements)
    reasons_and_mentions = zip(*(judgements.get(cell, ([], [])) for cell in cells), strict=True)
    obstacles, mentions = (
        "; ".join(dict.fromkeys(chain(*texts))) for texts in reasons_and_mentions
    )
    if missing_studies:
        verdict_and_reason = (
            "not run",
            f"not configured: {row.baseline}, {missing_studies}, {row.target}",
        )
    elif not row.n > 0:
        verdict_and_reason = "not run", f"no complete sample of {row.expected:.0f}"
    elif embedded & set(cells):
        verdict_and_reason = "not comparable", "embedded sources"
    elif obstacles:
        verdict_and_reason = "not comparable", f"another protocol: {obstacles}"
    elif 0 < row.cues < PAPER_CUES:
        verdict_and_reason = "not comparable", f"{row.cues:.0f} of {PAPER_CUES} cues"
    else:
        verdict_and_reason = _tell(row.n, row.expected, row.difference, row.uncertainty)
    return *verdict_and_reason, mentions


def _tell(n: float, expected: float, difference: float, uncertainty: float) -> tuple[str, str]:
    """Verdict and reason of one cell."""
    reason = f"n = {n:.0f} of {expected:.0f}" if n < expected else ""
    if n < LEAST_SAMPLES:
        return "cannot tell", f"n = {n:.0f}, at least {LEAST_SAMPLES} needed"
    if abs(difference) + uncertainty <= MARGIN:
        return "agrees", reason
    if abs(difference) > uncertainty:
        return "differs", reason
    wide = f"interval of ± {100 * uncertainty:.1f} points"
    return "cannot tell", f"{reason}; {wide}" if reason else wide


def verdict_sentence(comparison: pd.DataFrame) -> str:
    """`380 of 864 cells agree ...`: the summary in words, with what could not be compared and
    why."""
    counts = comparison["verdict"].value_counts()
    agree, differ, unknown = (int(counts.get(verdict, 0)) for verdict in COMPARED)
    incomparable = [
        f"{count} {verbs[count == 1]} {name}"
        for name, verbs in {"not run": ("were", "was"), "not comparable": ("are", "is")}.items()
        if (count := int(counts.get(name, 0)))
    ]
    if not agree + differ + unknown:
        if counts.get("not run", 0) == len(comparison):
            incomparable = ["none of its models was run"]
        return f"None of the paper's {len(comparison)} cells can be compared: {', '.join(incomparable)}."
    text = (
        f"Of {agree + differ + unknown} compared cells, {agree} agree with the paper within {100 * MARGIN:.0f} "
        f"points, {differ} differ, and {unknown} are undecided"
    )
    return (
        f"{text}; of the paper's {len(comparison)} cells, {', '.join(incomparable)}."
        if incomparable
        else f"{text}."
    )
