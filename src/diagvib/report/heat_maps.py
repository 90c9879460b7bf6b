"""Heat maps of P_ij."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    INK,
    MUTED,
    NOT_CONFIGURED,
    Drawing,
    accuracy_colours,
    accuracy_scale,
    new_figure,
    styled,
)
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.metric_sets.shortcut import OOD, matrix_columns


def heat_map_figures(material: Material) -> Iterator[Figure]:
    """Files only: the page has the matrix."""
    p, known = material.frames["p_matrix"], material.known
    for study, baseline in p.groupby(["study", "baseline"], sort=False).groups:
        title = f"{known.title(study)}, {baseline}: accuracy by target and cue"
        draw = partial(heat_map, p, study, baseline, known)
        yield Figure(f"p_matrix/{study}_{baseline}", title, draw)


@styled()
def heat_map(p: pd.DataFrame, study: str, baseline: str, known: KnownStudies = SHIPPED) -> Drawing:
    """P_ij of one study and baseline on the fixed scale, next to P_i of a study without cues
    (paper, Fig. 4a, 5a).

    p: the table of `shortcut.p_matrix`. Missing cells are hatched, cells that are not configured
    blank grey; a cell shows n where samples are missing.
    """
    own = p[p["baseline"] == baseline]
    paired = own[(own["study"] == study) & (own["group"] == OOD)]
    factors, chance = known.factors([study]), known.chance(study)
    cues = matrix_columns(paired["cue"], factors) if len(paired) else []
    alone = without_cues(own, factors, known)
    columns = [(0, "", alone)] if len(alone) else []
    columns += [
        (1.25 + j, cue, paired[paired["cue"] == cue].set_index("target"))
        for j, cue in enumerate(cues)
    ]
    figure = new_figure(3.4 + 0.5 * len(cues), 0.7 + 0.6 * len(factors))
    axes = figure.add_subplot()
    for left, cue, rows in columns:
        for top, target in enumerate(factors):
            if cue != target:
                _draw_value(
                    axes, left, top, rows.loc[target] if target in rows.index else None, chance
                )
    axes.set(xlim=(columns[0][0], columns[-1][0] + 1), ylim=(len(factors), 0), aspect="equal")
    axes.set_yticks(np.arange(len(factors)) + 0.5, factors)
    names = [cue or known.title(alone["study"].iloc[0]) for _, cue, _ in columns]
    axes.set_xticks([left + 0.5 for left, _, _ in columns], names)
    axes.tick_params(length=0, labelbottom=False, labeltop=True, pad=4, labelsize=8.5)
    axes.set_ylabel("target factor")
    axes.spines[:].set_visible(False)
    if cues:
        axes.text(1.25 + len(cues) / 2, -0.62, "cue factor", ha="center", va="bottom")
    axes.set_title(f"{known.title(study)}, {baseline}", pad=26 if cues else 12)
    _add_scale(figure, axes, chance)
    return figure


def without_cues(p: pd.DataFrame, factors: list[str], known: KnownStudies) -> pd.DataFrame:
    """P_i of the first study without cues whose scene has these factors, a row per target."""
    like = [study for study in p["study"].unique() if known.factors([study]) == factors]
    alone = p[(p["cue"] == "") & p["study"].isin(like)]
    return alone[alone["study"].isin(alone["study"].iloc[:1])].set_index("target")


def _draw_value(
    axes: Axes, left: float, top: float, value: pd.Series | None, chance: float
) -> None:
    cell = {"xy": (left + 0.03, top + 0.03), "width": 0.94, "height": 0.94, "linewidth": 0}
    look = {"ha": "center", "va": "center", "color": INK}
    if value is None:
        axes.add_patch(Rectangle(**cell, facecolor=NOT_CONFIGURED))
    elif value["n"] == 0:
        axes.add_patch(Rectangle(**cell, facecolor="white", hatch="////", edgecolor=MUTED))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(left + 0.5, top + 0.5, "missing", fontsize=7, bbox=box, **look)
    else:
        fill, look["color"] = accuracy_colours(value["mean"], chance)
        axes.add_patch(Rectangle(**cell, facecolor=fill))
        partial = value["n"] < value["expected"]
        middle = top + (0.4 if partial else 0.5)
        axes.text(left + 0.5, middle, f"{value['mean']:.2f}", fontsize=9, **look)
        if partial:
            text = f"n={value['n']:.0f}/{value['expected']:.0f}"
            axes.text(left + 0.5, top + 0.74, text, fontsize=6.5, **look)


def _add_scale(figure: Drawing, axes: Axes, chance: float) -> None:
    scale = ScalarMappable(Normalize(0, 1), accuracy_scale(chance))
    bar = figure.colorbar(scale, ax=axes, shrink=0.82, aspect=22, pad=0.03)
    ticks = {0: "0", 0.5: "0.5", 1: "1", chance: f"chance 1/{1 / chance:.0f}"}
    bar.set_ticks(sorted(ticks), labels=[ticks[at] for at in sorted(ticks)])
    bar.ax.axhline(chance, color=INK, linewidth=1.4)
    bar.set_label("mean per-class accuracy")
    bar.outline.set_visible(False)
