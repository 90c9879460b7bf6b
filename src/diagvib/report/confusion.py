"""How many predictions on the test environment follow the cue (Lynch et al., 2023, Sec. 5)."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from diagvib.report.figure import Figure, Material
from diagvib.report.style import HELD_OUT, INK, Drawing, draw_chance, new_figure
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets.average import METRIC_SET, guessed_confusion
from diagvib.results.tables import metrics_of


def confusion_figures(material: Material) -> Iterator[Figure]:
    average, known = metrics_of(material.frames, "average"), material.known
    for study in known.judged_by("average", material.studies):
        title = f"{known.title(study)}: wrong predictions of a class that the cue points to"
        yield Figure(
            f"confusion/{study}",
            title,
            partial(confusion_bars, average, study, known),
            METRIC_SET.title,
        )


def confusion_bars(average: pd.DataFrame, study: str, known: KnownStudies) -> Drawing | None:
    """A bar per baseline, mean over its bindings, with the 95 % interval over the samples; dotted:
    chance level.

    average: the table of `average.average_tables`. None where nothing ran.
    """
    own = average[(average["study"] == study) & (average["metric"] == "confusion")]
    # The mean over several bindings comes after them.
    rows = own.drop_duplicates("baseline", keep="last").set_index("baseline")[::-1]
    if not rows["n"].sum():
        return None
    figure = new_figure(5.2, 1.1 + 0.32 * len(rows))
    axes = figure.add_subplot()
    axes.barh(range(len(rows)), rows["mean"].fillna(0), height=0.62, color=HELD_OUT)
    axes.hlines(range(len(rows)), rows["low"], rows["high"], color=INK, linewidth=1.4)
    for at, row in enumerate(rows.itertuples()):
        end = np.nanmax([0, row.mean, row.high])
        text = f"{row.mean:.2f}" if row.n else "missing"
        axes.text(end + 0.01, at, text, va="center", fontsize=7.5)
    draw_chance(axes, guessed_confusion(known.studies[study]), along="x")
    axes.set_yticks(range(len(rows)), rows.index)
    axes.set(
        xlim=(0, 1.08),
        xlabel="share of test images predicted as a class that the cue points to",
        title=known.title(study),
    )
    return figure
