"""FAAvg and FAMin along routes of studies, from no shortcut to nothing but the shortcut (paper,
Figs. 4b and 5b)."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    MUTED,
    RULE,
    Drawing,
    add_legend,
    by_baseline,
    draw_chance,
    new_panels,
)
from diagvib.reproduction.published import PAPER_CUES, paper_range
from diagvib.reproduction.verdicts import COMPARED
from diagvib.results.known_studies import KnownStudies
from diagvib.results.tables import metrics_of

CURVES = "From no shortcut to nothing but the shortcut"


def curve_figures(material: Material) -> Iterator[Figure]:
    known, comparison = material.known, material.frames["comparison"]
    metrics = metrics_of(material.frames, "shortcut")
    compared = comparison.loc[comparison["verdict"].isin(COMPARED), "baseline"]
    beside_paper = not metrics["baseline"].isin(compared).all()
    titles = {"faavg": "FAAvg, the mean over cues", "famin": "FAMin, the worst cue"}
    # With a single cue, FAMin equals FAAvg.
    for metric in titles if metrics["cues"].max() > 1 else ["faavg"]:
        for route, studies in shown_routes(metrics, known).items():
            title = f"{titles[metric]}: {' → '.join(map(known.title, studies))}"
            draw = partial(study_curves, metrics, metric, studies, known, beside_paper)
            yield Figure(f"curves/{metric}_{route}", title, draw, CURVES, title)


def shown_routes(metrics: pd.DataFrame, known: KnownStudies) -> dict[str, list[str]]:
    """The configured studies of each route, at least two; a route is left out if another one shows
    all its studies."""
    configured = set(metrics["study"])
    there = {
        route: [study for study in studies if study in configured]
        for route, studies in known.routes.items()
    }
    found: dict[str, list[str]] = {}
    for route, studies in sorted(there.items(), key=lambda item: -len(item[1])):
        if len(studies) > 1 and not any(set(studies) <= set(other) for other in found.values()):
            found[route] = studies
    return found


def study_curves(
    metrics: pd.DataFrame,
    metric: str,
    studies: list[str],
    known: KnownStudies,
    beside_paper: bool = False,
) -> Drawing:
    """FAAvg or FAMin along a route of studies, a panel per target factor, a line per baseline,
    bands of one stderr.

    metrics: the rows of the set `shortcut` in the table `metrics`. A missing point is a cross on
    the axis, an incomplete one hollow. beside_paper: the range of the paper's nine, over the same
    cues, is a grey band and its resnet18 a dashed line, for baselines without a compared cell.
    """
    of_study = {study: metric if known.studies[study].cues else "faavg" for study in studies}
    # Of a study without cues, faavg is its P_i.
    rows = metrics[metrics["metric"] == metrics["study"].map(of_study)]
    targets = [factor for factor in known.factors(studies) if factor in set(rows["target"])]
    figure, panels = new_panels(len(targets), 3, (2.6, 2.35), (1.2, 0.7))
    looks = by_baseline(metrics["baseline"].unique())
    for axes, target in zip(panels, targets, strict=True):
        own = rows[rows["target"] == target]
        if beside_paper:
            whole = set(own.loc[own["cues"].isin([0, PAPER_CUES]), "study"])
            keys = [
                (study if study in whole else "", target, its) for study, its in of_study.items()
            ]
            _draw_range(axes, *paper_range().reindex(keys).to_numpy().T)
        for chance in dict.fromkeys(map(known.chance, studies)):
            draw_chance(axes, chance)
            axes.text(-0.2, chance + 0.015, "chance", va="bottom", fontsize=7, color=MUTED)
        _draw_baselines(axes, own, studies, looks)
        axes.set_xticks(range(len(studies)), map(known.title, studies), fontsize=7.5)
        cues = int(own["cues"].max())
        few = f" ({cues} of {PAPER_CUES} cues)" if 0 < cues < PAPER_CUES else ""
        axes.set_title(f"{target}{few}")
    figure.supylabel({"faavg": "FAAvg", "famin": "FAMin"}[metric], fontsize=9)
    add_legend(figure, ncols=2 * min(len(targets), 3) - 1)
    return figure


def _draw_range(axes: Axes, low: np.ndarray, high: np.ndarray, resnet: np.ndarray) -> None:
    if np.isfinite(low).sum() > 1:  # one point makes no line
        label = "paper's nine, range (reference)"
        look = {"alpha": 0.6, "linewidth": 0, "zorder": 0}
        axes.fill_between(range(len(low)), low, high, color=RULE, label=label, **look)
        look = {"linewidth": 1.2, "linestyle": (0, (4, 2)), "zorder": 1}
        axes.plot(resnet, color=MUTED, label="paper's resnet18 (reference)", **look)


def _draw_baselines(
    axes: Axes, rows: pd.DataFrame, studies: list[str], looks: dict[str, tuple[str, str]]
) -> None:
    for baseline, (colour, marker) in looks.items():
        own = rows[rows["baseline"] == baseline].set_index("study").reindex(studies)
        x, mean, stderr = np.arange(len(own)), own["mean"].to_numpy(), own["stderr"].fillna(0)
        axes.fill_between(x, mean - stderr, mean + stderr, color=colour, alpha=0.18, linewidth=0)
        dots = {"linestyle": "none", "color": colour, "marker": marker, "markersize": 5}
        axes.plot(x, mean, **dots | {"linestyle": "-"}, label=baseline, clip_on=False)
        missing = (own["n"] == 0).to_numpy()
        partial = (own["n"].fillna(0) < own["expected"].fillna(0)).to_numpy() & ~missing
        hollow, cross = {"markerfacecolor": "white"}, {"marker": "x", "markersize": 7, "mew": 2}
        for at, y, look in ((partial, mean, hollow), (missing, 0 * x, cross)):
            if at.any():
                axes.plot(x[at], y[at], **dots | look, clip_on=False)
    axes.set(ylim=(0, 1), xlim=(-0.25, len(studies) - 0.75), yticks=[0, 0.5, 1])
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
