"""Our numbers against the paper's."""

from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    INK,
    MUTED,
    RULE,
    Drawing,
    add_legend,
    by_baseline,
    new_figure,
)
from diagvib.reproduction.shown import VERDICT
from diagvib.reproduction.verdicts import COMPARED, DECIDED
from diagvib.results.known_studies import SHIPPED


def scatter_figures(material: Material) -> Iterator[Figure]:
    comparison = material.frames["comparison"]
    baselines = list(material.frames["p_matrix"]["baseline"].unique())
    yield Figure(
        "paper/scatter",
        "The paper's numbers (x) and ours (y)",
        partial(paper_scatter, comparison, baselines),
        VERDICT,
        "Every compared cell; on the line, ours equals the paper's.",
    )


def paper_scatter(comparison: pd.DataFrame, baselines: list[str]) -> Drawing | None:
    """Every compared cell: the paper's number on the x axis, ours on the y axis; a panel per kind
    of number.

    comparison: the table of `verdicts.comparison_table`. Bars are the 95 % intervals of the
    difference; cells that differ are ringed, undecided ones pale. None if nothing could be
    compared.
    """
    rows = comparison[comparison["verdict"].isin(COMPARED)]
    kinds = {"faavg": "FAAvg (Tables A2-A9)", "famin": "FAMin (Tables A3-A9)"}
    for metric, contrast in SHIPPED.contrasts.items():
        kinds[metric] = f"{contrast.title.partition(':')[0]} (Table 2)"
    shown = [metric for metric in kinds if (rows["metric"] == metric).any()]
    if not shown:
        return None
    figure = new_figure(3.5 * len(shown) + 0.3, 4.3)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, metric in zip(panels, shown, strict=True):
        cells = rows[rows["metric"] == metric]
        _draw_cells(axes, cells, by_baseline(baselines))
        counts = [f"{(cells['verdict'] == verdict).sum()} {verdict}" for verdict in COMPARED]
        axes.set_title(f"{kinds[metric]}\n{', '.join(counts)}", fontsize=9)
        axes.set_xlabel("paper")
    panels[0].set_ylabel("ours")
    add_legend(figure, fontsize=8)
    return figure


def _draw_cells(axes: Axes, cells: pd.DataFrame, looks: dict[str, tuple[str, str]]) -> None:
    ends = cells[["paper", "ours"]].to_numpy()
    low, high = min(0, ends.min()) - 0.02, max(1, ends.max()) + 0.02
    if cells["metric"].isin(SHIPPED.contrasts).all():
        low, high = ends.min() - 0.05, ends.max() + 0.05
    axes.plot([low, high], [low, high], color=MUTED, linewidth=1)
    bars = {"fmt": "none", "ecolor": RULE, "elinewidth": 0.8, "zorder": 1}
    axes.errorbar(cells["paper"], cells["ours"], yerr=cells["uncertainty"], **bars)
    dots = {"linestyle": "none", "markersize": 4, "markeredgewidth": 0}
    for baseline, (colour, marker) in looks.items():
        own = cells[cells["baseline"] == baseline]
        for undecided, some in own.groupby(~own["verdict"].isin(DECIDED)):
            label, alpha = (f"{baseline}, cannot tell", 0.35) if undecided else (baseline, 1)
            look = {"marker": marker, "color": colour, "alpha": alpha, "label": label, **dots}
            axes.plot(some["paper"], some["ours"], **look)
    differ = cells[cells["verdict"] == "differs"]
    if len(differ):
        ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "label": "differs"}
        ring |= {"linestyle": "none", "markeredgecolor": INK, "markeredgewidth": 0.6, "alpha": 0.7}
        axes.plot(differ["paper"], differ["ours"], **ring)
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
