"""Cue preference over epochs (Li et al., 2023, Fig. 6): whether predictions agree with target or
cues, and when."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    HELD_OUT,
    INK,
    TESTED_ID,
    TESTED_OOD,
    TRAINED,
    Drawing,
    add_legend,
    draw_chance,
    new_panels,
    styled,
)
from diagvib.report.training import TRAINING
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.metric_sets import METRIC_SETS
from diagvib.results.read_runs import follows
from diagvib.results.tables import read_preferences

# Target, then the cues: colour and line.
_LOOKS = ((TRAINED, "-"), (HELD_OUT, (0, (4, 1.5))), (TESTED_ID, (0, (1, 1))), (TESTED_OOD, "-."))
_CAPTION = (
    "Share of the predictions on validation images that match the target's class, or the class that "
    "a cue points to. Bands: one standard error over the dataset samples; dotted: chance."
)


def preference_figures(material: Material) -> Iterator[Figure]:
    known = material.known
    for study in material.studies:
        cues = len(known.studies[study].cues)
        if cues:
            of_gaps = known.studies[study].metrics == "gaps"
            yield Figure(
                f"preference/{study}",
                f"{known.title(study)}: when target and cue{'s' * (cues > 1)} are learnt",
                partial(_draw, material.tables, study, known),
                METRIC_SETS["gaps"].title if of_gaps else TRAINING,
                _CAPTION,
                folded=not of_gaps,
            )


def _draw(tables: Path, study: str, known: KnownStudies) -> Drawing | None:
    return preference_curves(read_preferences(tables, study), study, known)


@styled()
def preference_curves(
    history: pd.DataFrame, study: str, known: KnownStudies = SHIPPED
) -> Drawing | None:
    """The share of predictions on validation images that agree with the target's class and with
    each cue's, a panel per baseline.

    history: the epochs of a study's runs (`read_runs.history_table`). Lines are means over the
    runs, bands one standard error over the dataset samples' means. A cue none of whose classes
    points to one class of the target has no line: its share was recorded as zero. None if no cue is
    left, if no run recorded it, or if target and cues agree on all validation images, so that they
    cannot be told apart.
    """
    cues = len(known.studies[study].cues)
    roles = ["target", *(f"cue {number}" if cues > 1 else "cue" for number in range(1, cues + 1))]
    shown = [0, *known.followable(study)]
    columns = [["val_accuracy", *follows(cues)][at] for at in shown]
    own = history.reindex(columns=[*history, *set(columns) - set(history)]).dropna(subset=columns)
    if all(np.allclose(own[first], own[second], atol=1e-6) for first, second in pairwise(columns)):
        return None
    baselines, bindings = own["baseline"].unique(), own["binding"].unique()
    if len(bindings) == 1:
        factors = bindings[0].split("-")
        roles = [f"{role}: {factor}" for role, factor in zip(roles, factors, strict=True)]
    # Wide enough for the legend.
    width = max(2.3, 4.9 / len(baselines))
    figure, panels = new_panels(len(baselines), 4, (width, 1.95), (0.7, 0.8))
    for axes, baseline in zip(panels, baselines, strict=True):
        rows = own[own["baseline"] == baseline]
        for column, at in zip(columns, shown, strict=True):
            _draw_curve(axes, rows, column, roles[at], *_LOOKS[at % len(_LOOKS)])
        draw_chance(axes, known.chance(study))
        axes.set_title(baseline, fontsize=9)
    for axes in panels[-4:]:
        axes.set_xlabel("epoch", fontsize=8)
    figure.supylabel("share of predictions", fontsize=8)
    add_legend(
        figure, title=f"{known.title(study)}, validation images: predictions that agree with"
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
