"""Sheets of pictures that runs keep of test images: where networks look (as Whac-A-Mole, Fig. 3), and
what a model sees - lens outputs, reconstructions, latent traversals (paper, Figs. A2, A3, A4, A9)."""

import io
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from PIL import Image

from diagvib.foundation.files import read_table
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.style import (
    GAP,
    HELD_OUT,
    MUTED,
    TRAINED,
    Drawing,
    new_figure,
    show_pictures,
    write,
)
from diagvib.results.saliency_shares import TITLE
from diagvib.settings.layout import LOOKS, SMOOTH
from diagvib.studies.study import Headline

INSIDE = "What some models see in an image"
# Baselines on a sheet of where networks look.
_MOST_BASELINES = 6
# Nats that a latent dimension must carry, averaged over the images, to count as used.
_CARRIED = 0.1
_KEPT = (
    "Test images and their reconstructions; below each, the class that is read from its code. Below a name: latent "
    f"dimensions that carry more than {_CARRIED} nats of these images."
)
_SIDE = 0.8  # inches per picture: 128 pixels at the resolution of the PNG files
_GROUPS = {
    "id": "id: in distribution",
    "ood": "ood: the cue misleads",
}
_OF_TWO_CUES = {
    "common": "both cues agree",
    "no-cue-1": "cue 1 misleads",
    "no-cue-2": "cue 2 misleads",
    "neither": "both mislead",
}


def looking_figures(report_data: ReportData) -> Iterator[Figure]:
    """Where networks look, for each of `sheet_bindings`. All but the first are folded."""
    for place, (name, title, factors, folders) in enumerate(_sheets(report_data)):
        first_folders = dict(islice(folders.items(), _MOST_BASELINES))
        draw = partial(looking_sheet, first_folders, factors, title)
        yield Figure(
            f"looks/{name}", f"{title}: where networks look", draw, TITLE, folded=place > 0
        )


def reconstruction_figures(report_data: ReportData) -> Iterator[Figure]:
    """What several autoencoders keep of an image, for each of `sheet_bindings`."""
    for name, title, factors, folders in _sheets(report_data):
        draw = partial(reconstruction_sheet, folders, factors, title)
        yield Figure(
            f"reconstructions/{name}", f"{title}: what each code keeps", draw, INSIDE, _KEPT
        )


def _sheets(report_data: ReportData) -> Iterator[tuple[str, str, list[str], dict[str, Path]]]:
    """For each of `sheet_bindings`: a file's name, a title, the factors, and baseline -> its run
    on dataset sample 0."""
    runs = report_data.first_runs
    for study, binding in sheet_bindings(report_data).items():
        part = runs[(runs["study"] == study) & (runs["binding"] == binding)]
        folders = dict(zip(part["baseline"], part["folder"], strict=True))
        title = f"{report_data.known_studies.title(study)} {binding}"
        yield f"{study}_{binding}", title, binding.split("-"), folders


def sheet_bindings(report_data: ReportData) -> dict[str, str]:
    """Study -> the binding whose sheets are drawn: of the headline's study with a shortcut the one
    that shows it best, and its target of the study without one; of other studies the first."""
    known_studies, binding_of_study = report_data.known_studies, {}
    bindings = report_data.first_runs.groupby("study", sort=False)["binding"].unique()
    headline = _headline(report_data)
    best, target = {}, report_data.binding.partition("-")[0]
    if headline:
        best = {headline.shortcut: report_data.binding, headline.without: target}
    for study in [*(name for name in best if name in bindings), *bindings.index]:
        headline_is_shown = headline and headline.shortcut in bindings and study not in best
        if not headline_is_shown or known_studies.studies[study].metrics != "shortcut":
            telling_binding = best.get(study)
            binding_of_study[study] = (
                telling_binding if telling_binding in bindings[study] else bindings[study][0]
            )
    return binding_of_study


def _headline(report_data: ReportData) -> Headline | None:
    """The headline, if one of its studies was run."""
    headline = report_data.known_studies.headline(report_data.studies)
    return (
        headline
        if headline and {headline.shortcut, headline.without} & {*report_data.studies}
        else None
    )


