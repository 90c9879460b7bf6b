"""The set of metrics `gaps` (Li et al., 2023, Sec. 2.1): the accuracy lost where one cue of two
misleads, or both."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from diagvib.foundation.files import named_hash
from diagvib.results.cells import RUN_KEYS, worst_cell
from diagvib.results.metric_sets.metric_set import (
    BASELINE,
    MetricSet,
    Results,
    by_binding,
    describe,
    of_all_bindings,
    pivot,
    terms,
)
from diagvib.results.table import Frames, Table, interval
from diagvib.results.uncertainty import FEWEST, estimate, sample_interval
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.needs import GAP_GROUPS
from diagvib.studies.study import Study

# Metric -> the test group whose accuracy is compared with the in-distribution accuracy.
GAPS = {"cue_1_gap": "no-cue-1", "cue_2_gap": "no-cue-2", "joint_gap": "neither"}
CUE_GAPS = {1: "cue_1_gap", 2: "cue_2_gap"}
SHOWN_METRICS = {
    "id_accuracy": "I.D. Acc",
    "cue_1_gap": "cue-1 gap",
    "cue_2_gap": "cue-2 gap",
    "joint_gap": "joint gap",
}
MEASURES = ("id_accuracy", *GAPS, "worst_group")
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


class Gaps(MetricSet):
    """id_accuracy, cue_1_gap, cue_2_gap, joint_gap, worst_group; and the table `whac_a_mole`, each
    method's gaps compared with ERM's.

    With a(u, v) a group's mean per-class accuracy: id_accuracy = sum over the groups of training
    share times a; a gap is a of its group minus id_accuracy; worst_group is the accuracy of the
    worst target x cue 1 x cue 2 cell.
    """

    title = "Whac-A-Mole: accuracy lost where a cue misleads"
    about = (
        "Percent and points, mean ± standard error over the {samples}. I.D. Acc: the accuracies of the four "
        "test groups, weighted like the training images. Gap: accuracy where cue 1, cue 2 or both mislead, minus I.D. "
        "Acc. In brackets: the 95 % interval of a cue's gap minus that of ERM with the same model, paired by sample, over "
        "the bindings that both have (their number is there if it is smaller than the gap's); "
        f"none with fewer than {FEWEST} samples. The intervals are not corrected for the number of methods.",
    )
    differences: ClassVar[Mapping[str, str]] = dict.fromkeys(GAPS, "id_accuracy")

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        return MEASURES

    def of_run(self, results: Results) -> pd.DataFrame:
        runs, groups = results.runs, [*GAP_GROUPS.values()]
        accuracy = runs.reindex(columns=[f"{group}_accuracy" for group in groups])
        accuracy = accuracy.astype(float).set_axis(groups, axis=1)
        of_study = {
            name: training_shares(results.known.studies[name]) for name in runs["study"].unique()
        }
        shares = pd.DataFrame([of_study[name] for name in runs["study"]], runs.index, groups)
        inside = (shares.astype(float) * accuracy).sum(axis=1, skipna=False)
        gaps = {name: accuracy[group] - inside for name, group in GAPS.items()}
        worst = worst_cell(results.cells, RUN_KEYS).rename("worst_group")
        return runs[RUN_KEYS].assign(id_accuracy=inside, **gaps).join(worst, on=RUN_KEYS)

    def tables(self, results: Results) -> Frames:
        return {"whac_a_mole": whac_a_mole(self.of_run(results), results.baselines)}

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        """Of each study, the methods without group labels and those with; ERM is in both
        tables."""
        keys = ["study", "baseline", "binding", "metric"]
        whac = tables["whac_a_mole"]
        whac = whac.assign(metric=whac["cue"].map(CUE_GAPS))[[*keys, "low", "high", "bindings"]]
        binding_counts = (
            metric_rows[metric_rows["binding"] != ""]
            .groupby(keys[:2])["binding"]
            .nunique()
            .rename("averaged")
        )
        rows = metric_rows.merge(whac, how="left", on=keys, suffixes=("", "_from_erm"))
        rows = of_all_bindings(rows.join(binding_counts, on=keys[:2]))
        labels = rows["supervision"].map(knows_groups).astype(bool)
        for title, is_shown in (
            ("methods without group labels", ~labels),
            ("methods with group labels", labels | (rows["method"] == REFERENCE)),
        ):
            for study, part in rows[is_shown].groupby("study", sort=False):
                yield Table(
                    f"{known_studies.title(study)}: {title}",
                    *pivot(part, "metric", SHOWN_METRICS, self._beside_erm),
                    section=self.title,
                    about=self.about,
                )

    def _beside_erm(self, row: Mapping) -> str:
        """`-24.7 ± 1.2 (-18.1 to -6.5)`: in brackets, the interval of the difference from ERM's
        gap; `; 2 of 3 bindings`, if ERM has fewer."""
        low, high, shared_bindings = (
            row[key] for key in ("low_from_erm", "high_from_erm", "bindings")
        )
        if low != low:
            return self.text(row)
        fewer = (
            f"; {shared_bindings:.0f} of {row['averaged']} bindings"
            if shared_bindings < row["averaged"]
            else ""
        )
        return f"{self.text(row)} ({interval(low, high, change=True)}{fewer})"


METRIC_SET = Gaps()


def knows_groups(supervision: str) -> bool:
    """Whether a method with this supervision knows the group of each training image."""
    return supervision in ("cues", "environments") or supervision.startswith("cue-")


def training_shares(study: Study) -> dict[str, float]:
    """The share of training images in which the cues agree with the target as in each test group:
    group -> share."""
    cells = study.cells("train")
    agree = zip(
        *(cells[f"{cue}_class"] == cells["target_class"] for cue in study.cues), strict=True
    )
    share = cells["weight"].groupby([GAP_GROUPS[agreement] for agreement in agree]).sum()
    return {group: float(share.get(group, 0.0)) for group in GAP_GROUPS.values()}


def network_of(settings: Mapping) -> dict:
    """A baseline's network: the keys of its model that are set. Where the weights' file
    is makes no difference, and its hash only if it is not that of the published weights."""
    network = {
        key: value
        for key, value in (settings.get("model") or {}).items()
        if value and key != "weights_file"
    }
    if "weights_sha256" in network and _is_published(network):
        del network["weights_sha256"]
    return network


def _is_published(model: Mapping) -> bool:
    """Whether a model's `weights_sha256` is the hash of the weights that it names."""
    from torchvision.models import get_model_weights  # here, because it takes long to load

    published = get_model_weights(model["name"])[model["weights"]]
    return model["weights_sha256"].lower().startswith(named_hash(published.url))


