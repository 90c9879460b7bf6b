"""Figures over epochs: loss and accuracy of every run, and cue preference (Li et al., 2023, Fig.
6): whether predictions agree with target or cues, and when."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from diagvib.foundation.files import read_metadata
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    GROUP_COLOURS,
    HELD_OUT,
    INK,
    TRAINED,
    Drawing,
    add_legend,
    draw_chance,
    new_figure,
    new_panels,
)
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import follows
from diagvib.results.tidy_tables import read_history
from diagvib.studies.known_studies import KnownStudies
from diagvib.training.selection_rules import is_tested

TRAINING = "Training"
# With fewer runs each is drawn: the median of two opposite ones is a run that does not exist.
MANY_RUNS = 5
_WATCHED = {"train": (TRAINED, "training"), "val": (HELD_OUT, "validation")}
# Of the target, then the cues.
_LINES = ("-", (0, (4, 1.5)), (0, (1, 1)), "-.")
_PREFERENCE = (
    "Share of the predictions on validation images that match the target's class, or the class that "
    "a cue points to. Bands: one standard error over the {samples}, if there are several; dotted: chance."
)


def training_figures(report_data: ReportData) -> Iterator[Figure]:
    for baseline in report_data.frames["runs"]["baseline"].unique():
        title = f"{baseline}: training curves of every run"
        draw = partial(
            _draw,
            training_curves,
            report_data.tables,
            "baseline",
            baseline,
            report_data.known_studies,
        )
        yield Figure(f"training/{baseline}", title, draw, TRAINING, folded=True)


def preference_figures(report_data: ReportData) -> Iterator[Figure]:
    known_studies, runs = report_data.known_studies, report_data.first_runs
    for study in report_data.studies:
        if cues := len(known_studies.studies[study].cues):
            of_gaps = known_studies.studies[study].metrics == "gaps"
            draw_curves = partial(
                preference_curves,
                cues=_labelled_cues(runs[runs["study"] == study], study, known_studies),
            )
            yield Figure(
                f"preference/{study}",
                f"{known_studies.title(study)}: when target and cue{'s' * (cues > 1)} are learnt",
                partial(_draw, draw_curves, report_data.tables, "study", study, known_studies),
                METRIC_SETS["gaps"].title if of_gaps else TRAINING,
                known_studies.in_words(_PREFERENCE, [study]),
                folded=not of_gaps,
            )


# The epochs are read where they are drawn: all of them at once would need more memory than anything
# else in drawing.
def _draw(
    curves: Callable, tables: Path, by: str, name: str, known_studies: KnownStudies
) -> Drawing | None:
    return curves(read_history(tables, by, name), name, known_studies)


def training_curves(
    history: pd.DataFrame, baseline: str, known_studies: KnownStudies
) -> Drawing | None:
    """Loss and accuracy over epochs, a column per study, a line per run.

    history: the epochs of a baseline's runs (`tidy_tables.read_history`). With many runs, the median
    is thick and the runs pale. The accuracy on the test groups is included if it was recorded
    (`training.track_test`). None if no epoch was recorded.
    """
    if history.empty:
        return None
    tested = [name.removesuffix("_accuracy") for name in history if is_tested(name)]
    colours = GROUP_COLOURS[2:]
    watched = _WATCHED | {
        group: (colours[i % len(colours)], f"test, {group}") for i, group in enumerate(tested)
    }
    studies = history.groupby("study", sort=False)
    figure = new_figure(max(4.2, 1.75 * len(studies) + 0.7), 3.9)
    grid = figure.subplots(2, len(studies), sharex=True, sharey="row", squeeze=False)
    for (losses, accuracies), (study, rows) in zip(grid.T, studies, strict=True):
        for axes, measure in ((losses, "loss"), (accuracies, "accuracy")):
            for split, (colour, label) in watched.items():
                if rows.get(f"{split}_{measure}", pd.Series()).notna().any():
                    _draw_runs(axes, rows, f"{split}_{measure}", colour, label)
        runs = len(rows.drop_duplicates(["binding", "sample", "seed"]))
        title = f"{known_studies.title(study)}, {runs} run{'s' if runs > 1 else ''}"
        losses.set_title(title, fontsize=8.5)
        losses.set_ylim(bottom=0)
        accuracies.set(ylim=(-0.02, 1.02), xlabel="epoch")
        draw_chance(accuracies, known_studies.chance(study))
    grid[0, 0].set_xlim(min(0.5, history["epoch"].min()), history["epoch"].max() + 0.5)
    grid[0, 0].set_ylabel("loss")
    grid[1, 0].set_ylabel("accuracy")
    add_legend(figure, title=baseline, fontsize=8)
    return figure


def _draw_runs(axes: Axes, rows: pd.DataFrame, column: str, colour: str, label: str) -> None:
    table = rows.pivot(index="epoch", columns=["binding", "sample", "seed"], values=column)
    epochs = table.index.to_numpy(dtype=np.float64)
    lines = [np.column_stack([epochs, values]) for values in table.to_numpy().T]
    if len(lines) < MANY_RUNS:
        look = {"linewidths": 1.2, "alpha": 0.8, "label": label}
    else:
        # Drawn as pixels in the SVG too: thousands of lines would take megabytes.
        look = {"linewidths": 0.5, "alpha": 0.25, "rasterized": True}
        most_runs = _of_most_runs(table)
        axes.plot(most_runs.index, most_runs.median(axis=1), color=colour, label=label)
    axes.add_collection(LineCollection(lines, colors=colour, **look))
    axes.tick_params(colors=INK, labelsize=7.5)


def _of_most_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The epochs that at least half of the runs reached: with fewer, their mean or median would
    jump where a run stopped early. table: an epoch per row, a run per column."""
    return table[table.notna().sum(axis=1) >= table.shape[1] / 2]


