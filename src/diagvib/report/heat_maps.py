"""Heat maps of P_ij."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from diagvib.report.style import (
    INK,
    MUTED,
    NOT_CONFIGURED,
    accuracy_colours,
    accuracy_scale,
    new_figure,
    styled,
)
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.shortcut import OOD
from diagvib.results.shown import matrix_columns


def heat_map(p: pd.DataFrame, study: str, baseline: str, known: KnownStudies = SHIPPED) -> Figure:
    """P_ij of one study and baseline on the fixed scale, next to P_i of a study without cues
    (paper, Fig. 4a, 5a).

    p: the table of `shortcut.p_matrix`. Missing cells are hatched, cells that are not configured
    blank grey; a cell shows n where samples are missing.
    """
    own = p[p["baseline"] == baseline]
    paired = own[(own["study"] == study) & (own["group"] == OOD)]
    factors = known.factors([study])
    cues = matrix_columns(paired["cue"], factors) if len(paired) else []
    columns = {cue: paired[paired["cue"] == cue].set_index("target") for cue in cues}
    alone, chance = without_cues(own, known.factors([study]), known), known.chance(study)
    with styled():
        figure = new_figure(3.4 + 0.5 * len(columns), 0.7 + 0.6 * len(factors))
        axes = figure.add_subplot()
        for j, (cue, rows) in enumerate(columns.items()):
            for i, target in enumerate(factors):
                if cue != target:
                    _draw_value(
                        axes,
                        i,
                        j + 1.25,
                        rows.loc[target] if target in rows.index else None,
                        chance,
                    )
        for i, target in enumerate(factors if len(alone) else ()):
            _draw_value(axes, i, 0, alone.loc[target] if target in alone.index else None, chance)
        _label_heat_map(
            axes, factors, list(columns), known.title(alone["study"].iloc[0]) if len(alone) else ""
        )
        axes.set_title(f"{known.title(study)}, {baseline}", pad=26 if columns else 12)
        _accuracy_bar(figure, axes, chance)
    return figure


def without_cues(p: pd.DataFrame, factors: list[str], known: KnownStudies) -> pd.DataFrame:
    """P_i of the first study without cues whose scene has these factors, a row per target."""
    like = [study for study in p["study"].unique() if known.factors([study]) == factors]
    alone = p[(p["cue"] == "") & p["study"].isin(like)]
    return (
        alone[alone["study"] == alone["study"].iloc[0]].set_index("target") if len(alone) else alone
    )


def _draw_value(
    axes: Axes, row: int, column: float, value: pd.Series | None, chance: float
) -> None:
    place = {"xy": (column + 0.03, row + 0.03), "width": 0.94, "height": 0.94, "linewidth": 0}
    if value is None:
        axes.add_patch(Rectangle(**place, facecolor=NOT_CONFIGURED))
    elif value["n"] == 0:
        axes.add_patch(Rectangle(**place, facecolor="white", hatch="////", edgecolor=MUTED))
        axes.text(
            column + 0.5,
            row + 0.5,
            "missing",
            ha="center",
            va="center",
            fontsize=7,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    else:
        fill, ink = accuracy_colours(value["mean"], chance)
        axes.add_patch(Rectangle(**place, facecolor=fill))
        partial = value["n"] < value["expected"]
        axes.text(
            column + 0.5,
            row + (0.4 if partial else 0.5),
            f"{value['mean']:.2f}",
            ha="center",
            va="center",
            fontsize=9,
            color=ink,
        )
        if partial:
            axes.text(
                column + 0.5,
                row + 0.74,
                f"n={value['n']:.0f}/{value['expected']:.0f}",
                ha="center",
                va="center",
                fontsize=6.5,
                color=ink,
            )


def _label_heat_map(axes: Axes, factors: list[str], cues: list[str], alone: str) -> None:
    """alone: title of the study without cues; '' where none is shown."""
    left = 0 if alone else 1.25
    axes.set(xlim=(left, 1.25 + len(cues) if cues else 1), ylim=(len(factors), 0), aspect="equal")
    axes.set_yticks(np.arange(len(factors)) + 0.5, factors)
    ticks = ([(0.5, alone)] if alone else []) + [(j + 1.75, cue) for j, cue in enumerate(cues)]
    axes.set_xticks([x for x, _ in ticks], [name for _, name in ticks])
    axes.tick_params(length=0, labelbottom=False, labeltop=True, pad=4, labelsize=8.5)
    axes.set_ylabel("target factor")
    if cues:
        axes.text(1.25 + len(cues) / 2, -0.62, "cue factor", ha="center", va="bottom")
    axes.spines[:].set_visible(False)


def _accuracy_bar(figure: Figure, axes: Axes, chance: float) -> None:
    scale = ScalarMappable(Normalize(0, 1), accuracy_scale(chance))
    bar = figure.colorbar(scale, ax=axes, shrink=0.82, aspect=22, pad=0.03)
    ticks = {0: "0", 0.5: "0.5", 1: "1", chance: f"chance 1/{1 / chance:.0f}"}
    bar.set_ticks(sorted(ticks), labels=[ticks[at] for at in sorted(ticks)])
    bar.ax.axhline(chance, color=INK, linewidth=1.4)
    bar.set_label("mean per-class accuracy")
    bar.outline.set_visible(False)
