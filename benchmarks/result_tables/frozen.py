"""Linear layers on frozen networks: which factor comes first, and what methods change."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from diagvib.results.uncertainty import sample_interval
from result_tables.committed import (
    FACTORS,
    GROUPS,
    PHOTO_GROUPS,
    Row,
    by_sample,
    gain,
    percent,
    read,
    runs,
    studies,
    tested,
)
from result_tables.diagvib6 import paper

FROZEN = {
    "lite0": "ImageNet weights",
    "lite0_untrained": "random weights",
    "small_cnn": "small_cnn, end to end",
}


def frozen_accuracies() -> pd.DataFrame:
    """Accuracy of the networks of FROZEN by (study, target), and its mean over the targets, a column
    per (network, dataset sample): without a shortcut in ZSO, elsewhere where it misleads, averaged
    over five cues."""
    own = runs("frozen")
    by = [own[name] for name in ("study", "target", "baseline", "sample")]
    means = tested(own).groupby(by).mean().unstack(["baseline", "sample"])
    all_targets = means.groupby("study").mean()
    all_targets.index = [(study, "mean") for study in all_targets.index]
    return pd.concat([means, all_targets])


def frozen_table() -> list[Row]:
    """`frozen_accuracies`, averaged over the dataset samples, of networks that ran in a study; and
    those of the paper's network with ImageNet weights."""
    means = frozen_accuracies().T.groupby(level="baseline", sort=False).mean().T
    rows = [["study", "network", *FACTORS, "mean"]]
    for study in studies(means):
        for name in FROZEN:
            own = means.get(name, pd.Series(dtype=float)).reindex(means.index).loc[study]
            if own.notna().all():
                rows.append([study.upper(), FROZEN[name], *map(percent, own[rows[0][2:]])])
        theirs = paper(baseline="resnet50_in")["mean"].get(study)
        if theirs is not None:
            each = [f"{100 * theirs[target]:.0f}" for target in FACTORS]
            rows.append([study.upper(), "paper, resnet50_in", *each, percent(theirs.mean())])
    return rows


def frozen_sizes_table() -> list[Row]:
    """ZGO of Lite0 on images of 128 and of 224 pixels, the same drawings of one dataset sample."""
    small = runs("frozen").query("baseline == 'lite0' and study == 'zgo' and sample == 0")
    rows = [["pixels", *FACTORS, "mean"]]
    for size, own in (("128", small), ("224", runs("frozen_224"))):
        means = tested(own).groupby(own["target"]).mean()
        rows.append([size, *map(percent, means[[*FACTORS]]), percent(means.mean())])
    return rows


def frozen_gains(name: str, reference: str) -> list[Row]:
    """What a network has more than another by study and target, paired by dataset sample; studies
    that both ran."""
    means = frozen_accuracies()
    rows = [["study", *FACTORS, "mean"]]
    for study in studies(means):
        own = [means.loc[study, target].unstack("baseline") for target in rows[0][1:]]
        if own[0].reindex(columns=[name, reference]).notna().all(axis=None):
            rows.append([study.upper(), *(gain(one, name, reference) for one in own)])
    return rows


def recovered_table() -> list[Row]:
    """The cost of the shortcut, mean over the targets, and what FGO-20 wins back, with intervals over
    the dataset samples; networks that ran in all three studies."""
    means = frozen_accuracies().xs("mean", level=1)
    rows = [["network", "ZSO - ZGO", "FGO-20 - ZGO", "share won back, %"]]
    for name, title in FROZEN.items():
        own = means.get(name, pd.DataFrame()).T.reindex(columns=["zso", "zgo", "fgo-20"])
        if len(own) and own.notna().all(axis=None):
            share = (own["fgo-20"] - own["zgo"]) / (own["zso"] - own["zgo"])
            low, high = sample_interval(share, bounds=(-np.inf, np.inf))
            text = f"{100 * share.mean():.0f} ({100 * low:.0f} to {100 * high:.0f})"
            rows.append([title, gain(own, "zso", "zgo"), gain(own, "fgo-20", "zgo"), text])
    return rows


def frozen_methods_table() -> list[Row]:
    """Methods on frozen features: means and 95 % intervals over the dataset samples, and the gain
    over ERM, paired by sample."""
    metrics = read("frozen_environments/metrics")
    heads = ["in distribution", "test environment", "95 % interval", "over ERM"]
    rows = [["study", "method", *heads]]
    for study in metrics["study"].dropna().unique():
        accuracy = by_sample("frozen_environments", "ood_accuracy", study)
        for name in sorted(accuracy, key=lambda name: name != "lite0_erm_env"):
            own = metrics[(metrics["baseline"] == name) & (metrics["study"] == study)]
            own = own.set_index("metric")
            low, high = own.loc["accuracy", ["low", "high"]]
            row = [study, name.removeprefix("lite0_").removesuffix("_env")]
            row += [percent(own["mean"][metric]) for metric in ("id_accuracy", "accuracy")]
            row += [f"{percent(low)} to {percent(high)}", gain(accuracy, name, "lite0_erm_env")]
            rows.append(row)
    return rows


def cues_table(
    folder: str, study: str, groups: Mapping[str, str], reference: str, family: str = ""
) -> list[Row]:
    """Methods with two shortcuts: accuracy where the cues agree with the target, where one misleads
    and where both do, and the gain over the reference there, paired by sample. groups: test group
    -> its head; family: what the names of the baselines begin with, which is not printed."""
    both = by_sample(folder, "neither_accuracy", study)
    rows = [["method", *groups.values(), "over ERM"]]
    study_runs = runs(folder).query("study == @study")
    for name, method_runs in study_runs.groupby("baseline", sort=False):
        if name.startswith(family):
            cells = [percent(method_runs[f"{group}_accuracy"].mean()) for group in groups]
            rows.append([name.removeprefix(family), *cells, gain(both, name, reference)])
    return rows


def frozen_cues_table() -> list[Row]:
    return cues_table("frozen_whac_a_mole", "whac-95", GROUPS, "lite0_erm", "lite0_")


def real_photos_table() -> list[Row]:
    """`cues_table` of the photos from Debian packages with two networks, and ERM without a shortcut."""
    rows = cues_table("real_photos", "debian", PHOTO_GROUPS, "lite0_erm", "lite0_")
    rows.append(_without_shortcut("erm, no shortcut", "lite0_erm"))
    for method, *cells in cues_table("real_photos", "debian", PHOTO_GROUPS, "erm")[1:]:
        if not method.startswith("lite0_"):
            rows.append([f"small CNN, {method}", *cells])
    rows.append(_without_shortcut("small CNN, erm, no shortcut", "erm"))
    return rows


def _without_shortcut(title: str, baseline: str) -> Row:
    cell_runs = runs("real_photos").query("study == 'debian-no-shortcut'").set_index("baseline")
    cells = [
        percent(cell_runs.loc[[baseline], f"{group}_accuracy"].mean()) for group in PHOTO_GROUPS
    ]
    return [title, *cells, ""]
