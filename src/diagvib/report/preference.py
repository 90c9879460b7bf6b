"""Cue preference over epochs (Li et al., 2023, Fig. 6): whether predictions agree with target or
cues, and when."""

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from diagvib.report.style import (
    HELD_OUT,
    INK,
    MUTED,
    TESTED_ID,
    TESTED_OOD,
    TRAINED,
    new_figure,
    styled,
)
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.read_runs import follows
from diagvib.studies.study import TARGET

# Target, then the cues: colour and line.
_LOOKS = ((TRAINED, "-"), (HELD_OUT, (0, (4, 1.5))), (TESTED_ID, (0, (1, 1))), (TESTED_OOD, "-."))


def preference_curves(
    history: pd.DataFrame, study: str, known: KnownStudies = SHIPPED
) -> Figure | None:
    """The share of predictions on validation images that agree with the target's class and with
    each cue's, a panel per baseline.

    history: the epochs of a study's runs (`read_runs.history_table`). Lines are means over the
    runs, bands one standard error over the dataset samples' means. A cue none of whose classes
    points to one class of the target has no line: its share was recorded as zero. None if no cue is
    left, if no run recorded it, or if target and cues agree on all validation images, so that they
    cannot be told apart.
    """
    roles = [
        "target",
        *(
            ["cue"]
            if len(known.studies[study].cues) == 1
            else (f"cue {number}" for number, _ in enumerate(known.studies[study].cues, start=1))
        ),
    ]
    shown = [0, *known.followable(study)]
    columns = [["val_accuracy", *follows(len(roles) - 1)][at] for at in shown]
    own = history.dropna(subset=columns) if set(columns) <= set(history) else history[:0]
    if not len(own) or all(
        np.allclose(own[first], own[second], atol=1e-6) for first, second in pairwise(columns)
    ):
        return None
    baselines, binding = list(own["baseline"].unique()), own["binding"].unique()
    if len(binding) == 1:
        roles = [
            f"{role}: {factor}" for role, factor in zip(roles, binding[0].split("-"), strict=True)
        ]
    width = min(4, len(baselines))
    with styled():
        figure = new_figure(max(5.6, 2.3 * width + 0.7), 1.95 * -(-len(baselines) // width) + 0.8)
        grid = figure.subplots(
            -(-len(baselines) // width), width, sharex=True, sharey=True, squeeze=False
        )
        for axes, baseline in zip(grid.flat, baselines, strict=False):
            rows = own[own["baseline"] == baseline]
            for column, at in zip(columns, shown, strict=True):
                _draw_curve(axes, rows, column, roles[at], *_LOOKS[at % len(_LOOKS)])
            axes.axhline(
                1 / known.studies[study].roles[TARGET],
                color=MUTED,
                linewidth=0.9,
                linestyle=(0, (1, 2)),
            )
            axes.set_title(baseline, fontsize=9)
        for axes in grid.flat[len(baselines) :]:
            axes.set_visible(False)
        for column in grid.T:
            lowest = [axes for axes in column if axes.get_visible()][-1]
            lowest.set_xlabel("epoch", fontsize=8)
            lowest.tick_params(labelbottom=True)
        for axes in grid[:, 0]:
            axes.set_ylabel("share of predictions", fontsize=8)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        title = f"{known.title(study)}, validation images: predictions that agree with"
        figure.legend(
            handles,
            labels,
            title=title,
            loc="outside upper left",
            ncols=len(labels),
            fontsize=8.5,
            alignment="left",
        )
    return figure


def _draw_curve(axes: Axes, rows: pd.DataFrame, column: str, label: str, colour: str, line) -> None:
    """The mean over runs while at least half of them continue: with fewer it would jump where a run
    stopped early."""
    runs = rows.groupby("epoch")[column].count()
    epochs = runs.index[runs >= runs.max() / 2]
    samples = rows.pivot_table(index="epoch", columns="sample", values=column).loc[epochs]
    mean = rows.groupby("epoch")[column].mean()[epochs].to_numpy()
    error = samples.sem(axis=1).fillna(0).to_numpy()
    axes.fill_between(epochs, mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
    axes.plot(epochs, mean, color=colour, linestyle=line, label=label, linewidth=1.8)
    axes.set(ylim=(-0.02, 1.02), yticks=[0, 0.5, 1])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.tick_params(colors=INK, labelsize=7.5)
