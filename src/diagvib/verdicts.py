"""Is the paper reproduced? For every cell of Tables 2 and A2-A9: ours, the difference, how sure it is, a verdict."""

import numpy as np
import pandas as pd
from scipy.stats import t

from diagvib.baseline_settings import baseline_names, load_settings
from diagvib.paper import PAPER_CUES, read_paper_tables
from diagvib.schemas import validate
from diagvib.uncertainty import LEVEL

VERDICTS = ("agrees", "differs", "not run", "not comparable")
PAPER_SAMPLES = 5
KEYS = ["study", "baseline", "target", "metric"]
# The paper prints whole percents.
_HALF_STEP = 0.005
_ROUNDING_VARIANCE = (2 * _HALF_STEP) ** 2 / 12


def comparison_table(metrics: pd.DataFrame, chgo: pd.DataFrame, frame: pd.DataFrame, settings: dict) -> pd.DataFrame:
    """One row per number of the paper: ours beside it, difference, uncertainty (half a 95 % interval), verdict, reason.

    metrics, chgo: the tables of `tables.metrics_table` and `tables.chgo_table`; frame: of `collect.collect_runs`;
    settings: the configuration. `reason` says why a cell has no verdict, or what its verdict rests on.
    """
    rows = read_paper_tables().merge(_ours(metrics, chgo), on=KEYS, how="left")
    rows["paper_stderr"] = np.where(rows["spread_kind"] == "std", rows["paper_spread"] / np.sqrt(PAPER_SAMPLES),
                                    rows["paper_spread"])
    rows["difference"] = rows["ours"] - rows["paper_mean"]
    rows["uncertainty"] = _uncertainty(rows)
    reasons = _obstacles(rows, frame, settings)
    rows["verdict"] = [verdict or ("agrees" if abs(difference) <= uncertainty else "differs")
                       for (verdict, _), difference, uncertainty in
                       zip(reasons, rows["difference"], rows["uncertainty"], strict=True)]
    rows["reason"] = [reason for _, reason in reasons]
    rows = rows.rename(columns={"paper_mean": "paper"})
    rows.loc[~rows["verdict"].isin(VERDICTS[:2]), ["difference", "uncertainty"]] = np.nan
    return rows[["table", *KEYS, "ours", "stderr", "n", "expected", "paper", "paper_stderr", "difference",
                 "uncertainty", "verdict", "reason"]]


def _ours(metrics: pd.DataFrame, chgo: pd.DataFrame) -> pd.DataFrame:
    change = chgo.assign(study="chgo", metric="improvement_over_zgo", stderr=chgo["std"] / np.sqrt(chgo["n"]))
    columns = [*KEYS, "mean", "stderr", "n", "expected", "cues"]
    both = [table[columns].astype({"mean": float, "stderr": float}) for table in (metrics, change) if len(table)]
    rows = pd.concat(both) if both else pd.DataFrame(columns=columns)
    return rows.rename(columns={"mean": "ours"})


def _uncertainty(rows: pd.DataFrame) -> np.ndarray:
    """Half the width of the 95 % interval of the difference: Welch's t with both standard errors, plus the rounding.

    A printed spread s stands for any value that rounds to it, of mean square s^2 + 1/12 percent^2. The printed mean is
    off by up to half a percent, which is added as it is. One sample has no standard error: the paper's spread over
    samples stands in for ours.
    """
    of_samples = np.where(rows["spread_kind"] == "std", 1, PAPER_SAMPLES) * (
        rows["paper_spread"].to_numpy() ** 2 + _ROUNDING_VARIANCE)
    theirs = of_samples / PAPER_SAMPLES
    n = rows["n"].to_numpy(dtype=np.float64)
    lone = n == 1
    ours = np.where(lone, of_samples, rows["stderr"].to_numpy(dtype=np.float64) ** 2)
    parts = np.where(lone, 0, ours**2 / np.maximum(n - 1, 1)) + theirs**2 / (PAPER_SAMPLES - 1)
    freedom = np.where(lone, PAPER_SAMPLES - 1, (ours + theirs) ** 2 / parts)
    return t.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(ours + theirs) + _HALF_STEP


def _obstacles(rows: pd.DataFrame, frame: pd.DataFrame, settings: dict) -> list[tuple[str, str]]:
    """Per row the verdict that no number is needed for ('' if one decides), and the reason."""
    embedded = {(r.baseline, r.study, r.target) for r in frame[frame["status"] == "ok"].itertuples()
                if not r.comparable}
    configured = set(zip(frame["baseline"], frame["study"], frame["target"], strict=True))
    protocol, by_baseline = shortened_protocol(settings, biasing=True), shortened_baselines(settings)
    return [_obstacle(row, configured, embedded, [*protocol, *by_baseline.get(row.baseline, [])])
            for row in rows.itertuples()]


