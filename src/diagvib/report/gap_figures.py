"""Figures of studies with two cues: what each method loses where a cue misleads, and what a
narrower gap costs."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from diagvib.papers.whac_a_mole.comparison import Comparison, MethodGaps, comparisons_of
from diagvib.papers.whac_a_mole.finding import whole_points
from diagvib.papers.whac_a_mole.groups import CUE_GAPS, GAPS
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    HELD_OUT,
    INK,
    MUTED,
    RULE,
    TRAINED,
    Drawing,
    add_legend,
    by_baseline,
    is_stacked,
    new_panels,
)
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.reader_tables import interval

# The words and the look of a bar by its verdict; an ERM has none.
_HOLLOW = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.9}
_LOOKS = {
    "": {"label": "ERM", "facecolor": MUTED},
    "better": {"label": "better than ERM", "facecolor": TRAINED},
    "worse": {"label": "worse than ERM, by how much", "facecolor": HELD_OUT},
    "cannot tell": {"label": "cannot tell", **_HOLLOW},
    "no verdict": {"label": "not judged", **_HOLLOW, "linestyle": (0, (2, 2))},
}
# Points of in-distribution accuracy that an axis shows at least.
_LEAST_WIDTH = 20
_JOINT = {"label": "both mislead: not judged", "facecolor": MUTED, "alpha": 0.45}
_LOST = "points of accuracy lost"
_CAPTION = (
    "Bars: points of accuracy that a method loses where one cue or both mislead, relative to "
    "in-distribution images. Broken lines: what ERM with the same model loses on the same bindings "
    "and samples. Thin lines: 95 % "
    "intervals over the {samples}. Hollow bars: the difference from ERM is not judged, or not certain. "
    "In brackets: how much more than ERM, where that is certain."
)


def gap_figures(report_data: ReportData) -> Iterator[Figure]:
    """For each study with two cues, its gaps by binding (folded but for the first, the mean if
    there are several), and what narrower gaps cost."""
    known_studies = report_data.known_studies
    for study, study_comparisons in comparisons_of(report_data.frames, known_studies).items():
        for comparison in study_comparisons:
            yield Figure(
                f"gaps/{study}_{comparison.binding or 'all'}",
                f"{comparison.heading}: gaps of every method",
                partial(gap_bars, comparison),
                METRIC_SETS["gaps"].title,
                f"{known_studies.studies[study].meaning}. {known_studies.in_words(_CAPTION, [study])}",
                folded=comparison is not study_comparisons[0],
            )
        yield Figure(
            f"gaps/pareto_{study}",
            f"{known_studies.title(study)}: what a narrower gap costs",
            partial(gap_pareto, study_comparisons[0]),
            METRIC_SETS["gaps"].title,
            "Filled: no other method is better in both.",
        )


def gap_bars(comparison: Comparison) -> Drawing | None:
    """Every method's gaps as bars: those of both cues and the joint gap, on one scale; None where
    nothing ran.

    Thin lines are the 95 % intervals of the gaps, broken ones those of the ERM with the same
    model, on the same images. Bars worse than that are labelled. The id of a bar is `tip: ` and what it shows.
    """
    methods, cues = comparison.methods, comparison.cues
    if not comparison.ran:
        return None
    narrow = is_stacked()
    size, margin = (3.2, 0.4 * len(methods)), (0, 2.9 if narrow else 1.55)
    figure, panels = new_panels(len(GAPS), len(GAPS), size, margin)
    for axes, cue, metric in zip(panels, (*CUE_GAPS, 0), GAPS, strict=True):
        condition = f"where {cues[cue]} misleads" if cue else "where both mislead"
        axes.axvline(0, color=MUTED, linewidth=0.8)
        for y, method in enumerate(methods):
            _draw_gap(axes, y, method, cue, metric, condition)
            lost = -100 * comparison.reference_gap(method, metric)
            look = {"color": INK, "linewidth": 1.1, "linestyle": (0, (3, 2)), "zorder": 4}
            axes.vlines([lost] * (lost == lost), y - 0.5, y + 0.5, **look)
        axes.tick_params(axis="y", which="both", length=0)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_xlabel(_LOST, fontsize=8)
        axes.set_title(condition, fontsize=10, pad=11)
    panels[0].margins(x=0.2)
    panels[0].set_ylim(len(methods) - 0.4, -0.75)
    for axes in panels if narrow else panels[:1]:
        _name_rows(axes, methods)
    verdicts = {judged_method.verdict(cue) for judged_method in comparison.ran for cue in CUE_GAPS}
    looks = [look for verdict, look in _LOOKS.items() if verdict in verdicts]
    if not all(method.is_reference for method in comparison.ran):
        looks.append(_JOINT)
    handles = [Patch(**look) for look in looks]
    effect = "accuracy lost where a cue misleads"
    if any(judged_method.opens_another for judged_method in methods):
        effect = "fixing one shortcut makes another worse"
    title = f"{comparison.heading}:" + ("\n" if narrow else " ") + effect
    size = {"size": 10 if narrow else 12, "weight": 700}
    add_legend(figure, handles, title=title, title_fontproperties=size)
    return figure


def _draw_gap(
    axes: Axes, y: int, method: MethodGaps, cue: int, metric: str, condition: str
) -> None:
    """cue: 0 for the joint gap."""
    row, verdict = method.rows[metric], method.verdict(cue)
    if not row.n:
        axes.text(0, y, " missing", va="center", fontsize=8, color=MUTED)
        return
    look = _LOOKS[verdict] if cue or method.is_reference else _JOINT
    (bar,) = axes.barh(y, -100 * row.mean, height=0.62, zorder=2, **look)
    bar.set_gid(
        f"tip: {method.named}, {condition}: {_tip(row, method.verdicts.get(cue))} {method.samples}"
    )
    axes.hlines(y, -100 * row.high, -100 * row.low, color=INK, linewidth=0.8, zorder=3)
    text, look = str(-whole_points(row.mean)), {"color": INK}
    if verdict == "worse":
        text += f"  ({-whole_points(method.verdicts[cue].difference):+})"
        look = {"color": HELD_OUT, "fontweight": 700}
    axes.annotate(
        text,
        (-100 * np.nanmin([row.mean, row.low, 0]), y),
        xytext=(4, 0),
        zorder=5,
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.8},
        **look,
    )


def _tip(row, verdict) -> str:
    """A bar's numbers in words. row: of the set of metrics; verdict: of the comparison with ERM, None
    where nothing is judged."""
    text = f"gap {100 * row.mean:z.1f} points (95 %: {interval(row.low, row.high, change=True)})"
    if verdict and verdict.reference_gap == verdict.reference_gap:
        text += f"; {verdict.reference}: gap {100 * verdict.reference_gap:z.1f}"
        text += f", difference {interval(verdict.low, verdict.high, change=True)}"
    if verdict:
        text += f": {verdict.verdict}" + (f" ({verdict.reason})" if verdict.reason else "")
    return f"{text}; n = {row.n} of {row.expected}"


def _name_rows(axes: Axes, methods: Sequence[MethodGaps]) -> None:
    """Each method's name and, in small print below it, its supervision."""
    rows = np.arange(len(methods))
    several = len({method.model for method in methods}) > 1
    small = [f"{method.model}, {method.labels}" if several else method.labels for method in methods]
    axes.set_yticks(rows - 0.12, [method.baseline for method in methods], fontsize=9.5)
    axes.set_yticks(rows + 0.25, small, minor=True, fontsize=7, color=MUTED)


