"""The findings of each set of metrics, from its tables: a sentence and a few bars."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from diagvib.report.figure import Material
from diagvib.report.judged import comparisons, reference_sentence
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets import METRIC_SETS
from diagvib.results.metric_sets.gaps import CUE_GAPS
from diagvib.results.metric_sets.shortcut import telling_bindings
from diagvib.results.table import whole_percent
from diagvib.results.tables import metrics_of

# Baselines that have a headline of their own, where the cue is the shortcut.
_MOST = 3


@dataclass
class Finding:
    """A sentence, and bars: what each is the accuracy of, and its value. section: the title of the
    section that it belongs to."""

    section: str
    text: str
    chance: float
    accuracies: dict[str, float]


def findings(material: Material) -> list[Finding]:
    """Those of every set of metrics that has results."""
    sets = (shortcut_findings, _gaps, _average, _watermark, _accuracy)
    return [finding for of_set in sets for finding in of_set(material)]


def shortcut_findings(material: Material) -> Iterator[Finding]:
    """The most telling binding of each of some baselines; only baselines and studies that ran."""
    known, p = material.known, material.frames["p_matrix"]
    headline = known.headline(p["study"])
    if headline is None:
        return
    bindings = telling_bindings(p, known)
    ran = bindings[bindings["shortcut"].notna()]
    best, pairs = ran.drop_duplicates("baseline").head(_MOST), ran["baseline"].value_counts()
    for row in best.itertuples():
        bars = {}
        for study, value in (
            (headline.without, row.without),
            (headline.shortcut, row.shortcut),
            (row.by, row.recovered),
        ):
            if value == value:
                bars[f"{known.title(study)}: {known.studies[study].meaning}"] = value
        text = _shortcut_text(row, pairs[row.baseline], known)
        chance = known.chance(headline.shortcut)
        yield Finding(METRIC_SETS["shortcut"].title, text, chance, bars)


def _shortcut_text(row, pairs: int, known: KnownStudies) -> str:
    chosen = f" (the clearest of {pairs} pairs)" if pairs > 1 else ""
    text = (
        f"Trained with {row.cue} as a shortcut to {row.target}{chosen}, {row.baseline} recognises {row.target} "
        f"in {whole_percent(row.shortcut)} of the test images where {row.cue} misleads"
    )
    text += f", instead of {whole_percent(row.without)}." if row.without == row.without else "."
    if row.recovered == row.recovered:
        change = row.recovered - row.shortcut
        verb = (
            "leave it at" if abs(change) <= 0.05 else "raise it to" if change > 0 else "lower it to"
        )
        text += f" {known.studies[row.by].opportunity} {verb} {whole_percent(row.recovered)}."
    return text


def _gaps(material: Material) -> Iterator[Finding]:
    """The accuracy that the first ERM loses where cues mislead."""
    known, frames = material.known, material.frames
    for study, of_study in comparisons(
        metrics_of(frames, "gaps"), frames["whac_a_mole"], known
    ).items():
        for one in of_study[0].ran:
            if one.is_reference:
                inside, cues = one.mean("id_accuracy"), of_study[0].cues
                bars = {"in distribution": inside}
                for cue, gap in CUE_GAPS.items():
                    bars[f"{cues[cue]} misleads"] = inside + one.mean(gap)
                bars["both mislead"] = inside + one.mean("joint_gap")
                text = reference_sentence(of_study[0], one)
                yield Finding(METRIC_SETS["gaps"].title, text, known.chance(study), bars)
                return


def _average(material: Material) -> Iterator[Finding]:
    """The first baseline on the first study with environments, beside the best of the others."""
    for study, target, cue, rows in _by_study(material, "average"):
        tested = rows.loc[rows["metric"] == "accuracy"].set_index("baseline")["mean"].dropna()
        inside = rows.loc[rows["metric"] == "id_accuracy"].set_index("baseline")["mean"]
        if tested.empty:
            continue
        known = material.known
        first, others = tested.index[0], tested.iloc[1:]
        text = (
            f"{first} recognises {target} in {whole_percent(inside[first])} of the images of its training "
            f"environments ({known.title(study)}), and in {whole_percent(tested[first])} of those of the test "
            f"environment, where {cue} points to other classes."
        )
        bars = {
            f"{first}, training environments": inside[first],
            f"{first}, test environment": tested[first],
        }
        if len(others):
            best = others.idxmax()
            which = (
                f"highest of {len(others)} other baselines" if len(others) > 1 else "other baseline"
            )
            text += f" The {which} is {best}, with {whole_percent(others[best])}."
            bars[f"{best}, test environment"] = others[best]
        yield Finding(METRIC_SETS["average"].title, text, known.chance(study), bars)
        return


def _watermark(material: Material) -> Iterator[Finding]:
    """What the watermark does to the first baseline on the first study."""
    for study, target, _, rows in _by_study(material, "watermark"):
        baseline, known = rows["baseline"].iloc[0], material.known
        own = rows[rows["baseline"] == baseline].set_index("metric")["mean"]
        clean, gap = own["in1k_accuracy"], own["in_w_gap"]
        before, change = own["p_carton"], own["delta_p_carton"]
        if gap != gap:
            continue
        text = (
            f"{baseline} recognises the {target} in {whole_percent(clean)} of the images ({known.title(study)}), and in "
            f"{whole_percent(clean + gap)} with the watermark. This changes the mean probability of a carton from "
            f"{whole_percent(before)} to {whole_percent(before + change)}."
        )
        bars = {"without the watermark": clean, "with the watermark": clean + gap}
        yield Finding(METRIC_SETS["watermark"].title, text, known.chance(study), bars)
        return


def _accuracy(material: Material) -> Iterator[Finding]:
    """The first baseline on the study and test group with the lowest worst cell, and on the study's
    other groups."""
    known, found = material.known, []
    for study, target, _, rows in _by_study(material, "accuracy"):
        baseline = rows["baseline"].iloc[0]
        own = rows[rows["baseline"] == baseline].set_index("metric")["mean"]
        found += [
            (worst, study, group, target, own, baseline)
            for group in known.studies[study].groups
            if (worst := own.get(f"{group}_worst_cell", float("nan"))) == worst
        ]
    if not found:
        return
    worst, study, group, target, own, baseline = min(found, key=lambda each: each[0])
    text = (
        f"{baseline} recognises {target} in {whole_percent(own[f'{group}_accuracy'])} of "
        f"the test images of group {group} ({known.title(study)}), and in {whole_percent(worst)} of those "
        "of its worst combination of classes."
    )
    bars = {}
    for name in known.studies[study].groups:
        bars[f"group {name}"] = own[f"{name}_accuracy"]
        bars[f"group {name}, worst cell"] = own[f"{name}_worst_cell"]
    yield Finding(METRIC_SETS["accuracy"].title, text, known.chance(study), bars)


def _by_study(material: Material, name: str) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Study, target, cue, and rows of a set of metrics: of the first binding of each study, and of
    the baselines with numbers for it."""
    rows = metrics_of(material.frames, name)
    rows = rows[(rows["study"] != "") & (rows["binding"] != "")]
    for study, own in rows.groupby("study", sort=False):
        own = own[own["binding"] == own["binding"].iloc[0]]
        own = own[own["baseline"].isin(own.loc[own["mean"].notna(), "baseline"])]
        if own.empty:
            continue
        yield study, own["target"].iloc[0], own["cue"].iloc[0] or "the cue", own


