"""Figures of studies with two cues: what each method loses where a cue misleads, and what a
narrower gap costs."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from diagvib.report.judged import (
    Judged,
    cue_names,
    judged_methods,
    supervision_words,
    whole_points,
)
from diagvib.report.style import (
    BASELINE_COLOURS,
    BASELINE_MARKERS,
    HELD_OUT,
    INK,
    MUTED,
    RULE,
    TRAINED,
    new_figure,
    styled,
)
from diagvib.results.gaps import CUE_GAPS, GAPS
from diagvib.results.known_studies import SHIPPED, KnownStudies

# The look of a bar by its verdict; an ERM has none.
_HOLLOW = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.9}
_LOOKS = {
    "": {"facecolor": MUTED},
    "worse": {"facecolor": HELD_OUT},
    "better": {"facecolor": TRAINED},
    "cannot tell": _HOLLOW,
    "no verdict": _HOLLOW | {"linestyle": (0, (2, 2))},
}
_LEGEND = {
    "": "ERM",
    "better": "better than ERM",
    "worse": "worse than ERM, by how much",
    "cannot tell": "cannot tell",
    "no verdict": "not judged",
}
_JOINT = {"facecolor": MUTED, "alpha": 0.45}
# Inches: the height of a row, the width of all panels together.
_ROW, _PANELS = 0.4, 6.4


def gap_bars(
    gaps: pd.DataFrame, whac: pd.DataFrame, study: str, binding: str, known: KnownStudies = SHIPPED
) -> Figure | None:
    """Every method's gaps as bars: those of both cues and the joint gap, on one scale; None where
    nothing ran.

    gaps, whac: of `gaps.gaps_tables`; binding: empty for the mean over all. Thin lines are the 95 %
    intervals of the gaps, broken ones the gap of the ERM that a method is compared with. Bars worse
    than that are labelled.
    """
    methods, cues = judged_methods(gaps, whac, study, binding), cue_names(binding)
    if not any(one.ran for one in methods):
        return None
    titles = {
        metric: f"where {cues[cue]} misleads{f' (cue {cue})' if binding else ''}"
        for cue, metric in CUE_GAPS.items()
    } | {metric: "where both mislead" for metric in GAPS if metric not in CUE_GAPS.values()}
    ends = _ends(methods)
    start = (
        -1.05 * max(0, *(one.mean(metric) for one in methods for metric in GAPS if one.ran)) * 100
    )
    with styled():
        figure = new_figure(_PANELS + 3.2, _ROW * len(methods) + 1.55)
        grid = figure.subplots(
            1, len(GAPS), sharey=True, width_ratios=[end - start for end in ends.values()]
        )
        for axes, (metric, title) in zip(grid, titles.items(), strict=True):
            _draw_gaps(axes, methods, metric)
            axes.set(xlim=(start, ends[metric]), ylim=(len(methods) - 0.4, -0.75))
            axes.set_title(title, fontsize=10, pad=11)
            axes.locator_params(axis="x", nbins=6)
            axes.xaxis.set_major_formatter(lambda lost, _: f"{-lost:.0f}" if lost else "0")
        _name_rows(grid[0], methods, cues)
        grid[0].set_xlabel(
            "gap: points of accuracy lost relative to in-distribution images",
            fontsize=8,
            loc="left",
        )
        shown = {one.verdict(cue) for one in methods for cue in CUE_GAPS if one.ran}
        handles = [
            Patch(**_LOOKS[verdict], label=label)
            for verdict, label in _LEGEND.items()
            if verdict in shown
        ]
        figure.legend(
            handles=handles,
            title=gap_title(methods, study, binding, known),
            loc="outside upper left",
            ncols=len(handles),
            fontsize=8.5,
            alignment="left",
            title_fontproperties={"size": 12, "weight": 700},
        )
    return figure


def gap_title(methods: Sequence[Judged], study: str, binding: str, known: KnownStudies) -> str:
    """The Whac-A-Mole effect where the verdicts show it, otherwise what the figure is about."""
    opens = any(one.opens_another for one in methods)
    about = (
        "fixing one shortcut makes another worse" if opens else "accuracy lost where a cue misleads"
    )
    return f"{known.title(study)}, {binding or 'mean over bindings'}: {about}"


def _ends(methods: Sequence[Judged]) -> dict[str, float]:
    """How far to the right each panel extends, in points, to fit its bars, intervals and labels;
    the same for both cues."""
    reach = {
        metric: max([5, *(_end(one.rows[metric]) for one in methods if one.ran)]) for metric in GAPS
    }
    letter = sum(reach.values()) / 80  # the approximate width of a letter
    needed = {metric: reach[metric] + 5 * letter for metric in GAPS}
    for cue, metric in CUE_GAPS.items():
        worse = [
            _end(one.rows[metric]) + 12 * letter
            for one in methods
            if one.ran and one.verdict(cue) == "worse"
        ]
        needed[metric] = max([needed[metric], *worse])
    return needed | dict.fromkeys(
        CUE_GAPS.values(), max(needed[metric] for metric in CUE_GAPS.values())
    )


def _end(row) -> float:
    """The right end of a row's bar or interval, in points."""
    return -100 * float(np.nanmin([row.mean, row.low, 0]))


