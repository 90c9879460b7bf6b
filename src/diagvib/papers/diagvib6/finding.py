"""What P_ij shows, in sentences and bars: the most telling binding, curves, the matrix, baselines."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from diagvib.results.effects import cautions, effect_of, interval_of, unseen
from diagvib.results.metric_sets.metric_set import Finding
from diagvib.results.metrics import below_chance
from diagvib.results.reader_tables import (
    Frames,
    interval,
    metrics_of,
    points,
    untrained,
    whole_percent,
)
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import ID, OOD

# The titles of sections of the page.
CURVES = "From no shortcut to nothing but the shortcut"
MATRIX = "Target by cue"
# Baselines that have a headline of their own, where the cue is the shortcut.
_MOST_BASELINES = 3


def telling_bindings(p: pd.DataFrame, known_studies: KnownStudies) -> pd.DataFrame:
    """Which bindings show a shortcut best: baseline, target, cue, without, shortcut, recovered, by
    (study); best first.

    p: the table of `p_matrix`. without, shortcut: accuracies in the two studies that the headline
    compares, in the second where the cue misleads; recovered: the best of the studies that offer an
    opportunity. NaN if nothing ran. No rows if no headline covers these studies.
    """
    columns = ["baseline", "target", "cue", "without", "shortcut", "recovered", "by"]
    headline = known_studies.headline(p["study"])
    if headline is None:
        return pd.DataFrame(columns=columns)
    cells = p[((p["group"] == OOD) | (p["cue"] == "")) & (p["n"] > 0)]
    offering = [name for name, study in known_studies.studies.items() if study.opportunity]
    rows = []
    for baseline, target, cue in p.loc[p["cue"] != "", columns[:3]].drop_duplicates().to_numpy():
        target_cells = cells[(cells["baseline"] == baseline) & (cells["target"] == target)]
        means = target_cells[target_cells["cue"].isin(["", cue])].set_index("study")["mean"]
        offering_means = means[means.index.isin(offering)]
        best = (
            (offering_means.max(), offering_means.idxmax()) if len(offering_means) else (np.nan, "")
        )
        pair = (means.get(name, np.nan) for name in (headline.without, headline.shortcut))
        rows.append((baseline, target, cue, *pair, *best))
    bindings = pd.DataFrame(rows, columns=columns)
    score = bindings["without"].fillna(1) - 2 * bindings["shortcut"]
    score += bindings["recovered"].fillna(bindings["shortcut"])
    order = score.sort_values(ascending=False, kind="stable").index
    return bindings.loc[order].reset_index(drop=True)


def shortcut_findings(
    section: str, tables: Frames, known_studies: KnownStudies
) -> Iterator[Finding]:
    """The most telling binding of each of some baselines; only baselines and studies that ran. section:
    its title."""
    p = tables["p_matrix"]
    headline = known_studies.headline(p["study"])
    if headline is None:
        return
    bindings = telling_bindings(p, known_studies)
    finished = bindings[bindings["shortcut"].notna()]
    best = finished.drop_duplicates("baseline").head(_MOST_BASELINES)
    pairs = finished["baseline"].value_counts()
    for row in best.itertuples():
        studies = (headline.without, headline.shortcut, row.by)
        bars, intervals = {}, {}
        for study, value in zip(studies, (row.without, row.shortcut, row.recovered), strict=True):
            if value == value:
                label = f"{known_studies.title(study)}: {known_studies.studies[study].meaning}"
                bars[label] = value
                keys = {"study": study, **_keys(row, bool(known_studies.studies[study].cues))}
                intervals[label] = interval_of(tables, known_studies, keys)
        text = _shortcut_text(row, pairs[row.baseline], tables, known_studies)
        text += cautions(tables, row.baseline, studies=studies)
        chance = known_studies.chance(headline.shortcut)
        yield Finding(section, text, chance, bars, intervals)


def _keys(row, misled: bool) -> dict[str, str]:
    """Keys of `effect_of`, but for the study, of a row of `telling_bindings`: where its cue misleads,
    or in a study without cues."""
    cue, group = (row.cue, OOD) if misled else ("", ID)
    return {"baseline": row.baseline, "target": row.target, "cue": cue, "group": group}


def _shortcut_text(row, pairs: int, tables: Frames, known_studies: KnownStudies) -> str:
    """row: of `telling_bindings`."""
    headline = known_studies.headline(tables["p_matrix"]["study"])
    choice_note = f" (the clearest of {pairs} pairs)" if pairs > 1 else ""
    misled = {"study": headline.shortcut, **_keys(row, True)}
    without_cue = {"study": headline.without, **_keys(row, False)}
    origin = f"Trained with {row.cue} as a shortcut to {row.target}"
    if row.baseline in untrained(tables):
        origin = "With its own outputs, not trained here"
    text = (
        f"{origin}{choice_note}, {row.baseline} recognises {row.target} "
        f"in {whole_percent(row.shortcut)} of the test images where {row.cue} misleads"
    )
    if row.without != row.without:
        text += "."
    else:
        loss = effect_of(tables, known_studies, misled, without_cue)
        if loss.is_shown:
            text += f", instead of {whole_percent(row.without)} without it ({loss.reach})."
        else:
            text += f", and without a shortcut in {whole_percent(row.without)}: {unseen(loss)}."
    if row.recovered == row.recovered:
        help_ = effect_of(tables, known_studies, {**misled, "study": row.by}, misled)
        verb = "raise" if help_.change > 0 else "lower"
        name, value = known_studies.studies[row.by].opportunity, whole_percent(row.recovered)
        text += (
            f" {name} {verb} it to {value} ({help_.reach})."
            if help_.is_shown
            else f" With {name[:1].lower()}{name[1:]} it is {value}: {unseen(help_)}."
        )
    return text


def shortcut_sentences(tables: Frames, known_studies: KnownStudies) -> tuple[str, str]:
    """A sentence about the curves and one about the matrix; empty where nothing ran."""
    p, metrics = tables["p_matrix"], metrics_of(tables, "shortcut")
    headline = known_studies.headline(p["study"])
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
    lowest = cells.loc[cells["mean"].idxmin()]
    below = int(below_chance(cells["mean"], known_studies.chance(headline.shortcut)).sum())
    several = cells["baseline"].nunique() > 1
    unit = "combinations of baseline, target and cue" if several else "pairs of target and cue"
    matrix = (
        f"Accuracy is below chance in {below} of {len(cells)} trained "
        f"{unit} ({known_studies.title(headline.shortcut)}). The lowest is that "
        f"of {lowest['target']} with {lowest['cue']} as the cue: {whole_percent(lowest['mean'])} ({lowest['baseline']})."
    )
    return curves, matrix


def overall_sentence(pairs: pd.DataFrame, known_studies: KnownStudies) -> str:
    """The largest difference of two baselines whose interval excludes 0, from the table
    `baselines`; if there is none, the largest that was measured. Empty if nothing ran."""
    if (differences := pairs.dropna(subset=["difference"])).empty:
        return ""
    significant = differences[(differences["low"] > 0) | (differences["high"] < 0)]
    rows = significant if len(significant) else differences
    largest = rows.loc[rows["difference"].abs().idxmax()]
    reach = f" ({interval(largest['low'], largest['high'], change=True)})"
    superlative = (
        f"The largest difference of two baselines that is seen ({len(significant)} of {len(differences)})"
        if len(significant)
        else f"No difference of two baselines is seen (of {len(differences)}); the largest measured"
    )
    return (
        f"{superlative}: {largest['first']} minus {largest['second']} in {known_studies.title(largest['study'])}, "
        f"{points(largest['difference'])} points{reach}."
    )