def looking_sheet(folders: dict[str, Path], factors: list[str], title: str) -> Drawing | None:
    strips: list[pd.DataFrame] = []
    for baseline, folder in folders.items():
        rows = read_visualisations(folder / "exhibits.parquet")
        kinds = dict(list(rows.groupby("what")))
        if LOOKS in kinds:
            strips += [] if strips else [kinds["input"].assign(prediction="")]
            strips.append(kinds[LOOKS].assign(what=baseline))
            if SMOOTH in kinds:
                strips.append(kinds[SMOOTH].assign(what=f"{baseline}\n{SMOOTH}"))
    return visualisation_sheet(pd.concat(strips), factors, title) if strips else None


def reconstruction_sheet(
    folders: dict[str, Path], factors: list[str], title: str
) -> Drawing | None:
    """Images, and below them each autoencoder's reconstructions (paper, Fig. A3); None for fewer
    than two autoencoders."""
    strips: list[pd.DataFrame] = []
    for baseline, folder in folders.items():
        rows = read_visualisations(folder / "exhibits.parquet")
        images, decoded = (rows[rows["what"] == kind] for kind in ("input", "reconstruction"))
        if len(decoded):
            strips += [] if strips else [images.assign(prediction="")]
            carried = rows.groupby("dimension")["kl"].first()
            words = f"{baseline}\n{(carried > _CARRIED).sum()} of {len(carried)}"
            predictions = images["prediction"].to_numpy()
            strips.append(decoded.assign(what=words, prediction=predictions))
    return visualisation_sheet(pd.concat(strips), factors, title) if len(strips) > 2 else None


def visualisation_figures(report_data: ReportData) -> Iterator[Figure]:
    """Sheets of the runs of dataset sample 0 that recorded pictures: in the headline's study with a
    shortcut the binding that shows it best, in the one without a shortcut all targets, or, if
    neither was run, the first binding of studies with a shortcut; and that of studies judged by
    accuracy alone. The first of a baseline is not folded."""
    known_studies, runs = report_data.known_studies, report_data.frames["runs"]
    bindings = runs.groupby("study", sort=False)["binding"].unique()
    bindings_of_study = {}
    accuracy_studies = known_studies.judged_by("accuracy", report_data.studies)
    if headline := _headline(report_data):
        bindings_of_study[headline.shortcut] = [report_data.binding]
        bindings_of_study[headline.without] = bindings.get(headline.without, [])
    else:
        accuracy_studies += known_studies.judged_by("shortcut", report_data.studies)
    bindings_of_study |= {name: bindings[name][:1] for name in accuracy_studies}
    for baseline, baseline_runs in report_data.first_runs.groupby("baseline", sort=False):
        sheet_runs = [
            run
            for study, names in bindings_of_study.items()
            for run in baseline_runs[
                (baseline_runs["study"] == study) & baseline_runs["binding"].isin(names)
            ].itertuples()
        ]
        for number, run in enumerate(sheet_runs):
            title = f"{known_studies.title(run.study)} {run.binding}"
            yield Figure(
                f"exhibits/{baseline}_{run.study}_{run.binding}",
                f"{baseline}, {title}: what the model sees in test images",
                partial(_draw, run.folder, run.binding, f"{title}, {baseline}"),
                INSIDE,
                folded=number > 0,
            )


def _draw(folder: Path, binding: str, title: str) -> Drawing | None:
    rows = read_visualisations(folder / "exhibits.parquet")
    of_method = not rows["what"].isin(["input", LOOKS, SMOOTH]).all()
    return visualisation_sheet(rows, binding.split("-"), title) if of_method else None


def read_visualisations(path: Path) -> pd.DataFrame:
    """A file of pictures; column picture as uint8[H, W, 3]. DiagvibError if it is missing or
    damaged."""
    frame = read_table(path).to_pandas()
    pictures = [
        np.asarray(Image.open(io.BytesIO(content)).convert("RGB")) for content in frame["picture"]
    ]
    return frame.assign(picture=pictures, prediction=frame["prediction"].fillna(""))


