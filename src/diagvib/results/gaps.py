"""The set of metrics `gaps` (Li et al., 2023, Sec. 2.1): the accuracy lost where one cue of two
misleads, or both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.results.cells import RUN_KEYS, worst_cell
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metrics import estimate
from diagvib.results.uncertainty import FEWEST, sample_interval
from diagvib.studies.needs import GAP_GROUPS
from diagvib.studies.study import Study

# Metric -> the test group whose accuracy is compared with the in-distribution accuracy.
GAPS = {"cue_1_gap": "no-cue-1", "cue_2_gap": "no-cue-2", "joint_gap": "neither"}
CUE_GAPS = {1: "cue_1_gap", 2: "cue_2_gap"}
MEASURES = ("id_accuracy", *GAPS, "worst_group")
# The description of a baseline in every table.
BASELINE = ["baseline", "model", "method", "supervision", "selection"]
KEYS = ["study", *BASELINE, "binding", "target", "cue"]
REFERENCE = "erm"
VERDICTS = ("worse", "better", "cannot tell", "no verdict")
# What a reference should share with the method compared with it; the model is mandatory.
_ALIKE = {
    "batch_size": "batch size",
    "drop_last": "last batch",
    "optimiser": "optimiser",
    "normalise": "normalisation",
    "augment": "augmentation",
    "max_epochs": "number of epochs",
    "selection": "selection of the epoch",
}


def gaps_tables(
    runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> dict[str, pd.DataFrame]:
    """Two tables: `gaps`, every metric with its spread, and `whac_a_mole`, each method's gaps
    compared with ERM's."""
    values = run_gaps(runs, cells, known)
    return {"gaps": gaps_table(values, baselines), "whac_a_mole": whac_a_mole(values, baselines)}


def training_shares(study: Study) -> dict[str, float]:
    """The share of training images in which the cues agree with the target as in each test group:
    group -> share."""
    cells = study.cells("train")
    agree = zip(
        *(cells[f"{cue}_class"] == cells["target_class"] for cue in study.cues), strict=True
    )
    share = cells["weight"].groupby([GAP_GROUPS[one] for one in agree]).sum()
    return {group: float(share.get(group, 0.0)) for group in GAP_GROUPS.values()}


def run_gaps(runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies) -> pd.DataFrame:
    """Every run's RUN_KEYS and MEASURES, NaN if the run is missing.

    With a(u, v) a group's mean per-class accuracy: id_accuracy = sum over the groups of training
    share times a; a gap is a of its group minus id_accuracy; worst_group is the accuracy of the
    worst target x cue 1 x cue 2 cell.
    """
    worst = worst_cell(cells, RUN_KEYS)
    worst = dict(
        zip(worst[RUN_KEYS].itertuples(index=False, name=None), worst["accuracy"], strict=True)
    )
    parts = []
    for study, own in runs.groupby("study", sort=False):
        accuracy = {group: own[f"{group}_accuracy"].astype(float) for group in GAP_GROUPS.values()}
        inside = sum(
            share * accuracy[group]
            for group, share in training_shares(known.studies[study]).items()
        )
        parts.append(
            own[RUN_KEYS].assign(
                id_accuracy=inside,
                **{name: accuracy[group] - inside for name, group in GAPS.items()},
                worst_group=[
                    worst.get(run, np.nan)
                    for run in own[RUN_KEYS].itertuples(index=False, name=None)
                ],
            )
        )
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else pd.DataFrame(columns=[*RUN_KEYS, *MEASURES])
    )


