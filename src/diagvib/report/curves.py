"""FAAvg and FAMin along routes of studies, from no shortcut to nothing but the shortcut (paper,
Figs. 4b and 5b)."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diagvib.report.style import MUTED, RULE, by_baseline, new_figure, styled
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import PAPER_CUES


def shown_routes(metrics: pd.DataFrame, known: KnownStudies = SHIPPED) -> dict[str, list[str]]:
    """The configured studies of each route, at least two; a route is left out if another one shows
    all its studies."""
    there = {
        route: [s for s in studies if s in set(metrics["study"])]
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
    route: str,
    reference: pd.DataFrame | None = None,
    known: KnownStudies = SHIPPED,
) -> Figure | None:
    """FAAvg or FAMin along a route of studies, a panel per target factor, a line per baseline,
    bands of one stderr.

    metrics: the table of `shortcut.metrics_table`. Studies that are not configured are left out of
    the axis; a missing point is a cross on the axis, an incomplete one hollow. reference: the table
    of `reference.reference_table`; where it has a row, the range of the paper's nine is a grey band
    and its resnet18 a dashed line. None if fewer than two studies of the route are configured.
    """
    rows = _of_metric(metrics, metric, known)
    studies = [study for study in known.routes[route] if study in set(rows["study"])]
    targets = [factor for factor in known.factors(studies) if factor in set(rows["target"])]
    if len(studies) < 2:
        return None
    columns = min(3, len(targets))
    with styled():
        figure = new_figure(2.6 * columns + 1.2, 2.35 * -(-len(targets) // columns) + 0.7)
        grid = figure.subplots(
            -(-len(targets) // columns), columns, sharex=True, sharey=True, squeeze=False
        )
        for axes, target in zip(grid.flat, targets, strict=False):
            if reference is not None:
                _draw_reference(
                    axes,
                    _of_metric(reference[reference["target"] == target], metric, known),
                    studies,
                )
            for chance in dict.fromkeys(known.chance(study) for study in studies):
                axes.axhline(chance, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
                axes.text(
                    -0.2, chance + 0.015, "chance", ha="left", va="bottom", fontsize=7, color=MUTED
                )
            _draw_panel(
                axes,
                rows[rows["target"] == target],
                studies,
                by_baseline(metrics["baseline"].unique()),
            )
            axes.set_xticks(
                range(len(studies)), [known.title(study) for study in studies], fontsize=7.5
            )
            axes.set_title(_panel_title(metrics, target))
        for axes in grid.flat[len(targets) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel({"faavg": "FAAvg", "famin": "FAMin"}[metric])
        drawn = [axes.get_legend_handles_labels() for axes in grid.flat]
        handles = {label: handle for both in drawn for handle, label in zip(*both, strict=True)}
        labels = list(handles)
        figure.legend(
            handles.values(),
            labels,
            loc="outside upper left",
            ncols=min(5, len(labels)),
            fontsize=8.5,
        )
    return figure


def _of_metric(rows: pd.DataFrame, metric: str, known: KnownStudies) -> pd.DataFrame:
    """The rows of a metric. A study without cues has P_i as faavg, which is used for every
    metric."""
    alone = [study for study in rows["study"].unique() if not known.studies[study].cues]
    return rows[
        (rows["metric"] == metric) | (rows["study"].isin(alone) & (rows["metric"] == "faavg"))
    ]


def _draw_reference(axes: Axes, reference: pd.DataFrame, studies: list[str]) -> None:
    paper = reference.drop_duplicates("study").set_index("study")
    paper = paper[["paper_low", "paper_high", "paper_resnet18"]].astype(float).reindex(studies)
    if paper["paper_low"].notna().any():
        x = np.arange(len(studies))
        axes.fill_between(
            x,
            paper["paper_low"],
            paper["paper_high"],
            color=RULE,
            alpha=0.6,
            linewidth=0,
            zorder=0,
            label="paper's nine, range (reference)",
        )
        axes.plot(
            x,
            paper["paper_resnet18"],
            color=MUTED,
            linewidth=1.2,
            linestyle=(0, (4, 2)),
            zorder=1,
            label="paper's resnet18 (reference)",
        )


def _panel_title(metrics: pd.DataFrame, target: str) -> str:
    cues = metrics[(metrics["target"] == target) & (metrics["cues"] > 0)]["cues"]
    few = len(cues) and cues.max() < PAPER_CUES
    return f"{target} ({cues.max():.0f} of {PAPER_CUES} cues)" if few else target


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, studies: list[str], looks: dict[str, tuple[str, str]]
) -> None:
    for baseline, (colour, marker) in looks.items():
        own = rows[rows["baseline"] == baseline].set_index("study").reindex(studies)
        x, mean, stderr = (
            np.arange(len(studies)),
            own["mean"].to_numpy(),
            own["stderr"].fillna(0).to_numpy(),
        )
        axes.fill_between(x, mean - stderr, mean + stderr, color=colour, alpha=0.18, linewidth=0)
        axes.plot(x, mean, color=colour, marker=marker, markersize=5, label=baseline, clip_on=False)
        missing = (own["n"] == 0).to_numpy()
        partial = (own["n"].fillna(0) < own["expected"].fillna(0)).to_numpy() & ~missing
        for at, y, look in (
            (partial, mean, {"marker": marker, "markersize": 5, "markerfacecolor": "white"}),
            (missing, np.zeros_like(mean), {"marker": "x", "markersize": 7, "mew": 2}),
        ):
            if at.any():
                axes.plot(x[at], y[at], linestyle="none", color=colour, clip_on=False, **look)
    axes.set(ylim=(0, 1), xlim=(-0.25, len(studies) - 0.75))
    axes.set_yticks([0, 0.5, 1])
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
