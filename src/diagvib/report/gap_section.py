"""The page's section on studies with two cues: what the tables say in sentences, and figures to
choose from."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from diagvib.report.judged import (
    Judged,
    bindings_of,
    cue_names,
    joined,
    judged_methods,
    supervision_words,
    whole_points,
)
from diagvib.results.gaps import CUE_GAPS, FEWEST
from diagvib.results.known_studies import KnownStudies
from diagvib.results.paper import interval

# Methods that widen another gap are named one by one, up to this number.
_MOST = 3

CAPTIONS = {
    "bars": "Bars: points of accuracy that a method loses where one cue or both mislead, relative to in-distribution "
    "images. Broken lines: what ERM with the same model loses. Thin lines: 95 % intervals over the dataset "
    "samples. Hollow bars: the interval of the difference from ERM contains zero, or there is none.",
    "pareto": "Filled: no other method is as good in both.",
    "preference": "Share of the predictions on validation images that match the target's class, or the class that a "
    "cue points to. Bands: one standard error over the dataset samples; dotted: chance.",
    "sheet": "Every combination of target and cues (dataset sample 0). The colour says which cue misleads.",
}

Svg = Callable[..., Markup]


def gap_section(
    frames: dict[str, pd.DataFrame], figures: Path, known: KnownStudies, inline: Svg
) -> dict | None:
    """Sentences, and every figure with the study and binding for which it is shown; None without
    such studies.

    frames: of `tables.read_tables`; inline: (path, title, tips by id) -> the figure as part of the
    page.
    """
    gaps, whac = frames["gaps"], frames["whac_a_mole"]
    studies = list(gaps["study"].unique())
    if not studies:
        return None
    drawn = [
        figure
        for study in studies
        for figure in _figures(gaps, whac, study, figures, known, inline)
    ]
    shown = {
        study: [
            figure["binding"]
            for figure in drawn
            if figure["study"] == study and figure["kind"] == "bars"
        ]
        for study in studies
    }
    shown = {study: bindings for study, bindings in shown.items() if bindings}
    first = next(iter(shown), studies[0])
    methods = judged_methods(gaps, whac, first, bindings_of(gaps, first)[0])
    return {
        "sentences": list(gap_sentences(methods, first, bindings_of(gaps, first)[0], known)),
        "figures": drawn,
        "studies": {study: known.title(study) for study in shown},
        "first": first,
        "bindings": list(
            dict.fromkeys(binding for bindings in shown.values() for binding in bindings)
        ),
        "first_binding": shown[first][0] if first in shown else "",
    }


def _figures(
    gaps: pd.DataFrame,
    whac: pd.DataFrame,
    study: str,
    figures: Path,
    known: KnownStudies,
    inline: Svg,
) -> Iterator[dict]:
    """A study's figures that were drawn, in the order of the page."""
    title = known.title(study)
    bars = [
        (
            f"gaps/{study}_{binding or 'all'}",
            "bars",
            binding,
            f"{title}, {binding or 'mean over bindings'}: gaps of every method",
        )
        for binding in bindings_of(gaps, study)
    ]
    sheets = [
        (
            f"sheets/{study}_{binding}",
            "sheet",
            None,
            f"{title}: an example of every combination of {binding}",
        )
        for binding in bindings_of(gaps, study)
        if binding
    ]
    wanted = [
        *bars,
        (f"gaps/pareto_{study}", "pareto", None, f"{title}: what a narrower gap costs"),
        (f"preference/{study}", "preference", None, f"{title}: when target and cues are learnt"),
        *sheets,
    ]
    for name, kind, binding, words in wanted:
        if (path := figures / f"{name}.svg").exists():
            tips = {}
            if kind == "bars":
                tips = dict(
                    bar_tips(judged_methods(gaps, whac, study, binding), cue_names(binding))
                )
            about = f"{title}: {known.studies[study].meaning}. " if kind == "bars" else ""
            yield {
                "study": study,
                "kind": kind,
                "binding": binding,
                "title": words,
                "caption": about + CAPTIONS[kind],
                "svg": inline(path, words, tips),
            }


