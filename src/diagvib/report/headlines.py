"""The findings of each set of metrics, from its tables: a sentence and a few bars."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np
import pandas as pd

from diagvib.report.figure import Material
from diagvib.report.judged import comparisons, reference_sentence
from diagvib.results.combinations import change_interval, run_warnings
from diagvib.results.metric_sets import METRIC_SETS
from diagvib.results.metric_sets.gaps import CUE_GAPS
from diagvib.results.metric_sets.shortcut import telling_bindings
from diagvib.results.table import interval, whole_percent
from diagvib.results.tables import metrics_of
from diagvib.results.uncertainty import FEWEST, half_width, image_interval
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.study import Headline

# Baselines that have a headline of their own, where the cue is the shortcut.
_MOST_BASELINES = 3
# A share of wrong predictions from which on they follow the cue, where there are other classes.
_MOSTLY = 0.5


@dataclass
class Finding:
    """A sentence, and bars: what each is the accuracy of, and its value. section: the title of the
    section that it belongs to; intervals: of the bars that have one, their 95 % intervals."""

    section: str
    text: str
    chance: float
    accuracies: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


def findings(material: Material) -> list[Finding]:
    """Those of every set of metrics that has results."""
    sets = (shortcut_findings, _gaps, _average, _watermark, _accuracy)
    return [finding for of_set in sets for finding in of_set(material)]


def cautions(material: Material, *baselines: str, studies: Sequence[str]) -> str:
    """What a reader must know of a finding from these runs, as sentences: missing, doubtful,
    combinations without test images."""
    if (runs := material.frames.get("runs")) is None:
        return ""
    runs = runs[runs["baseline"].isin(baselines) & runs["study"].isin(studies)]
    missing = int((runs["status"] != "ok").sum())
    texts = [run_warnings(runs)]
    if missing:
        texts.insert(0, f"{missing} of {len(runs)} runs {'is' if missing == 1 else 'are'} missing")
    text = "; ".join(filter(None, texts))
    return f" Caution: {text}." if text else ""


@dataclass(frozen=True)
class Effect:
    """A difference of accuracies and its 95 % interval."""

    change: float
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def reach(self) -> str:
        """`95 % interval -15.1 to +1.2 points`."""
        if isnan(self.low):
            return "too few samples for an interval"
        return f"95 % interval {interval(self.low, self.high, change=True)} points"


def _effect(material: Material, changed_keys: dict, reference_keys: dict) -> Effect:
    """Of one accuracy less another, paired by sample. first, second: the columns of runs, and
    `group`."""
    if (runs := material.frames.get("runs")) is None:
        return Effect(nan, nan, nan)

    def values(names: dict) -> tuple[pd.Series, float]:
        group = names["group"]
        conditions = [runs[key].eq(name) for key, name in names.items() if key != "group"]
        key_runs = runs[np.logical_and.reduce(conditions)].set_index("sample")
        columns = key_runs.reindex(columns=[f"{group}_accuracy", f"{group}_n"]).astype(float)
        return columns.iloc[:, 0], columns.iloc[:, 1].sum()

    (changed, images), (reference, reference_images) = values(changed_keys), values(reference_keys)
    common_samples = changed.index.intersection(reference.index)
    return Effect(
        *change_interval(
            changed.reindex(common_samples),
            reference.reindex(common_samples),
            images,
            reference_images,
        )
    )


def shortcut_findings(material: Material) -> Iterator[Finding]:
    """The most telling binding of each of some baselines; only baselines and studies that ran."""
    known_studies, p = material.known, material.frames["p_matrix"]
    headline = known_studies.headline(p["study"])
    if headline is None:
        return
    bindings = telling_bindings(p, known_studies)
    finished = bindings[bindings["shortcut"].notna()]
    best, pairs = (
        finished.drop_duplicates("baseline").head(_MOST_BASELINES),
        finished["baseline"].value_counts(),
    )
    for row in best.itertuples():
        studies = (headline.without, headline.shortcut, row.by)
        bars, intervals = {}, {}
        for study, value in zip(studies, (row.without, row.shortcut, row.recovered), strict=True):
            if value == value:
                label = f"{known_studies.title(study)}: {known_studies.studies[study].meaning}"
                bars[label] = value
                intervals[label] = _range(p, row, study)
        text = _shortcut_text(row, pairs[row.baseline], material, headline)
        text += cautions(material, row.baseline, studies=studies)
        chance = known_studies.chance(headline.shortcut)
        yield Finding(METRIC_SETS["shortcut"].title, text, chance, bars, intervals)


def _range(p: pd.DataFrame, binding, study: str) -> tuple[float, float]:
    """The 95 % t interval of P_ij from its standard error; without one, over the images."""
    of_binding = (p["study"] == study) & (p["baseline"] == binding.baseline)
    rows = p[of_binding & (p["target"] == binding.target) & p["cue"].isin(["", binding.cue])]
    row = rows[(rows["group"] == "ood") | (rows["cue"] == "")].iloc[-1]
    if row["n"] >= FEWEST:
        reach = half_width(row["n"] - 1) * row["stderr"]
        return max(0.0, row["mean"] - reach), min(1.0, row["mean"] + reach)
    images = row.get("images", nan) * row["n"]
    if not images > 0:
        return nan, nan
    return tuple(map(float, image_interval(row["mean"], images)))


def _shortcut_text(row, pairs: int, material: Material, headline: Headline) -> str:
    """row: of `telling_bindings`."""
    known_studies, choice_note = (
        material.known,
        f" (the clearest of {pairs} pairs)" if pairs > 1 else "",
    )
    names = {"baseline": row.baseline, "target": row.target}
    misled = {**names, "study": headline.shortcut, "cue": row.cue, "group": "ood"}
    without_cue = {**names, "study": headline.without, "cue": "", "group": "id"}
    text = (
        f"Trained with {row.cue} as a shortcut to {row.target}{choice_note}, {row.baseline} recognises {row.target} "
        f"in {whole_percent(row.shortcut)} of the test images where {row.cue} misleads"
    )
    if row.without != row.without:
        text += "."
    else:
        loss = _effect(material, misled, without_cue)
        if loss.is_shown:
            text += f", instead of {whole_percent(row.without)} ({loss.reach})."
        else:
            text += f", and without a shortcut in {whole_percent(row.without)}: {_unseen(loss)}."
    if row.recovered == row.recovered:
        help_ = _effect(material, {**misled, "study": row.by}, misled)
        verb = "raise" if help_.change > 0 else "lower"
        name, value = known_studies.studies[row.by].opportunity, whole_percent(row.recovered)
        text += (
            f" {name} {verb} it to {value} ({help_.reach})."
            if help_.is_shown
            else f" With {name[:1].lower()}{name[1:]} it is {value}: {_unseen(help_)}."
        )
    return text


def _unseen(effect: Effect) -> str:
    if isnan(effect.low):
        return f"fewer than {FEWEST} samples cannot show an effect"
    return f"no effect is seen ({effect.reach})"


def _gaps(material: Material) -> Iterator[Finding]:
    """The accuracy that the first ERM loses where cues mislead."""
    known_studies, frames = material.known, material.frames
    for study, of_study in comparisons(
        metrics_of(frames, "gaps"), frames["whac_a_mole"], known_studies
    ).items():
        for method in of_study[0].ran:
            if method.is_reference:
                inside, cues = method.rows["id_accuracy"], of_study[0].cues
                labels = {"id_accuracy": "in distribution"}
                labels |= {gap: f"{cues[cue]} misleads" for cue, gap in CUE_GAPS.items()}
                labels |= {"joint_gap": "both mislead"}
                bars, intervals = {}, {}
                for metric, label in labels.items():
                    row, base = method.rows[metric], 0 if metric == "id_accuracy" else inside.mean
                    bars[label] = base + row.mean
                    intervals[label] = (base + row.low, base + row.high)
                text = reference_sentence(of_study[0], method)
                text += cautions(material, method.baseline, studies=[study])
                title, chance = METRIC_SETS["gaps"].title, known_studies.chance(study)
                yield Finding(title, text, chance, bars, intervals)
                return


def _average(material: Material) -> Iterator[Finding]:
    """The first baseline on the first study with environments, beside the best of the others."""
    for study, target, cue, rows in _by_study(material, "average"):
        by_metric = {
            name: metric_rows.set_index("baseline") for name, metric_rows in rows.groupby("metric")
        }
        tested = by_metric["accuracy"]["mean"].dropna()
        if tested.empty:
            continue
        known_studies, inside = material.known, by_metric["id_accuracy"]["mean"]
        first_baseline, other_baselines = tested.index[0], tested.iloc[1:]
        run = {"study": study, "binding": rows["binding"].iloc[0], "group": "ood"}
        loss = _effect(
            material,
            {**run, "baseline": first_baseline},
            {**run, "baseline": first_baseline, "group": "id"},
        )
        text = (
            f"{first_baseline} recognises {target} in {whole_percent(inside[first_baseline])} of the "
            f"images of its training environments ({known_studies.title(study)}), and "
            f"in {whole_percent(tested[first_baseline])} of those of the test "
            f"environment, where {cue} points to other classes"
        )
        text += f" ({loss.reach})." if loss.is_shown else f": {_unseen(loss)}."
        bars = {
            f"{first_baseline}, training environments": inside[first_baseline],
            f"{first_baseline}, test environment": tested[first_baseline],
        }
        sources = [("id_accuracy", first_baseline), ("accuracy", first_baseline)]
        if len(other_baselines):
            best = other_baselines.idxmax()
            rank = (
                f"highest of {len(other_baselines)} other baselines"
                if len(other_baselines) > 1
                else "other baseline"
            )
            gain = _effect(material, {**run, "baseline": best}, {**run, "baseline": first_baseline})
            sure = gain.reach if gain.is_shown else f"no difference is seen, {gain.reach}"
            text += f" The {rank} is {best}, with {whole_percent(other_baselines[best])} ({sure})."
            bars[f"{best}, test environment"] = other_baselines[best]
            sources.append(("accuracy", best))
        intervals = {
            label: _ends(by_metric[metric].loc[baseline])
            for label, (metric, baseline) in zip(bars, sources, strict=True)
        }
        text += cautions(material, *{name: 0 for _, name in sources}, studies=[study])
        yield Finding(
            METRIC_SETS["average"].title, text, known_studies.chance(study), bars, intervals
        )
        return


def _ends(row: pd.Series) -> tuple[float, float]:
    return row.get("low", nan), row.get("high", nan)


def _watermark(material: Material) -> Iterator[Finding]:
    """What the watermark does to the first baseline on the first study."""
    for study, target, _, rows in _by_study(material, "watermark"):
        baseline, known_studies = rows["baseline"].iloc[0], material.known
        metrics = rows[rows["baseline"] == baseline].set_index("metric")
        means = metrics["mean"]
        clean, gap = means["in1k_accuracy"], means["in_w_gap"]
        before, change = means["p_carton"], means["delta_p_carton"]
        if gap != gap:
            continue
        run = {"study": study, "binding": rows["binding"].iloc[0], "baseline": baseline}
        loss = Effect(gap, *_ends(metrics.loc["in_w_gap"]))
        if isnan(loss.low):
            loss = _effect(material, {**run, "group": "in-w"}, {**run, "group": "in-1k"})
        rise = Effect(change, *_ends(metrics.loc["delta_p_carton"]))
        text = (
            f"{baseline} recognises the {target} in {whole_percent(clean)} of the images "
            f"({known_studies.title(study)}), and in {whole_percent(clean + gap)} with the watermark"
        )
        text += f" ({loss.reach})." if loss.is_shown else f": {_unseen(loss)}."
        text += (
            f" The mean probability of a carton is {whole_percent(before)} without it and "
            f"{whole_percent(before + change)} with it ({rise.reach})."
        )
        text += cautions(material, baseline, studies=[study])
        bars = {"without the watermark": clean, "with the watermark": clean + gap}
        ends = _ends(metrics.loc["in1k_accuracy"]), (clean + loss.low, clean + loss.high)
        intervals = dict(zip(bars, ends, strict=True))
        yield Finding(
            METRIC_SETS["watermark"].title, text, known_studies.chance(study), bars, intervals
        )
        return


def _accuracy(material: Material) -> Iterator[Finding]:
    """The first baseline on the study with the combination of classes that loses most to its cue;
    without cues, or where no cue points to a class, on the study with the worst combination."""
    known_studies, table = material.known, material.frames["combinations"]
    tested = table[table["mean"].notna()]
    firsts = {
        study: rows["baseline"].iloc[0] for study, rows in tested.groupby("study", sort=False)
    }
    tested = tested[tested["baseline"] == tested["study"].map(firsts)]
    misled = tested[tested["change"].notna()]
    if tested.empty:
        return
    significant = misled[misled["change_high"] < 0]
    rows = significant if len(significant) else misled if len(misled) else tested
    row = rows.loc[rows["change" if len(misled) else "mean"].idxmin()]
    binding_rows = tested[(tested["study"] == row["study"]) & (tested["binding"] == row["binding"])]
    bars, intervals = {}, {}
    for combination in binding_rows.to_dict("records"):
        label = " on ".join(filter(None, (combination["target_class"], combination["cue_class"])))
        bars[label], intervals[label] = (
            combination["mean"],
            (combination["low"], combination["high"]),
        )
    text = _combination_text(row) if len(misled) else _worst_text(row, known_studies)
    text += cautions(material, row["baseline"], studies=[row["study"]])
    title = METRIC_SETS["accuracy"].title
    yield Finding(title, text, known_studies.chance(row["study"]), bars, intervals)


def _combination_text(row: pd.Series) -> str:
    """`On forest, erm calls 99 % of bird mammal: it follows background.`"""
    effect = Effect(*row[["change", "change_low", "change_high"]])
    follows_cue = row["followed"] >= _MOSTLY * (1 - row["mean"])
    place, target, cue = row["cue_class"], row["target_class"], row["cue"].partition("-")[0]
    if effect.high < 0 and follows_cue:
        return (
            f"On {place}, {row['baseline']} calls {whole_percent(row['followed'])} of {target} "
            f"{row['cue_label']}: it follows {cue}. It recognises {target} in "
            f"{whole_percent(row['mean'])} there, and in "
            f"{whole_percent(row['mean'] - row['change'])} where {cue} points to it "
            f"({effect.reach})."
        )
    text = (
        f"On {place}, {row['baseline']} recognises {target} in {whole_percent(row['mean'])} of the "
        f"test images, and in {whole_percent(row['mean'] - row['change'])} where {cue} points to it"
    )
    return text + (f" ({effect.reach})." if effect.is_shown else f": {_unseen(effect)}.")


def _worst_text(row: pd.Series, known_studies: KnownStudies) -> str:
    name = " on ".join(filter(None, (row["target_class"], row["cue_class"])))
    return (
        f"{row['baseline']} recognises {row['target']} in {whole_percent(row['mean'])} of the test "
        f"images of its worst combination of classes, {name} ({known_studies.title(row['study'])})."
    )


def _by_study(material: Material, name: str) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Study, target, cue, and rows of a set of metrics: of the first binding of each study, and of
    the baselines with numbers for it."""
    rows = metrics_of(material.frames, name)
    rows = rows[(rows["study"] != "") & (rows["binding"] != "")]
    for study, study_rows in rows.groupby("study", sort=False):
        study_rows = study_rows[study_rows["binding"] == study_rows["binding"].iloc[0]]
        study_rows = study_rows[
            study_rows["baseline"].isin(study_rows.loc[study_rows["mean"].notna(), "baseline"])
        ]
        if study_rows.empty:
            continue
        yield (
            study,
            study_rows["target"].iloc[0],
            study_rows["cue"].iloc[0] or "the cue",
            study_rows,
        )