def whac_a_mole(values: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """Each method's two cue gaps compared with those of its reference, ERM, which itself has no
    rows.

    A row per study, baseline, binding (empty: the mean over those that both have; bindings: their
    number) and cue, 1 or 2: gap and reference_gap over the n samples that both have, difference
    (below zero: the gap is worse) with its 95 % interval (low, high), verdict, and a reason for
    having none or for what the reference does not share.
    """
    rows = []
    for study, of_study in values.groupby("study", sort=False):
        runs = dict(iter(of_study.groupby("baseline", sort=False)))
        for baseline, method_runs in runs.items():
            description = {"study": study, **describe(baseline, baselines)}
            if description["method"] == REFERENCE:
                continue
            reference, reason = reference_of(baseline, list(runs), baselines)
            erm_runs = runs.get(reference, method_runs[:0])
            for (binding, *_), part in by_binding(method_runs):
                part = part[part["binding"].isin(erm_runs["binding"])] if reference else part
                if part.empty:
                    continue
                erm_part = erm_runs[erm_runs["binding"].isin(part["binding"])]
                for cue, metric in CUE_GAPS.items():
                    four = [
                        accuracies
                        for runs_of in (part, erm_part)
                        for accuracies in terms(runs_of, metric, METRIC_SET.differences)
                    ]
                    verdict = judge_gap(pd.concat(four, axis=1).to_numpy(dtype=float).T)
                    if not reference:
                        verdict |= {"verdict": "no verdict", "reason": ""}
                    reasons = "; ".join(filter(None, (reason, verdict["reason"])))
                    description |= {"binding": binding, "bindings": part["binding"].nunique()}
                    description |= {"cue": cue, "reference": reference}
                    rows.append({**description, **verdict, "reason": reasons})
    columns = [
        "study",
        *BASELINE,
        "binding",
        "bindings",
        "cue",
        "gap",
        "reference",
        "reference_gap",
    ]
    columns += ["difference", "low", "high", "n", "verdict", "reason"]
    return pd.DataFrame(rows, columns=columns)


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


def judge_gap(four: np.ndarray) -> dict:
    """A method's gap compared with ERM's, paired by sample.

    four: float[4, samples], NaN where a run is missing: the method's accuracy where the cue
    misleads and in distribution, then ERM's. difference = mean gap - mean reference gap, with its
    `sample_interval`. worse: the interval lies below zero, and so does that of the gap itself
    (where no accuracy is lost, no shortcut is taken); better: the interval lies above zero. How
    often these contain the true value: `python benchmarks/simulated_statistics.py`.
    """
    four = four[:, ~np.isnan(four).any(axis=0)]
    n = four.shape[1]
    misled, inside, its_misled, its_inside = four
    gap, its_gap = estimate(misled - inside).mean, estimate(its_misled - its_inside).mean
    low, high = sample_interval([misled, its_inside], [inside, its_misled])
    loses = sample_interval(misled, inside)[1] < 0
    shortage = f"fewer than {FEWEST} samples" if n else "no sample has runs of both"
    return {
        "gap": gap,
        "reference_gap": its_gap,
        "difference": gap - its_gap,
        "low": low,
        "high": high,
        "n": n,
        "verdict": "worse" if high < 0 and loses else "better" if low > 0 else "cannot tell",
        "reason": "" if n >= FEWEST else shortage,
    }