def visualisation_sheet(rows: pd.DataFrame, factors: list[str], title: str) -> Drawing:
    """A strip of pictures for each kind, a column per image; below them, a column per latent
    dimension's traversal.

    rows: from `read_visualisations`; factors: of the target, then the cues. Below each picture is
    the classifier's prediction.
    """
    strips = [strip for _, strip in rows[rows["dimension"].isna()].groupby("what", sort=False)]
    latent = rows[rows["dimension"].notna()]
    columns = max(len(strips[0]), latent["dimension"].nunique())
    head = 0.55 + 0.25 * len(factors) if factors[1:] else 0.5
    heights = [1.4 if (strip["prediction"] != "").any() else 1.12 for strip in strips]
    below = sum(heights) + (latent["value"].nunique() + 0.7 if len(latent) else 0)
    figure = new_figure(_SIDE * (columns + 1.6), _SIDE * (head + below + 0.4))
    axes = figure.add_subplot()
    _draw_heads(axes, strips[0], factors)
    top = 0.0
    for strip, height in zip(strips, heights, strict=True):
        _draw_strip(axes, strip, factors[0], top)
        top += height
    if len(latent):
        _draw_traversals(axes, latent, top + 0.6)
    axes.set(xlim=(-1.5, columns), ylim=(below, -head), aspect="equal")
    axes.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _draw_heads(axes: Axes, strip: pd.DataFrame, factors: list[str]) -> None:
    """The images' classes above the first strip, and the groups above these."""
    small = _fitting(strip[factors].map(len).to_numpy().max())
    for column, image in enumerate(strip.to_dict("records")):
        names = "\n".join(image[factor] for factor in factors)
        write(axes, column + 0.5, -0.06, names, va="bottom", fontsize=small)
    if factors[1:]:
        line = -0.1 - 0.25 * len(factors)
        words = _GROUPS | (_OF_TWO_CUES if len(factors) == 3 else {})
        for group, columns in strip.groupby(np.asarray(strip["group"])).indices.items():
            line_start, line_end = columns.min() + GAP, columns.max() + 1 - GAP
            axes.hlines(line, line_start, line_end, color=MUTED, linewidth=0.8)
            name = words.get(group, group)
            write(axes, line_start, line - 0.06, name, ha="left", va="bottom", color=MUTED)


def _fitting(letters: int) -> float:
    """The size of a text of so many letters above or below a picture; one is about 0.7 of its size
    wide."""
    return min(9.5, 72 * _SIDE / (0.7 * letters))


def _draw_strip(axes: Axes, strip: pd.DataFrame, target: str, top: float) -> None:
    show_pictures(axes, [strip["picture"]], top)
    write(axes, -0.1, top + 0.5, strip["what"].iloc[0], ha="right")
    classes = zip(strip["prediction"], strip[target], strict=True)
    small = _fitting(2 + strip["prediction"].map(len).max())
    for column, (predicted, truth) in enumerate(classes):
        if predicted:
            mark, colour = ("✓", TRAINED) if predicted == truth else ("✗", HELD_OUT)
            look = {"va": "top", "color": colour, "fontsize": small}
            write(axes, column + 0.5, top + 1.04, f"{mark} {predicted}", **look)


def _draw_traversals(axes: Axes, latent: pd.DataFrame, top: float) -> None:
    nats = latent.groupby("dimension", sort=False)["kl"].first()
    table = latent.pivot(index="value", columns="dimension", values="picture")[nats.index]
    show_pictures(axes, table.to_numpy(), top)
    for column, (dimension, kl) in enumerate(nats.items()):
        write(axes, column + 0.5, top - 0.06, f"z{dimension:.0f}\n{kl:.1f} nats", va="bottom")
    for row, value in enumerate(table.index):
        write(axes, -0.1, top + row + 0.5, f"{value:g}", ha="right")
    words = "one number of the first image's code, varied"
    write(axes, -0.65, top + len(table) / 2, words, rotation=90)
