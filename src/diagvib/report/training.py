"""Training curves: loss and accuracy of every run over epochs."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    BASELINE_COLOURS,
    HELD_OUT,
    INK,
    TESTED_ID,
    TESTED_OOD,
    TRAINED,
    Drawing,
    add_legend,
    draw_chance,
    new_figure,
    styled,
)
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.tables import read_histories

TRAINING = "Training"
# With fewer runs each is drawn: the median of two opposite ones is a run that does not exist.
MANY_RUNS = 5
_WATCHED = {"train": (TRAINED, "training"), "val": (HELD_OUT, "validation")}
_TESTED = (TESTED_ID, TESTED_OOD, *BASELINE_COLOURS[3:])


def training_figures(material: Material) -> Iterator[Figure]:
    for baseline in material.frames["runs"]["baseline"].unique():
        title = f"{baseline}: training curves of every run"
        draw = partial(_draw, material.tables, baseline, material.known)
        yield Figure(f"training/{baseline}", title, draw, TRAINING, folded=True)


def _draw(tables: Path, baseline: str, known: KnownStudies) -> Drawing | None:
    # Read here: the epochs of all baselines at once would need more memory than anything else in
    # drawing.
    return training_curves(read_histories(tables, baseline), baseline, known)


@styled()
def training_curves(
    history: pd.DataFrame, baseline: str, known: KnownStudies = SHIPPED
) -> Drawing | None:
    """Every run of a baseline: loss and accuracy over epochs, a column per study, a line per run.

    history: the table of `read_runs.history_table`. With many runs, the median is thick and the
    runs pale. The accuracy on the test groups is included if it was recorded
    (`training.track_test`). None if no epoch was recorded.
    """
    own = history[history["baseline"] == baseline]
    if not len(own):
        return None
    groups = [column.removesuffix("_accuracy") for column in own if column.endswith("_accuracy")]
    tested = [group for group in groups if group not in _WATCHED]
    watched = _WATCHED | {
        group: (_TESTED[i % len(_TESTED)], f"test, {group}") for i, group in enumerate(tested)
    }
    studies = list(own["study"].unique())
    figure = new_figure(max(4.2, 1.75 * len(studies) + 0.7), 3.9)
    grid = figure.subplots(2, len(studies), sharex=True, sharey="row", squeeze=False)
    for (losses, accuracies), study in zip(grid.T, studies, strict=True):
        rows = own[own["study"] == study]
        for axes, measure in ((losses, "loss"), (accuracies, "accuracy")):
            for of, (colour, label) in watched.items():
                if rows.get(f"{of}_{measure}", pd.Series()).notna().any():
                    _draw_runs(axes, rows, f"{of}_{measure}", colour, label)
        runs = len(rows.drop_duplicates(["binding", "sample"]))
        title = f"{known.title(study)}, {runs} run{'s' if runs > 1 else ''}"
        losses.set_title(title, fontsize=8.5)
        losses.set_ylim(bottom=0)
        accuracies.set(ylim=(-0.02, 1.02), xlabel="epoch")
        draw_chance(accuracies, known.chance(study))
    grid[0, 0].set_ylabel("loss")
    grid[1, 0].set_ylabel("accuracy")
    add_legend(figure, title=baseline, ncols=4, fontsize=8)
    return figure


def _draw_runs(axes: Axes, rows: pd.DataFrame, column: str, colour: str, label: str) -> None:
    table = rows.pivot(index="epoch", columns=["binding", "sample"], values=column)
    epochs = table.index.to_numpy(dtype=np.float64)
    lines = [np.column_stack([epochs, values]) for values in table.to_numpy().T]
    if len(lines) < MANY_RUNS:
        look = {"linewidths": 1.2, "alpha": 0.8, "label": label}
    else:
        # Drawn as pixels in the SVG too: thousands of lines would take megabytes.
        look = {"linewidths": 0.5, "alpha": 0.25, "rasterized": True}
        # A median over fewer runs than started would jump where a run stopped early.
        whole = table.notna().sum(axis=1) >= len(lines) / 2
        axes.plot(epochs[whole], table.median(axis=1)[whole], color=colour, label=label)
    axes.add_collection(LineCollection(lines, colors=colour, **look))
    axes.set_xlim(min(0.5, epochs[0]), epochs[-1] + 0.5)
    axes.tick_params(colors=INK, labelsize=7.5)