def gaps_table(values: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """A row per study, baseline, binding and metric: mean, stderr, low, high (95 %), n, expected.

    values: from `run_gaps`; baselines: name -> settings. The unit is the dataset sample. If a
    baseline has several bindings, rows with an empty binding are the mean over them: within each
    sample first (it counts only if it has them all), then over the samples.
    """
    return measures_table(values, baselines, MEASURES)


def measures_table(
    values: pd.DataFrame, baselines: Mapping[str, dict], measures: Iterable[str]
) -> pd.DataFrame:
    """`gaps_table` of any measures of runs, columns of the values: accuracies, or GAPS from the
    column `id_accuracy`."""
    rows = []
    for (study, baseline), own in values.groupby(["study", "baseline"], sort=False):
        about = {"study": study, **describe(baseline, baselines)}
        for (binding, target, cue), part in _by_binding(own):
            for metric in measures:
                found = _by_sample(part, metric)
                mean, stderr, n = estimate(found)
                low, high = sample_interval(*_terms(part, metric))
                rows.append(
                    {
                        **about,
                        "binding": binding,
                        "target": target,
                        "cue": cue,
                        "metric": metric,
                        "mean": mean,
                        "stderr": stderr,
                        "low": low,
                        "high": high,
                        "n": n,
                        "expected": len(found),
                    }
                )
    return pd.DataFrame(
        rows, columns=[*KEYS, "metric", "mean", "stderr", "low", "high", "n", "expected"]
    )


def _by_binding(own: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """The runs of each binding; then, if there are several, all of them."""
    yield from own.groupby(["binding", "target", "cue"], sort=False)
    if own["binding"].nunique() > 1:
        yield ("", "", ""), own


def _terms(own: pd.DataFrame, metric: str) -> list[pd.Series]:
    """The accuracies by sample whose difference a gap is; of another measure, itself."""
    found = _by_sample(own, metric)
    if metric not in GAPS:
        return [found]
    inside = _by_sample(own, "id_accuracy")
    return [found + inside, inside]


def _by_sample(own: pd.DataFrame, metric: str) -> pd.Series:
    """The mean over all runs of each dataset sample; NaN if one is missing."""
    return (
        own[metric]
        .astype(float)
        .groupby(own["sample"])
        .agg(lambda values: values.mean(skipna=False))
    )


def binding_names(rows: pd.DataFrame) -> list[str]:
    """What tables call the binding of each row: its name; where it is empty, `mean of all`, or
    `mean of 2 of 6` for a baseline that has fewer of the study's bindings than there are. rows:
    columns study, baseline, binding."""
    named = rows[rows["binding"] != ""]
    own = named.groupby(["study", "baseline"])["binding"].nunique().to_dict()
    of = named.groupby("study")["binding"].nunique().to_dict()
    means = {
        key: "mean of all" if count == of[key[0]] else f"mean of {count} of {of[key[0]]}"
        for key, count in own.items()
    }
    return [
        binding or means.get((study, baseline), "mean of all")
        for study, baseline, binding in rows[["study", "baseline", "binding"]].itertuples(
            index=False, name=None
        )
    ]


def describe(baseline: str, baselines: Mapping[str, dict]) -> dict[str, str]:
    """A baseline's name, model, method, what the method is told, and its selection rule."""
    settings = baselines.get(baseline, {})
    method = part_of(settings, "method")
    return {
        "baseline": baseline,
        "model": str(part_of(settings, "model").get("name", "")),
        "method": str(method.get("name", "")),
        "supervision": str(method.get("supervision", "")),
        "selection": str(settings.get("selection", "val_loss")),
    }


def part_of(settings: Mapping, key: str) -> Mapping:
    """A baseline's model or method with its options; empty if a run made by others recorded
    anything else."""
    return settings[key] if isinstance(settings.get(key), Mapping) else {}


def network_of(settings: Mapping) -> dict:
    """What makes a baseline's network: the keys of its model that are set. Where the weights' file
    is makes no difference, and its hash only if it is not that of the published weights."""
    found = {
        key: value
        for key, value in part_of(settings, "model").items()
        if value and key != "weights_file"
    }
    if "weights_sha256" in found and _is_published(found):
        del found["weights_sha256"]
    return found


def _is_published(model: Mapping) -> bool:
    """Whether a model's `weights_sha256` is the hash of the weights that it names."""
    from torchvision.models import get_model_weights  # here, because it takes long to load

    try:
        published = get_model_weights(model["name"])[model["weights"]]
    except (KeyError, ValueError):  # a run made by others may record anything
        return False
    # torchvision's file names end with the first digits of the sha256: resnet50-0676ba61.pth.
    return (
        str(model["weights_sha256"]).lower().startswith(Path(published.url).stem.rpartition("-")[2])
    )


def whac_a_mole(values: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """Each method's two cue gaps compared with those of its reference, ERM, which itself has no
    rows.

    A row per study, baseline, binding (empty: the mean over those that both have) and cue, 1 or 2:
    gap and reference_gap over the n samples that both have, factor with its 95 % interval,
    difference (below zero: the gap is worse) with its own (low, high), verdict, and a reason for
    having none or for what the reference does not share.
    """
    rows = []
    for study, of_study in values.groupby("study", sort=False):
        runs = dict(iter(of_study.groupby("baseline", sort=False)))
        for baseline, own in runs.items():
            if describe(baseline, baselines)["method"] == REFERENCE:
                continue
            reference, reason = reference_of(baseline, list(runs), baselines)
            about = {"study": study, **describe(baseline, baselines), "reference": reference}
            other = runs.get(reference, own[:0])
            both = own[own["binding"].isin(other["binding"])] if reference else own
            other = other[other["binding"].isin(both["binding"])]
            for (binding, *_), part in _by_binding(both):
                beside = other[other["binding"] == binding] if binding else other
                for cue, metric in CUE_GAPS.items():
                    terms = [*_terms(part, metric), *_terms(beside, metric)]
                    four = pd.concat(terms, axis=1).astype(float).to_numpy().T
                    judged = judge_gap(four[:2], four[2:]) if reference else NO_VERDICT
                    why = "; ".join(filter(None, (reason, judged["reason"])))
                    rows.append({**about, "binding": binding, "cue": cue, **judged, "reason": why})
    columns = [
        "study",
        *BASELINE,
        "binding",
        "cue",
        "gap",
        "reference",
        "reference_gap",
        "difference",
        "low",
        "high",
        "n",
        "verdict",
        "reason",
    ]
    return pd.DataFrame(rows, columns=columns)


def reference_of(
    baseline: str, others: Sequence[str], baselines: Mapping[str, dict]
) -> tuple[str, str]:
    """Find the ERM baseline to compare a method with. Returns its name and how the settings differ,
    or '' and why there is none.

    Among those with the same model, one that shares everything in _ALIKE, if need be except the
    selection rule. If none does, the one that shares most.
    """
    own = baselines.get(baseline, {})
    model = network_of(own)
    alike = [
        name
        for name in others
        if part_of(baselines.get(name, {}), "method").get("name") == REFERENCE
        and network_of(baselines[name]) == model
    ]
    if not alike or not model:
        return "", (
            f"no baseline with method {REFERENCE} and "
            + (f"model {model['name']}" if "name" in model else "the same model")
        )

    def unlike(name: str) -> list[str]:
        both = [
            {"selection": "val_loss", "drop_last": True, **one} for one in (baselines[name], own)
        ]
        return [words for key, words in _ALIKE.items() if both[0].get(key) != both[1].get(key)]

    best = min(
        alike, key=lambda name: (bool(set(unlike(name)) - {_ALIKE["selection"]}), len(unlike(name)))
    )
    return best, f"{best} differs in {' and '.join(unlike(best))}" if unlike(best) else ""


NO_VERDICT = {
    **dict.fromkeys(["gap", "reference_gap", "difference", "low", "high"], np.nan),
    "n": 0,
    "verdict": VERDICTS[3],
    "reason": "",
}


def judge_gap(own: np.ndarray, reference: np.ndarray) -> dict:
    """A method's gap compared with ERM's, paired by sample.

    own, reference: float[2, samples], NaN where a run is missing: the accuracy where the cue
    misleads, and in distribution. difference = mean gap - mean reference gap, with its
    `sample_interval`. worse: the interval lies below zero, and so does that of the gap itself
    (where no accuracy is lost, no shortcut is taken); better: the interval lies above zero. How
    often these contain the true value: `python benchmarks/simulated_statistics.py`.
    """
    four = np.concatenate([own, reference])
    four = four[:, ~np.isnan(four).any(axis=0)]
    n = four.shape[1]
    if not n:
        return NO_VERDICT | {"verdict": VERDICTS[2], "reason": "no dataset sample has runs of both"}
    misled, inside, its_misled, its_inside = four
    mine, its = float((misled - inside).mean()), float((its_misled - its_inside).mean())
    low, high = sample_interval([misled, its_inside], [inside, its_misled])
    loses = sample_interval(misled, inside)[1] < 0
    return {
        "gap": mine,
        "reference_gap": its,
        "difference": mine - its,
        "low": low,
        "high": high,
        "n": n,
        "verdict": VERDICTS[0] if high < 0 and loses else VERDICTS[1] if low > 0 else VERDICTS[2],
        "reason": "" if n >= FEWEST else f"fewer than {FEWEST} dataset samples",
    }