def shortcut_sentences(material: Material) -> tuple[str, str]:
    """A sentence about the curves and one about the matrix; empty where nothing ran."""
    known_studies, p = material.known, material.frames["p_matrix"]
    headline, metrics = known_studies.headline(p["study"]), metrics_of(material.frames, "shortcut")
    curve = metrics[(metrics["metric"] == "faavg") & metrics["mean"].notna()]
    if headline is None or curve.empty:
        return "", ""
    first_curve = curve[curve["baseline"] == curve["baseline"].iloc[0]]
    # Only of targets that ran in all studies, or a study's mean would be of others.
    wide = first_curve.pivot(index="target", columns="study", values="mean")[
        first_curve["study"].unique()
    ]
    complete = wide.dropna()
    means_text = ", ".join(
        f"{known_studies.title(name)} {whole_percent(value)}"
        for name, value in complete.mean().dropna().items()
    )
    targets = "the targets"
    if len(complete) < len(wide):
        targets = f"{len(complete)} of {len(wide)} targets, which ran everywhere"
    curves = (
        f"{first_curve['baseline'].iloc[0]}, mean over {targets}: {means_text}."
        if means_text
        else ""
    )
    cells = p[(p["study"] == headline.shortcut) & (p["group"] == "ood") & p["mean"].notna()]
    if cells.empty:
        return curves, ""
    chance, lowest = known_studies.chance(headline.shortcut), cells.loc[cells["mean"].idxmin()]
    several = cells["baseline"].nunique() > 1
    unit = "combinations of baseline, target and cue" if several else "pairs of target and cue"
    matrix = (
        f"Accuracy is below chance in {int((cells['mean'] < chance).sum())} of {len(cells)} trained "
        f"{unit} ({known_studies.title(headline.shortcut)}). The lowest is "
        f"{lowest['target']} by {lowest['cue']}, {whole_percent(lowest['mean'])} ({lowest['baseline']})."
    )
    return curves, matrix