def _obstacle(row, configured: set, embedded: set, shortened: list[str]) -> tuple[str, str]:
    studies = ("chgo", "zgo") if row.study == "chgo" else (row.study,)
    cells = [(row.baseline, study, row.target) for study in studies]
    absent = [study for study, cell in zip(studies, cells, strict=True) if cell not in configured]
    if absent:
        return "not run", f"not configured: {row.baseline}, {', '.join(absent)}, {row.target}"
    if not row.n > 0:
        return "not run", f"no complete sample of {row.expected:.0f}"
    if embedded & set(cells):
        return "not comparable", "embedded sources"
    if shortened:
        return "not comparable", f"shortened protocol: {'; '.join(shortened)}"
    if row.study != "zso" and row.cues < PAPER_CUES:
        return "not comparable", f"{row.cues:.0f} of {PAPER_CUES} cues"
    if row.n == 1:
        return "", "n = 1 has no standard error; the paper's spread over samples stands in"
    return "", f"n = {row.n:.0f} of {row.expected:.0f}" if row.n < row.expected else ""


def shortened_protocol(settings: dict, biasing: bool = False) -> list[str]:
    """How the configuration falls short of the paper's protocol: `4,374 training images (paper: 43,740)`, ...

    biasing: only what moves an accuracy, not what merely makes it less sure (fewer test images or samples).
    """
    paper = validate({}, "config", "defaults")
    counts, of_paper, samples = settings.get("counts", {}), paper["counts"], settings.get("samples")
    measures = [
        (True, "training images", counts.get("train"), of_paper["train"]),
        (False, "test images per group", counts.get("ood"), of_paper["ood"]),
        (False, "dataset samples" if samples != 1 else "dataset sample", samples, paper["samples"]),
        (True, "pixels a side", settings.get("image_size"), paper["image_size"]),
        (True, "epochs at most", settings.get("training", {}).get("max_epochs"), paper["training"]["max_epochs"]),
    ]
    return [f"{ours:,} {what} (paper: {theirs:,})" for biases, what, ours, theirs in measures
            if ours and ours < theirs and (biases or not biasing)]


def shortened_baselines(settings: dict) -> dict[str, list[str]]:
    """Baselines that the configuration gives fewer epochs than their own settings or the paper's protocol do."""
    of_paper = validate({}, "config", "defaults")["training"]["max_epochs"]
    found = {}
    for entry in settings.get("baselines", []):
        if isinstance(entry, dict) and entry["name"] in baseline_names():
            epochs = entry.get("settings", {}).get("max_epochs", entry.get("max_epochs"))
            usual = load_settings(entry["name"]).get("max_epochs", of_paper)
            if epochs and epochs < usual:
                found[entry["name"]] = [f"{epochs} epochs at most (usual: {usual})"]
    return found


def summary_table(comparison: pd.DataFrame) -> pd.DataFrame:
    """How many cells have which verdict, overall and by study, baseline and factor: by, name, cells, a column each."""
    rows = []
    for by, column in (("overall", None), ("study", "study"), ("baseline", "baseline"), ("factor", "target")):
        groups = comparison.groupby(column, sort=False) if column else [("all", comparison)]
        for name, cells in groups:
            counts = cells["verdict"].value_counts()
            rows.append({"by": by, "name": name, "cells": len(cells),
                         **{verdict.replace(" ", "_"): int(counts.get(verdict, 0)) for verdict in VERDICTS}})
    return pd.DataFrame(rows)


def verdict_sentence(comparison: pd.DataFrame) -> str:
    """`41 of 48 cells agree ...`: what the summary comes to, with what could not be compared and why."""
    counts = comparison["verdict"].value_counts()
    agree, differ = int(counts.get("agrees", 0)), int(counts.get("differs", 0))
    left = [f"{int(counts[name])} are {name}" for name in VERDICTS[2:] if counts.get(name, 0)]
    if not agree + differ:
        return f"No cell of the paper's {len(comparison)} can be compared: {', '.join(left)}."
    text = f"{agree} of {agree + differ} compared cells agree with the paper"
    return f"{text}; of its {len(comparison)} cells {', '.join(left)}." if left else f"{text}: all that it has."