def gap_pareto(comparison: Comparison) -> Drawing | None:
    """In-distribution accuracy on the x axis, what the worse of the two cues costs on the y axis, a
    marker per method; methods that no other beats in both are filled and joined by a line. None where
    nothing ran."""
    methods = comparison.ran
    if not methods:
        return None
    points = np.array(
        [[100 * method.mean("id_accuracy"), 100 * method.worst_gap] for method in methods]
    )
    front = not_beaten(points)
    narrow = is_stacked()
    figure, (axes,) = new_panels(1, 1, (6.6, 5.2 if narrow else 4.2), (0, 0))
    axes.plot(*points[front][np.argsort(points[front][:, 0])].T, color=RULE, zorder=1)
    looks = by_baseline(method.baseline for method in methods)
    for (name, (colour, marker)), point, on_front in zip(looks.items(), points, front, strict=True):
        look = {"marker": marker, "markersize": 8, "markeredgecolor": colour, "label": name}
        axes.plot(*point, linestyle="none", markerfacecolor=colour if on_front else "none", **look)
    axes.axhline(0, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.margins(0.12)
    better = "\nup and right is better" if narrow else " up and right is better"
    # No narrower than what matters: a few points of accuracy must not fill the axis.
    axes.set(
        xlim=(min(axes.get_xlim()[0], 100 - _LEAST_WIDTH), 101),
        title=f"{comparison.heading}:{better}",
        xlabel="in-distribution accuracy, %",
        ylabel="points lost where the worse cue misleads\n(0: no cue misleads it)",
    )
    axes.yaxis.set_major_formatter(lambda gap, _: f"{-gap:g}" if gap else "0")
    look = {"loc": "outside upper left", "ncols": 2}
    figure.legend(fontsize=8.5, **(look if narrow else {"loc": "outside right upper"}))
    return figure


def not_beaten(points: np.ndarray) -> np.ndarray:
    """Of float[n, 2], where more is better: bool[n], true where no other point is as good in both
    and better in one."""
    at_least = (points[:, None] <= points[None]).all(-1)
    return ~(at_least & (points[:, None] < points[None]).any(-1)).any(1)