def _draw_gaps(axes: Axes, methods: Sequence[Judged], metric: str) -> None:
    cue = next((cue for cue, name in CUE_GAPS.items() if name == metric), None)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for y, one in enumerate(methods):
        row = one.rows[metric]
        if not row.n:
            axes.text(0, y, " missing", va="center", fontsize=8, color=MUTED)
            continue
        (bar,) = axes.barh(
            y,
            -100 * row.mean,
            height=0.62,
            zorder=2,
            **(_LOOKS[one.verdict(cue)] if cue or one.is_reference else _JOINT),
        )
        bar.set_gid(f"{one.baseline}.{metric}")
        axes.hlines(y, -100 * row.high, -100 * row.low, color=INK, linewidth=0.8, zorder=3)
        worse = cue is not None and one.verdict(cue) == "worse"
        mark = f"  ({whole_points(one.verdicts[cue].difference)})" if worse else ""
        axes.annotate(
            f"{whole_points(row.mean)}{mark}",
            (_end(row), y),
            xytext=(4, 0),
            zorder=5,
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            annotation_clip=False,
            color=HELD_OUT if worse else INK,
            fontweight=700 if worse else 400,
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.8},
        )
    lines = _reference_gaps(methods, cue, metric)
    if methods[0].is_reference and 0 in lines:
        axes.text(-100 * lines[0], -0.52, "ERM", ha="center", va="bottom", fontsize=7, color=INK)
    for y, gap in lines.items():
        axes.vlines(
            -100 * gap,
            y - 0.5,
            y + 0.5,
            color=INK,
            linewidth=1.1,
            linestyle=(0, (3, 2)),
            zorder=4,
            gid=f"reference.{y}",
        )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", labelsize=7.5)


def _reference_gaps(methods: Sequence[Judged], cue: int | None, metric: str) -> dict[int, float]:
    """By row, the gap of the ERM that a method is compared with; for an ERM its own; empty if there
    is none."""
    of = {one.baseline: one.mean(metric) for one in methods if one.is_reference and one.ran}
    gaps = {
        y: of.get(
            one.baseline
            if one.is_reference
            else one.verdicts[1].reference
            if 1 in one.verdicts
            else "",
            np.nan,
        )
        for y, one in enumerate(methods)
    }
    if cue:
        # Over the dataset samples that both have, like the verdict.
        gaps |= {
            y: one.verdicts[cue].reference_gap
            for y, one in enumerate(methods)
            if cue in one.verdicts
            and one.verdicts[cue].reference_gap == one.verdicts[cue].reference_gap
        }
    return {y: gap for y, gap in gaps.items() if gap == gap}


def _name_rows(axes: Axes, methods: Sequence[Judged], cues: Mapping[int, str]) -> None:
    """Each method's name and, in small print below it, what it is told."""
    axes.set_yticks(range(len(methods)), [""] * len(methods))
    several = len({one.model for one in methods}) > 1
    for y, one in enumerate(methods):
        small = ", ".join(
            filter(
                None, (one.model if several else "", supervision_words(one.supervision, dict(cues)))
            )
        )
        for text, up, look in (
            (one.baseline, 5 if small else 0, {"fontsize": 9.5}),
            (small, -6, {"fontsize": 7, "color": MUTED}),
        ):
            axes.annotate(
                text,
                (0, y),
                xycoords=("axes fraction", "data"),
                xytext=(-6, up),
                ha="right",
                va="center",
                textcoords="offset points",
                annotation_clip=False,
                **look,
            )