def shortcut_sentences(material: Material) -> tuple[str, str]:
    """A sentence about the curves and one about the matrix; empty where nothing ran."""
    known, p = material.known, material.frames["p_matrix"]
    headline, metrics = known.headline(p["study"]), metrics_of(material.frames, "shortcut")
    curve = metrics[(metrics["metric"] == "faavg") & metrics["mean"].notna()]
    if headline is None or curve.empty:
        return "", ""
    first = curve[curve["baseline"] == curve["baseline"].iloc[0]]
    # Only of targets that ran in all studies, or a study's mean would be of others.
    wide = first.pivot(index="target", columns="study", values="mean")[first["study"].unique()]
    whole = wide.dropna()
    shown = ", ".join(
        f"{known.title(name)} {whole_percent(value)}"
        for name, value in whole.mean().dropna().items()
    )
    of = "the targets"
    if len(whole) < len(wide):
        of = f"{len(whole)} of {len(wide)} targets, which ran everywhere"
    curves = f"{first['baseline'].iloc[0]}, mean over {of}: {shown}." if shown else ""
    ran = p[(p["study"] == headline.shortcut) & (p["group"] == "ood") & p["mean"].notna()]
    if ran.empty:
        return curves, ""
    chance, lowest = known.chance(headline.shortcut), ran.loc[ran["mean"].idxmin()]
    several = ran["baseline"].nunique() > 1
    what = "combinations of baseline, target and cue" if several else "pairs of target and cue"
    matrix = (
        f"Accuracy is below chance in {int((ran['mean'] < chance).sum())} of {len(ran)} trained "
        f"{what} ({known.title(headline.shortcut)}). The lowest is "
        f"{lowest['target']} by {lowest['cue']}, {whole_percent(lowest['mean'])} ({lowest['baseline']})."
    )
    return curves, matrix