def _labelled_cues(runs: pd.DataFrame, study: str, known_studies: KnownStudies) -> list[int]:
    """`KnownStudies.labelled_cues`, by the training images of the first of these runs."""
    images = None
    for run in runs[:1].to_dict("records"):
        file = run["folder"] / "predictions.parquet"
        trained = read_metadata(file).get("trained", {}) if file.exists() else {}
        images = known_studies.images(study, run["binding"].split("-"), run["sample"], trained)
    return known_studies.labelled_cues(study, images)


def preference_curves(
    history: pd.DataFrame,
    study: str,
    known_studies: KnownStudies,
    cues: Sequence[int] | None = None,
) -> Drawing | None:
    """The share of predictions on validation images that agree with the target's class and with
    that of each of these cues, a panel per baseline. cues: numbers, by default `labelled_cues`.

    history: the epochs of a study's runs (`tidy_tables.read_history`). Lines are means over the
    runs, bands one standard error over the dataset samples' means. Another cue has no line: its
    share was recorded as zero. None if no cue is left, if no run recorded it, or if target and cues
    agree on all validation images, so that they cannot be told apart.
    """
    n_cues = len(known_studies.studies[study].cues)
    roles = [
        "target",
        *(f"cue {number}" if n_cues > 1 else "cue" for number in range(1, n_cues + 1)),
    ]
    factor_numbers = [0, *(known_studies.labelled_cues(study) if cues is None else cues)]
    columns = [["val_accuracy", *follows(n_cues)][number] for number in factor_numbers]
    if not set(columns) <= set(history):
        return None
    epochs = history.dropna(subset=columns)
    if all(
        np.allclose(epochs[column], epochs[next_column], atol=1e-6)
        for column, next_column in pairwise(columns)
    ):
        return None
    baselines, bindings = epochs.groupby("baseline", sort=False), epochs["binding"].unique()
    if len(bindings) == 1:
        factors = bindings[0].split("-")
        roles = [f"{role}: {factor}" for role, factor in zip(roles, factors, strict=True)]
    # Wide enough for the legend.
    width = max(2.3, 4.9 / len(baselines))
    figure, panels = new_panels(len(baselines), 4, (width, 1.95), (0.7, 0.8))
    for axes, (baseline, rows) in zip(panels, baselines, strict=True):
        for column, factor_number in zip(columns, factor_numbers, strict=True):
            look = {
                "color": GROUP_COLOURS[factor_number % len(_LINES)],
                "linestyle": _LINES[factor_number % len(_LINES)],
            }
            _draw_mean(axes, rows, column, label=roles[factor_number], **look)
        draw_chance(axes, known_studies.chance(study))
        axes.set_title(baseline, fontsize=9)
    for axes in panels[-4:]:
        axes.set_xlabel("epoch", fontsize=8)
    figure.supylabel("share of predictions", fontsize=8)
    add_legend(
        figure,
        title=f"{known_studies.title(study)}, validation images: predictions that agree with",
    )
    return figure


def _draw_mean(axes: Axes, rows: pd.DataFrame, column: str, **look) -> None:
    runs = _of_most_runs(
        rows.pivot(index="epoch", columns=["binding", "sample", "seed"], values=column)
    )
    epochs, mean = runs.index, runs.mean(axis=1)
    error = runs.T.groupby("sample").mean().sem().fillna(0)
    band = {"color": look["color"], "alpha": 0.18, "linewidth": 0}
    axes.fill_between(epochs, mean - error, mean + error, **band)
    axes.plot(epochs, mean, linewidth=1.8, **look)
    axes.set(ylim=(-0.02, 1.02), yticks=[0, 0.5, 1])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.tick_params(colors=INK, labelsize=7.5)
