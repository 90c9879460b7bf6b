"""The table `whac_a_mole`: each method's gaps compared with those of ERM."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from diagvib.papers.published import network_of
from diagvib.papers.whac_a_mole.groups import CUE_GAPS, DIFFERENCES
from diagvib.results.metric_sets.metric_set import BASELINE, by_binding, describe, terms
from diagvib.results.uncertainty import FEWEST, estimate, sample_interval

REFERENCE = "erm"
# A reference should share these with the method compared with it; the model is mandatory.
_SHARED_SETTINGS = {
    "batch_size": "batch size",
    "drop_last": "last batch",
    "optimiser": "optimiser",
    "schedule": "learning rate's schedule",
    "normalise": "normalisation",
    "augment": "augmentation",
    "max_epochs": "number of epochs",
    "selection": "selection of the epoch",
}
COLUMNS = ["study", *BASELINE, "binding", "bindings", "cue", "gap", "reference", "reference_gap"]
COLUMNS += ["difference", "low", "high", "n", "verdict", "reason"]


def whac_a_mole(values: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """Each method's two cue gaps compared with those of its reference, ERM, which itself has no
    rows.

    A row per study, baseline, binding (empty: the mean over those that both have; bindings: their
    number) and cue, 1 or 2: gap and reference_gap over the n samples that both have, difference
    (below zero: the gap is worse) with its 95 % interval (low, high), verdict, and a reason for
    having none or for what the reference does not share.
    """
    rows = []
    for study, study_runs in values.groupby("study", sort=False):
        runs = dict(iter(study_runs.groupby("baseline", sort=False)))
        for baseline, method_runs in runs.items():
            description = describe(baseline, baselines)
            if description["method"] == REFERENCE:
                continue
            reference, reason = reference_of(baseline, list(runs), baselines)
            description |= {"study": study, "reference": reference}
            for row in _cue_verdicts(method_runs, runs.get(reference)):
                reasons = "; ".join(filter(None, (reason, row["reason"])))
                rows.append({**description, **row, "reason": reasons})
    return pd.DataFrame(rows, columns=COLUMNS)


def _cue_verdicts(method_runs: pd.DataFrame, erm_runs: pd.DataFrame | None) -> Iterator[dict]:
    """A row for each binding that both have, and for all of them together, and for each cue. Without
    ERM, for each binding of the method, with no verdict."""
    for (binding, *_), runs in by_binding(method_runs):
        reference_runs = method_runs[:0]
        if erm_runs is not None:
            runs = runs[runs["binding"].isin(erm_runs["binding"])]
            reference_runs = erm_runs[erm_runs["binding"].isin(runs["binding"])]
        if runs.empty:
            continue
        names = {"binding": binding, "bindings": runs["binding"].nunique()}
        for cue, gap in CUE_GAPS.items():
            accuracies = [*terms(runs, gap, DIFFERENCES), *terms(reference_runs, gap, DIFFERENCES)]
            verdict = judge_gap(pd.concat(accuracies, axis=1).to_numpy(dtype=float).T)
            if erm_runs is None:
                verdict |= {"verdict": "no verdict", "reason": ""}
            yield {**names, "cue": cue, **verdict}


def reference_of(
    baseline: str, candidates: Sequence[str], baselines: Mapping[str, dict]
) -> tuple[str, str]:
    """Find the ERM baseline to compare a method with. Returns its name and how the settings differ,
    or '' and why there is none.

    Among those with the same model, one that shares everything in _SHARED_SETTINGS, if need be except the
    selection rule. If none does, the one that shares most.
    """
    method_settings = baselines.get(baseline, {})
    model = network_of(method_settings)
    same_network = [
        name
        for name in candidates
        if describe(name, baselines)["method"] == REFERENCE and network_of(baselines[name]) == model
    ]
    if not same_network or not model:
        like = f"model {model['name']}" if model else "the same model"
        return "", f"no baseline with method {REFERENCE} and {like}"

    def unlike(name: str) -> list[str]:
        settings_of_both = [
            {"selection": "val_loss", "drop_last": True, **baseline_settings}
            for baseline_settings in (baselines[name], method_settings)
        ]
        return [
            words
            for key, words in _SHARED_SETTINGS.items()
            if settings_of_both[0].get(key) != settings_of_both[1].get(key)
        ]

    best = min(
        same_network,
        key=lambda name: (
            bool(set(unlike(name)) - {_SHARED_SETTINGS["selection"]}),
            len(unlike(name)),
        ),
    )
    return best, f"{best} differs in {' and '.join(unlike(best))}" if unlike(best) else ""


def judge_gap(accuracies: np.ndarray) -> dict:
    """A method's gap compared with ERM's, paired by sample.

    accuracies: float[4, samples], NaN where a run is missing: the method's accuracy where the cue
    misleads and in distribution, then ERM's. difference = mean gap - mean reference gap, with its
    `sample_interval`. worse: the interval lies below zero, and so does that of the gap itself
    (where no accuracy is lost, no shortcut is taken); better: the interval lies above zero. How
    often these contain the true value: `python benchmarks/simulated_statistics.py`.
    """
    accuracies = accuracies[:, ~np.isnan(accuracies).any(axis=0)]
    sample_count = accuracies.shape[1]
    misled, inside, erm_misled, erm_inside = accuracies
    gap, erm_gap = estimate(misled - inside).mean, estimate(erm_misled - erm_inside).mean
    low, high = sample_interval([misled, erm_inside], [inside, erm_misled])
    loses = sample_interval(misled, inside)[1] < 0
    shortage = f"fewer than {FEWEST} samples" if sample_count else "no sample has runs of both"
    return {
        "gap": gap,
        "reference_gap": erm_gap,
        "difference": gap - erm_gap,
        "low": low,
        "high": high,
        "n": sample_count,
        "verdict": "worse" if high < 0 and loses else "better" if low > 0 else "cannot tell",
        "reason": "" if sample_count >= FEWEST else shortage,
    }
