"""The price of selection by method: what each would give with validation images of another kind."""

from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import INK, MUTED, PALETTE, RULE, Drawing, add_legend, new_panels
from diagvib.results.metric_sets.metric_set import of_all_bindings
from diagvib.results.selection_price import IMAGES, KINDS, ORACLE, TITLE
from diagvib.studies.known_studies import KnownStudies

_CAPTION = (
    "Accuracy of the worst test group if the epoch had been chosen on validation images with as many of each group, with "
    f"groups as in training (i.i.d.), or by the worst group; filled: {IMAGES[-1]} images of each group, hollow: "
    f"{IMAGES[0]}. Bar: the best epoch, chosen on test images. Means over the {{samples}}; nothing was trained again."
)
_LABELS = {"balanced": "balanced", "iid": "i.i.d.", "worst": "worst group"}
_MARKS = dict(zip(KINDS, "oDs", strict=True))


def price_figures(report_data: ReportData) -> Iterator[Figure]:
    prices = report_data.frames["selection_price"]
    if len(prices):
        draw = partial(price_dots, of_all_bindings(prices), report_data.known_studies)
        caption = report_data.known_studies.in_words(_CAPTION, report_data.studies)
        yield Figure("selection/price", f"{TITLE}, by method", draw, TITLE, caption, folded=True)


def price_dots(prices: pd.DataFrame, known_studies: KnownStudies) -> Drawing:
    """A panel for each study, a row for each baseline. prices: of `selection_prices`, a binding or
    the mean over several for each baseline."""
    baselines = prices["baseline"].unique()
    studies = prices.groupby("study", sort=False)
    margin = 0.07 * max(map(len, baselines)) + 0.3, 0.8
    figure, panels = new_panels(len(studies), 3, (2.6, 0.22 * len(baselines) + 0.5), margin)
    for axes, (study, rows) in zip(panels, studies, strict=True):
        means = rows.pivot(index="baseline", columns="rule", values="mean").reindex(baselines)
        for row, name in enumerate(baselines):
            _draw_method(axes, row, means.loc[name])
        axes.set_title(known_studies.title(study))
        axes.set_yticks(range(len(baselines)), baselines)
        axes.set(xlim=(-0.02, 1.02), ylim=(len(baselines) - 0.5, -0.5), xticks=[0, 0.5, 1])
        axes.grid(axis="x", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
    for kind, mark in _MARKS.items():
        colour = PALETTE[[*KINDS].index(kind)]
        panels[0].plot([], [], mark, color=colour, markersize=5, label=_LABELS[kind])
    panels[0].plot([], [], "|", color=INK, markersize=9, label="best epoch")
    for axes in panels:
        axes.set_xlabel("accuracy of the worst test group", fontsize=8)
    add_legend(figure)
    return figure


def _draw_method(axes: Axes, row: int, means: pd.Series) -> None:
    axes.plot(means[ORACLE], row, "|", color=INK, markersize=9)
    for position, (kind, mark) in enumerate(_MARKS.items()):
        few, many = (means[f"{kind}_{images}"] for images in (IMAGES[0], IMAGES[-1]))
        height, colour = row + 0.22 * (position - 1), PALETTE[position]
        axes.hlines(height, *sorted((few, many)), color=MUTED, linewidth=0.7)
        dot = {"color": colour, "markersize": 4, "clip_on": False}
        axes.plot(few, height, mark, markerfacecolor="white", **dot)
        axes.plot(many, height, mark, **dot)
