"""Curves of accuracy: FAAvg and FAMin along routes of studies, from no shortcut to nothing but the
shortcut (paper, Figs. 4b and 5b); and the map of shortcuts, for each target and cue the accuracy
where the cue misleads by its share of counter-examples."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from diagvib.papers.diagvib6.finding import CURVES
from diagvib.papers.diagvib6.published import PAPER_CUES, paper_range
from diagvib.papers.diagvib6.verdicts import COMPARED
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    MUTED,
    RULE,
    Drawing,
    add_legend,
    by_baseline,
    draw_chance,
    new_figure,
    new_panels,
)
from diagvib.results.metric_sets import cue_strength
from diagvib.results.reader_tables import in_order, metrics_of
from diagvib.studies.known_studies import KnownStudies

_STRENGTH = (
    "Accuracy where the cue misleads, by the share of training images in which it does. Rows: targets; columns: cues. "
    "Bands: 95 % intervals over the {samples}, if there are three. Half-way: where half of the loss is won back."
)
_LINES = {
    "without a shortcut": {"linestyle": (0, (4, 2))},
    "half-way": {"marker": "|", "linestyle": "none", "markersize": 10},
    "chance": {"linestyle": (0, (1, 2))},
}


def curve_figures(report_data: ReportData) -> Iterator[Figure]:
    known_studies, comparison = report_data.known_studies, report_data.frames["comparison"]
    metrics = metrics_of(report_data.frames, "shortcut")
    compared = comparison.loc[comparison["verdict"].isin(COMPARED), "baseline"]
    beside_paper = not metrics["baseline"].isin(compared).all()
    titles = {"faavg": "FAAvg, the mean over cues", "famin": "FAMin, the worst cue"}
    # With a single cue, FAMin equals FAAvg.
    for metric in titles if metrics["cues"].max() > 1 else ["faavg"]:
        for route, studies in shown_routes(metrics, known_studies).items():
            title = f"{titles[metric]}: {' → '.join(map(known_studies.title, studies))}"
            draw = partial(study_curves, metrics, metric, studies, known_studies, beside_paper)
            yield Figure(f"curves/{metric}_{route}", title, draw, CURVES, title)


def shown_routes(metrics: pd.DataFrame, known_studies: KnownStudies) -> dict[str, list[str]]:
    """The configured studies of each route, at least two; a route is left out if another one shows
    all its studies."""
    configured = set(metrics["study"])
    routes_with_runs = {
        route: [study for study in studies if study in configured]
        for route, studies in known_studies.routes.items()
    }
    routes: dict[str, list[str]] = {}
    for route, studies in sorted(routes_with_runs.items(), key=lambda item: -len(item[1])):
        if len(studies) > 1 and not any(
            set(studies) <= set(route_studies) for route_studies in routes.values()
        ):
            routes[route] = studies
    return routes


def study_curves(
    metrics: pd.DataFrame,
    metric: str,
    studies: list[str],
    known_studies: KnownStudies,
    beside_paper: bool = False,
) -> Drawing:
    """FAAvg or FAMin along a route of studies, a panel per target factor, a line per baseline,
    bands of one stderr.

    metrics: the rows of the set `shortcut` in the table `metrics`. A missing point is a cross on
    the axis, an incomplete one hollow. beside_paper: the range of the paper's nine, over the same
    cues, is a grey band and its resnet18 a dashed line, for baselines without a compared cell.
    """
    of_study = {
        study: metric if known_studies.studies[study].cues else "faavg" for study in studies
    }
    # Of a study without cues, faavg is its P_i.
    rows = metrics[metrics["metric"] == metrics["study"].map(of_study)]
    targets = in_order(rows["target"], known_studies.factors(studies))
    figure, panels = new_panels(len(targets), 3, (2.6, 2.35), (1.2, 0.7))
    looks = by_baseline(metrics["baseline"].unique())
    for axes, target in zip(panels, targets, strict=True):
        target_rows = rows[rows["target"] == target]
        if beside_paper:
            studies_with_all_cues = set(
                target_rows.loc[target_rows["cues"].isin([0, PAPER_CUES]), "study"]
            )
            keys = [
                (study if study in studies_with_all_cues else "", target, study_metric)
                for study, study_metric in of_study.items()
            ]
            _draw_range(axes, *paper_range().reindex(keys).to_numpy().T)
        for chance in dict.fromkeys(map(known_studies.chance, studies)):
            draw_chance(axes, chance)
            axes.text(-0.2, chance + 0.015, "chance", va="bottom", fontsize=7, color=MUTED)
        _draw_baselines(axes, target_rows, studies, looks)
        axes.set_xticks(range(len(studies)), map(known_studies.title, studies), fontsize=7.5)
        cues = sorted({*target_rows["cues"].astype(int)} - {0})
        n_cues = max(known_studies.possible_cues(study)[target] for study in studies)
        incomplete = cues and cues[0] < n_cues
        axes.set_title(
            target + (f" ({' or '.join(map(str, cues))} of {n_cues} cues)" if incomplete else "")
        )
    figure.supylabel({"faavg": "FAAvg", "famin": "FAMin"}[metric], fontsize=9)
    add_legend(figure)
    return figure


def _draw_range(axes: Axes, low: np.ndarray, high: np.ndarray, resnet: np.ndarray) -> None:
    if np.isfinite(low).sum() > 1:  # one point makes no line
        look = {"color": RULE, "alpha": 0.6, "linewidth": 0, "zorder": 0}
        label = "paper's nine, range (reference)"
        axes.fill_between(range(len(low)), low, high, label=label, **look)
        look = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (4, 2)), "zorder": 1}
        axes.plot(resnet, label="paper's resnet18 (reference)", **look)


def _draw_baselines(
    axes: Axes, rows: pd.DataFrame, studies: list[str], looks: dict[str, tuple[str, str]]
) -> None:
    for baseline, (colour, marker) in looks.items():
        means = rows[rows["baseline"] == baseline].set_index("study").reindex(studies)
        x, mean, stderr = np.arange(len(means)), means["mean"].to_numpy(), means["stderr"].fillna(0)
        axes.fill_between(x, mean - stderr, mean + stderr, color=colour, alpha=0.18, linewidth=0)
        dots = {"linestyle": "none", "color": colour, "marker": marker, "markersize": 5}
        axes.plot(x, mean, **dots | {"linestyle": "-"}, label=baseline, clip_on=False)
        missing = (means["n"] == 0).to_numpy()
        partial = (means["n"].fillna(0) < means["expected"].fillna(0)).to_numpy() & ~missing
        hollow, cross = {"markerfacecolor": "white"}, {"marker": "x", "markersize": 7, "mew": 2}
        for marked, y, look in ((partial, mean, hollow), (missing, 0 * x, cross)):
            if marked.any():
                axes.plot(x[marked], y[marked], **dots | look, clip_on=False)
    axes.set(ylim=(0, 1), xlim=(-0.25, len(studies) - 0.75), yticks=[0, 0.5, 1])
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)


def cue_strength_figures(report_data: ReportData) -> Iterator[Figure]:
    """A figure for each spread with a line for each baseline; then, for baselines with several
    spreads, one with a line for each of these."""
    frame, known_studies = report_data.frames["cue_strength"], report_data.known_studies
    if frame.empty:
        return
    factors = known_studies.factors(frame["study"])
    chance = known_studies.chance(frame["study"].iloc[0])
    caption = known_studies.in_words(_STRENGTH, frame["study"])
    for spread, spread_rows in frame.groupby("spread", sort=False):
        heading = cue_strength.TITLE + ("" if spread == 1 else f": spread {100 * spread:g} %")
        draw = partial(strength_curves, spread_rows, "baseline", factors, chance)
        name = f"cue_strength/spread_{100 * spread:g}"
        yield Figure(name, heading, draw, cue_strength.TITLE, caption, folded=spread < 1)
    for baseline, spread_rows in frame.groupby("baseline", sort=False):
        if spread_rows["spread"].nunique() > 1:
            labelled_rows = spread_rows.assign(
                spread=[f"spread {100 * share:g} %" for share in spread_rows["spread"]]
            )
            draw = partial(strength_curves, labelled_rows, "spread", factors, chance)
            title = f"How visible a cue must be: {baseline}"
            yield Figure(f"cue_strength/{baseline}", title, draw, cue_strength.TITLE, caption)


def strength_curves(frame: pd.DataFrame, by: str, factors: list[str], chance: float) -> Drawing:
    """A panel for each target and cue, a line for each value of the column `by`. frame: of
    `cue_strength`; factors: of the scene. Panels of pairs that are not configured are left out."""
    targets, cues = (in_order(frame[role], factors) for role in ("target", "cue"))
    figure = new_figure(1.4 * len(cues) + 1.4, 1.3 * len(targets) + 1.2)
    grid = figure.subplots(len(targets), len(cues), sharex=True, sharey=True, squeeze=False)
    looks, shares = by_baseline(frame[by].unique()), np.unique(frame["counter_examples"])
    for (target, cue), axes in zip(product(targets, cues), grid.flat, strict=True):
        if target == targets[0]:
            axes.set_title(f"cue {cue}", loc="center", fontsize=9)
        if cue == cues[0]:
            axes.text(-0.55, 0.5, target, rotation=90, va="center", transform=axes.transAxes)
        panel_rows = frame[(frame["target"] == target) & (frame["cue"] == cue)]
        if panel_rows.empty:
            axes.set_axis_off()
            continue
        draw_chance(axes, chance)
        for name, curve in panel_rows.groupby(by, sort=False):
            _draw_strength(axes, name, curve, looks[name])
    ticks = shares[np.unique([0, 1, len(shares) // 2, len(shares) - 1])]
    last = grid[-1, -1]
    last.set_xscale("symlog", linthresh=shares[1], linscale=0.5)
    last.set(ylim=(-0.03, 1.03), yticks=[0, 0.5, 1], xlim=(0, shares[-1] * 1.15))
    last.set_xticks(ticks, [f"{100 * share:.3g}" for share in ticks])
    last.xaxis.set_minor_locator(NullLocator())
    # Pairs that are not configured are off, and with them the labels that all panels share.
    for line in grid:
        next(axes for axes in line if axes.axison).tick_params(labelleft=True)
    for line in grid.T:
        lowest = [axes for axes in line if axes.axison][-1]
        lowest.tick_params(labelbottom=True)
    figure.supxlabel("training images in which the cue misleads, %", fontsize=9)
    figure.supylabel("accuracy where the cue misleads, by target", fontsize=9)
    handles = [
        Line2D([], [], color=colour, marker=marker, label=name)
        for name, (colour, marker) in looks.items()
    ]
    for label, line in _LINES.items():
        handles.append(Line2D([], [], color=MUTED, linewidth=1, label=label, **line))
    add_legend(figure, handles)
    return figure


def _draw_strength(axes: Axes, name: str, curve: pd.DataFrame, look: tuple[str, str]) -> None:
    colour, marker = look
    x, mean, low, high = curve[["counter_examples", "mean", "low", "high"]].to_numpy().T
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    line = {"color": colour, "linewidth": 1.3, "marker": marker, "markersize": 3}
    axes.plot(x, mean, label=name, clip_on=False, **line)
    without, half = curve[["without", "half_way"]].iloc[0]
    axes.axhline(without, color=colour, linewidth=0.8, linestyle=(0, (4, 2)), alpha=0.7)
    if 0 < half < 1:
        axes.axvline(half, color=colour, linewidth=0.8, alpha=0.7)
    axes.grid(axis="y", color=RULE, linewidth=0.5)
    axes.tick_params(labelsize=7, color=MUTED)
    axes.set_axisbelow(True)
