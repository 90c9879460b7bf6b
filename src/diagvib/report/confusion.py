"""Predictions on the test environment: how many follow the cue, and which class they are (Lynch et
al., 2023, Sec. 5 and Fig. 5)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from diagvib.papers.spawrious.average import METRIC_SET, guessed_confusion
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    HELD_OUT,
    INK,
    Drawing,
    draw_chance,
    new_panels,
    text_on,
    write,
)
from diagvib.results.cells import read_predictions
from diagvib.results.reader_tables import metrics_of
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import OOD


def confusion_figures(report_data: ReportData) -> Iterator[Figure]:
    average, known_studies = metrics_of(report_data.frames, "average"), report_data.known_studies
    for study in known_studies.judged_by("average", report_data.studies):
        title = f"{known_studies.title(study)}: wrong predictions of a class that the cue points to"
        yield Figure(
            f"confusion/{study}",
            title,
            partial(confusion_bars, average, study, known_studies),
            METRIC_SET.title,
        )
        runs = report_data.first_runs[report_data.first_runs["study"] == study]
        binding_runs = runs[runs["binding"] == runs["binding"].min()]
        if len(binding_runs):
            binding = binding_runs["binding"].iloc[0]
            folders = binding_runs.set_index("baseline")["folder"].to_dict()
            yield Figure(
                f"confusion/{study}_matrix",
                f"{known_studies.title(study)}, {binding}: what is predicted in the test environment",
                partial(confusion_matrices, folders, study, binding, known_studies),
                METRIC_SET.title,
                "Percent of the images of each class and cue that are predicted as each class (dataset "
                "sample 0). Framed: the classes that the cue points to in training.",
            )


def confusion_matrices(
    folders: dict[str, Path], study: str, binding: str, known_studies: KnownStudies
) -> Drawing:
    """A panel for each baseline's run: rows are the classes of target and cue on the test
    environment, columns the predicted classes. folders: of the runs."""
    factors = binding.split("-")
    target, cue = factors[:2]
    classes = known_studies.classes(study, factors, 0)[0]
    labels = known_studies.misleading_label(study, factors, 0, {}) or {}
    tables = {name: confusion_shares(folder, target, cue) for name, folder in folders.items()}
    rows = sorted(next(iter(tables.values())).index, key=lambda row: classes.index(row[0]))
    size = 1.3 + 0.42 * len(classes), 0.5 + 0.27 * len(rows)
    figure, panels = new_panels(len(tables), 3, size, (0.2, 0.5))
    for axes, (baseline, table) in zip(panels, tables.items(), strict=True):
        shares = table.reindex(index=rows, columns=classes, fill_value=0).to_numpy()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            colour = text_on(to_hex(image.to_rgba(share)))
            write(axes, column, row, f"{100 * share:.0f}", color=colour, fontsize=7.5)
            if classes[column] in labels.get(rows[row][1], ()):
                frame = {"fill": False, "edgecolor": HELD_OUT, "linewidth": 1.4}
                axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, **frame))
        axes.set_yticks(
            range(len(rows)),
            [f"{label}, {environment}" for label, environment in rows],
            fontsize=7.5,
        )
        axes.set_xticks(range(len(classes)), classes, fontsize=7.5, rotation=30)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(baseline, fontsize=9)
        axes.set_xlabel(f"predicted {target}", fontsize=8)
    return figure


def confusion_shares(folder: Path, target: str, cue: str) -> pd.DataFrame:
    """Of the images of each class and cue on the test environment, the share predicted as each
    class."""
    table = read_predictions(folder / "predictions.parquet", target, [cue]).to_pandas()
    tested = table[table["group"] == OOD].astype(str)
    by = [tested[target], tested[cue]]
    return pd.crosstab(by, tested["prediction"], normalize="index")


def confusion_bars(
    average: pd.DataFrame, study: str, known_studies: KnownStudies
) -> Drawing | None:
    """A bar per baseline, mean over its bindings, with the 95 % interval over the samples; dotted:
    chance level.

    average: the set's rows of the table `metrics`. None where nothing ran.
    """
    study_rows = average[(average["study"] == study) & (average["metric"] == "confusion")]
    # The mean over several bindings comes after them.
    rows = study_rows.drop_duplicates("baseline", keep="last").set_index("baseline")[::-1]
    if not rows["n"].sum():
        return None
    figure, (axes,) = new_panels(1, 1, (5.2, 0.32 * len(rows)), (0, 1.1))
    axes.barh(range(len(rows)), rows["mean"].fillna(0), height=0.62, color=HELD_OUT)
    axes.hlines(range(len(rows)), rows["low"], rows["high"], color=INK, linewidth=1.4)
    for position, row in enumerate(rows.itertuples()):
        end = np.nanmax([0, row.mean, row.high])
        text = f"{row.mean:.2f}" if row.n else "missing"
        axes.text(end + 0.01, position, text, va="center", fontsize=7.5)
    draw_chance(axes, guessed_confusion(known_studies.studies[study]), along="x")
    axes.set_yticks(range(len(rows)), rows.index)
    axes.set(
        xlim=(0, 1.08),
        xlabel="share predicted as a class that the cue points to",
        title=known_studies.title(study),
    )
    return figure