def gap_pareto(
    gaps: pd.DataFrame, whac: pd.DataFrame, study: str, binding: str, known: KnownStudies = SHIPPED
) -> Figure | None:
    """In-distribution accuracy on the x axis, the worse of the two cue gaps on the y axis, a marker
    per method; methods that no other beats in both are filled and joined by a line. None where
    nothing ran."""
    methods = [one for one in judged_methods(gaps, whac, study, binding) if one.ran]
    if not methods:
        return None
    points = np.array([[100 * one.mean("id_accuracy"), 100 * one.worst_gap] for one in methods])
    front = not_beaten(points)
    looks = _by_told(methods)
    with styled():
        figure = new_figure(6.6, 4.7)
        axes = figure.add_subplot()
        best = points[front][np.argsort(points[front][:, 0], kind="stable")]
        axes.plot(*best.T, color=RULE, linewidth=1.5, zorder=1)
        for one, (x, y), kept in zip(methods, points, front, strict=True):
            colour, marker, _ = looks[one.supervision]
            axes.plot(
                x,
                y,
                linestyle="none",
                marker=marker,
                markersize=8 if kept else 6.5,
                markeredgecolor=colour,
                markerfacecolor=colour if kept else "none",
                alpha=1 if kept else 0.7,
                gid=f"point.{one.baseline}",
            )
        for colour, marker, label in looks.values():
            axes.plot([], [], linestyle="none", marker=marker, color=colour, label=label)
        axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.margins(0.12)
        axes.set(
            xlabel="in-distribution accuracy, %",
            ylabel="the worse of the two gaps, points (0: no cue misleads it)",
        )
        figure.legend(
            loc="outside upper left",
            ncols=3,
            fontsize=8,
            alignment="left",
            title=f"{known.title(study)}, {binding or 'mean over bindings'}: up and right is better",
        )
        _label_points(axes, [one.baseline for one in methods], points, front)
    return figure


def _by_told(methods: Sequence[Judged]) -> dict[str, tuple[str, str, str]]:
    """Colour, marker and label by what a method is told."""
    supervision = list(dict.fromkeys(one.supervision for one in methods))
    return {
        name: (
            BASELINE_COLOURS[i % 9],
            BASELINE_MARKERS[i % 9],
            supervision_words(name, {}).replace("cue-", "cue ") or "methods",
        )
        for i, name in enumerate(supervision)
    }


def not_beaten(points: np.ndarray) -> np.ndarray:
    """Of float[n, 2], where more is better: bool[n], true where no other point is as good in both
    and better in one."""
    at_least = (points[:, None] <= points[None]).all(-1)
    return ~(at_least & (points[:, None] < points[None]).any(-1)).any(1)


# Where a label may be placed next to its point: horizontal and vertical alignment, offset in points
# of type.
_PLACES = (
    ("left", "center", 7, 0),
    ("right", "center", -7, 0),
    ("center", "bottom", 0, 6),
    ("center", "top", 0, -6),
    ("left", "bottom", 5, 4),
    ("right", "bottom", -5, 4),
    ("left", "top", 5, -4),
    ("right", "top", -5, -4),
    ("left", "bottom", 6, 14),
    ("left", "top", 6, -14),
    ("right", "bottom", -6, 14),
    ("right", "top", -6, -14),
)


def _label_points(axes: Axes, names: Sequence[str], points: np.ndarray, strong: np.ndarray) -> None:
    """Each point's name, in the first position next to it where it covers no other name and no
    point; the points that nothing beats choose first."""
    axes.figure.draw_without_rendering()
    renderer = axes.figure.canvas.get_renderer()
    marks = axes.transData.transform(points)
    taken, frame = [], axes.get_window_extent(renderer)
    for at in sorted(range(len(names)), key=lambda i: (not strong[i], *points[i])):
        label = axes.annotate(
            names[at],
            points[at],
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=8.5,
            fontweight=700 if strong[at] else 400,
            color=INK if strong[at] else MUTED,
            annotation_clip=False,
            in_layout=False,
        )
        for ha, va, right, up in _PLACES:
            label.set(ha=ha, va=va, position=(right, up))
            box = label.get_window_extent(renderer)
            covered = sum(box.overlaps(other) for other in taken) + sum(
                box.padded(6).contains(*mark) for i, mark in enumerate(marks) if i != at
            )
            if not covered and frame.x0 <= box.x0 and box.x1 <= frame.x1 + 40:
                break
        taken.append(label.get_window_extent(renderer))
