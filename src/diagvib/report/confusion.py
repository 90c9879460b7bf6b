"""Bars of confusion: test images predicted as a class that their cue points to (Lynch et al., 2023,
Fig. 5)."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from diagvib.report.style import HELD_OUT, INK, MUTED, new_figure, styled
from diagvib.results.average import guessed_confusion
from diagvib.results.known_studies import SHIPPED, KnownStudies


def confusion_bars(
    average: pd.DataFrame, study: str, known: KnownStudies = SHIPPED
) -> Figure | None:
    """A bar per baseline, mean over its bindings, with the 95 % interval over the samples; dotted:
    chance level.

    average: the table of `average.average_tables`. None where nothing ran.
    """
    own = average[(average["study"] == study) & (average["metric"] == "confusion")]
    # The mean over several bindings comes after them.
    rows = own.drop_duplicates("baseline", keep="last").set_index("baseline")[::-1]
    if not len(rows) or not rows["n"].sum():
        return None
    with styled():
        figure = new_figure(5.2, 1.1 + 0.32 * len(rows))
        axes = figure.add_subplot()
        axes.barh(range(len(rows)), rows["mean"].fillna(0), height=0.62, color=HELD_OUT)
        axes.hlines(range(len(rows)), rows["low"], rows["high"], color=INK, linewidth=1.4)
        for at, row in enumerate(rows.itertuples()):
            end = np.nanmax([0, row.mean, row.high])
            axes.text(
                end + 0.01, at, f"{row.mean:.2f}" if row.n else "missing", va="center", fontsize=7.5
            )
        axes.axvline(
            guessed_confusion(known.studies[study]),
            color=MUTED,
            linewidth=0.9,
            linestyle=(0, (1, 2)),
        )
        axes.set_yticks(range(len(rows)), rows.index)
        axes.set(
            xlim=(0, 1.08),
            xlabel="share of test images predicted as a class that the cue points to",
        )
        axes.set_title(known.title(study))
    return figure