def bar_tips(methods: Sequence[Judged], cues: dict[int, str]) -> Iterator[tuple[str, str]]:
    """For each bar's id, the text shown when it is pointed at."""
    places = {metric: f"where {cues[cue]} misleads" for cue, metric in CUE_GAPS.items()}
    for one in methods:
        for metric, place in (places | {"joint_gap": "where both mislead"}).items():
            row, cue = (
                one.rows[metric],
                next((cue for cue, name in CUE_GAPS.items() if name == metric), None),
            )
            if row.n:
                text = f"{_named(one, cues)}, {place}: {100 * row.mean:.1f} points"
                text += f" (95 %: {interval(row.low, row.high, change=True)})"
                judged = one.verdicts.get(cue)
                if judged and judged.reference_gap == judged.reference_gap:
                    text += f"; {judged.reference}: {100 * judged.reference_gap:.1f}"
                    text += f", difference {interval(judged.low, judged.high, change=True)}"
                if judged:
                    text += f": {judged.verdict}" + (f" ({judged.reason})" if judged.reason else "")
                yield (
                    f"{one.baseline}.{metric}",
                    f"{text}; n = {row.n} of {row.expected} dataset samples",
                )


def gap_sentences(
    methods: Sequence[Judged], study: str, binding: str, known: KnownStudies
) -> Iterator[str]:
    """The effect in words: what ERM loses, and which methods narrow or widen which gaps."""
    ran, cues = [one for one in methods if one.ran], cue_names(binding)
    if not ran:
        yield f"No run of {known.title(study)} has finished yet, so there are no numbers to show."
        return
    if references := [one for one in ran if one.is_reference]:
        yield _reference_sentence(references[0], study, binding, known)
    judged = [
        one
        for one in ran
        if any(one.cues(verdict) for verdict in ("better", "worse", "cannot tell"))
    ]
    opens = sorted(
        (one for one in judged if one.opens_another),
        key=lambda one: one.verdicts[one.cues("worse")[0]].difference,
    )
    yield from (_opens(one, cues) for one in opens[:_MOST])
    if opens[_MOST:]:
        yield f"{joined([one.baseline for one in opens[_MOST:]])} too: one gap shrinks, the other grows."
    if not judged and any(not one.is_reference for one in ran):
        yield "No ERM with the same model was run, so none of these methods' gaps is judged."
    rest = [one for one in judged if not one.opens_another]
    for verdict, verb in (("better", "narrows"), ("worse", "widens")):
        parts = [
            _one_verdict(own, which, verb, cues)
            for which in ([1, 2], [1], [2])
            if (own := [one for one in rest if one.cues(verdict) == which])
        ]
        if parts:
            yield "; ".join(parts) + "."
    if judged and not any(one.cues("worse") for one in judged):
        few = all(row.n < FEWEST for one in judged for row in one.verdicts.values())
        yield (
            f"Fewer than {FEWEST} dataset samples cannot show whether a method widens a gap."
            if few
            else "For no method does the 95 % interval show a wider gap than ERM's."
        )


def _named(one: Judged, cues: dict[int, str]) -> str:
    return ", ".join(filter(None, (one.baseline, supervision_words(one.supervision, cues))))


def _reference_sentence(one: Judged, study: str, binding: str, known: KnownStudies) -> str:
    cues, target = cue_names(binding), binding.partition("-")[0] or "the target"
    text = (
        f"{one.baseline} recognises {target} in {100 * one.mean('id_accuracy'):.0f} % of in-distribution images "
        f"({known.title(study)}{'' if binding else ', mean over bindings'})"
    )
    lost = [
        f"{whole_points(one.mean(metric))}{' points' if cue == 1 else ''} where {cues[cue]} misleads"
        for cue, metric in CUE_GAPS.items()
    ]
    return f"{text}. This changes by {', by '.join(lost)} and by {whole_points(one.mean('joint_gap'))} where both do."


def _opens(one: Judged, cues: dict[int, str]) -> str:
    """`group_dro, told hue alone: the gap of hue shrinks from -40 to -5 points, that of texture
    grows from -30 to -55.`"""
    mended, opened = one.verdicts[one.cues("better")[0]], one.verdicts[one.cues("worse")[0]]
    return (
        f"{_named(one, cues)}: the gap of {cues[mended.cue]} shrinks from {whole_points(mended.reference_gap)} to "
        f"{whole_points(mended.gap)} points, that of {cues[opened.cue]} grows from "
        f"{whole_points(opened.reference_gap)} to {whole_points(opened.gap)}."
    )


def _one_verdict(
    own: Sequence[Judged], which: Sequence[int], verb: str, cues: dict[int, str]
) -> str:
    """`lle and cf_f narrow both gaps`."""
    gaps = "both gaps" if len(which) > 1 else f"the gap of {cues[which[0]]} alone"
    verb = verb.removesuffix("s") if len(own) > 1 else verb
    return f"{joined([one.baseline for one in own])} {verb} {gaps}"
