"""Visualisation sheets: a run's pictures of what its model sees in test images - lens outputs,
reconstructions, latent traversals (paper, Figs. A2, A3, A4, A9)."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, UnidentifiedImageError

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import read_table
from diagvib.report.style import HELD_OUT, INK, MUTED, TRAINED, new_figure, styled
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.read_runs import run_folder
from diagvib.studies.binding import Binding

_COLUMNS = ["what", "image", "dimension", "kl", "value", "prediction", "group", "picture"]
# Inches per picture: 128 pixels at the resolution of the PNG files. The gap between pictures, as a
# share of that.
_SIDE, _GAP = 0.8, 0.04
_GROUPS = {"id": "id: in distribution", "ood": "ood: the cue misleads"}


def visualisations(
    runs: pd.DataFrame, folder: Path, binding: Binding | None, known: KnownStudies = SHIPPED
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Sheets of the baselines that record pictures, each as its name and the function that draws
    it, for dataset sample 0: all targets in the headline's study without a shortcut, the given
    binding in the one with a shortcut, and the first binding in studies without P_ij.

    runs: the frame of `read_runs.collect_runs`; folder: of all runs. For a run whose pictures are
    missing or damaged, the sheet says so, provided that another run shows that its baseline has
    any.
    """
    headline = known.headline(runs["study"])
    wanted = pd.Series(False, runs.index)
    if headline:
        wanted |= (runs["study"] == headline.without) | (
            (runs["study"] == headline.shortcut)
            & (runs["binding"] == (binding.name if binding else ""))
        )
    others = runs[runs["study"].isin(known.judged_by("accuracy", runs["study"]))]
    wanted |= runs["study"].isin(others["study"]) & (
        runs["binding"] == runs["study"].map(others.groupby("study")["binding"].first())
    )
    shown = runs[(runs["sample"] == 0) & wanted]
    for baseline, own in shown.groupby("baseline", sort=False):
        found = [(run, *_pictures(run, folder)) for run in own.itertuples(index=False)]
        if any(len(rows) for _, rows, _ in found):
            for run, rows, missing in found:
                title = f"{known.title(run.study)} {run.binding}, {baseline}"
                yield (
                    f"exhibits/{baseline}_{run.study}_{run.binding}",
                    partial(_sheet, rows, _binding(run), title)
                    if len(rows)
                    else partial(_missing_sheet, title, missing),
                )


def _binding(run) -> Binding:
    return Binding(tuple(run.binding.split("-")))


def _sheet(rows: pd.DataFrame, binding: Binding, title: str) -> Figure:
    """A run's sheet; one that says so if its pictures do not fit together, as may happen in files
    made by others."""
    try:
        return visualisation_sheet(rows, binding, title)
    except Exception as error:
        return _missing_sheet(
            title, f"exhibits.parquet cannot be shown ({type(error).__name__}: {one_line(error)})"
        )


def _pictures(run, folder: Path) -> tuple[pd.DataFrame, str]:
    """A run's decoded pictures (none for a missing run), and what is wrong with them."""
    place = run_folder(folder, run._asdict())
    if run.status != "ok":
        return pd.DataFrame(), f"{run.status} ({run.reason})"
    try:
        return read_visualisations(
            place / "exhibits.parquet", _binding(run)
        ), "no pictures in exhibits.parquet"
    except Exception as error:  # the file may be made by others; one run must not stop all figures
        return pd.DataFrame(), one_line(str(error).replace(f"{place}/", ""))


def read_visualisations(path: Path, binding: Binding) -> pd.DataFrame:
    """A file of pictures: its columns, with only the binding's factors; pictures as uint8[H, W, 3].
    DiagvibError if the file or a picture is missing or damaged."""
    frame = read_table(path, [*_COLUMNS, *binding.factors]).to_pandas()
    try:
        frame["picture"] = [
            np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
            for content in frame["picture"]
        ]
    except (OSError, UnidentifiedImageError, TypeError) as error:
        raise DiagvibError(
            f"{path}: holds a damaged picture ({error}); delete this folder and run again"
        ) from None
    return frame.assign(prediction=frame["prediction"].fillna(""))


def visualisation_sheet(rows: pd.DataFrame, binding: Binding, title: str) -> Figure:
    """A strip of pictures for each kind, a column per image; below them, a column per latent
    dimension's traversal.

    rows: from `read_visualisations`. Below each picture is the classifier's prediction.
    """
    strips = [strip for _, strip in rows[rows["dimension"].isna()].groupby("what", sort=False)]
    latent = rows[rows["dimension"].notna()]
    columns = max(len(strips[0]), latent["dimension"].nunique())
    head = 1.05 + 0.25 * (len(binding.cues) - 1) if binding.cues else 0.5
    below = sum(_strip_height(strip) for strip in strips) + (
        latent["value"].nunique() + 0.7 if len(latent) else 0
    )
    with styled():
        figure = new_figure(_SIDE * (columns + 1.6), _SIDE * (head + below + 0.4))
        axes = figure.add_subplot()
        _head_columns(axes, strips[0], binding)
        top = 0.0
        for strip in strips:
            _draw_strip(axes, strip, binding, top)
            top += _strip_height(strip)
        if len(latent):
            _draw_traversals(axes, latent, top + 0.6)
        axes.set(xlim=(-1.5, columns), ylim=(below, -head), aspect="equal")
        axes.set_axis_off()
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _strip_height(strip: pd.DataFrame) -> float:
    return 1.4 if (strip["prediction"] != "").any() else 1.12


def _head_columns(axes: Axes, strip: pd.DataFrame, binding: Binding) -> None:
    """The images' classes above the first strip, and the groups above these."""
    for column, image in enumerate(strip.to_dict("records")):
        _write(
            axes,
            column + 0.5,
            -0.06,
            "\n".join(image[factor] for factor in binding.factors),
            va="bottom",
        )
    if binding.cues:
        line = -0.6 - 0.25 * (len(binding.cues) - 1)
        for group, columns in strip.groupby(np.asarray(strip["group"])).indices.items():
            left, right = columns.min() + _GAP, columns.max() + 1 - _GAP
            axes.plot([left, right], [line, line], color=MUTED, linewidth=0.8)
            _write(
                axes,
                left,
                line - 0.06,
                _GROUPS.get(group, group),
                ha="left",
                va="bottom",
                color=MUTED,
            )


def _draw_strip(axes: Axes, strip: pd.DataFrame, binding: Binding, top: float) -> None:
    _show(axes, [list(strip["picture"])], top)
    _write(axes, -0.1, top + 0.5, strip["what"].iloc[0], ha="right", va="center")
    for column, (said, truth) in enumerate(
        zip(strip["prediction"], strip[binding.target], strict=True)
    ):
        if said:
            mark, colour = ("✓", TRAINED) if said == truth else ("✗", HELD_OUT)
            _write(axes, column + 0.5, top + 1.04, f"{mark} {said}", va="top", color=colour)


def _draw_traversals(axes: Axes, latent: pd.DataFrame, top: float) -> None:
    dimensions, values = latent["dimension"].unique(), sorted(latent["value"].unique())
    picture = latent.set_index(["value", "dimension"])["picture"]
    _show(axes, [[picture[value, dimension] for dimension in dimensions] for value in values], top)
    kl = latent.drop_duplicates("dimension")["kl"]
    for column, (dimension, nats) in enumerate(zip(dimensions, kl, strict=True)):
        _write(axes, column + 0.5, top - 0.06, f"z{dimension:.0f}\n{nats:.1f} nats", va="bottom")
    for row, value in enumerate(values):
        _write(axes, -0.1, top + row + 0.5, f"{value:g}", ha="right", va="center")
    _write(
        axes,
        -0.65,
        top + len(values) / 2,
        "one number of the first image's code, varied",
        rotation=90,
        va="center",
    )


def _write(axes: Axes, x: float, y: float, text: str, **look) -> None:
    axes.text(x, y, text, **{"ha": "center", "fontsize": 9.5, **look})


def _show(axes: Axes, pictures: list[list[np.ndarray]], top: float) -> None:
    """Pictures uint8[H, W, 3] in rows and columns of one unit each from `top` on, as one image with
    clear gaps."""
    side = pictures[0][0].shape[0]
    gap = max(2, round(side * _GAP))
    tile = side + gap
    whole = np.zeros((tile * len(pictures), tile * len(pictures[0]), 4), dtype=np.uint8)
    for i, row in enumerate(pictures):
        for j, picture in enumerate(row):
            down, right = i * tile + gap // 2, j * tile + gap // 2
            whole[down : down + side, right : right + side] = np.dstack(
                [picture, np.full((side, side), 255, np.uint8)]
            )
    axes.imshow(whole, interpolation="none", extent=(0, len(pictures[0]), top + len(pictures), top))


def _missing_sheet(title: str, reason: str) -> Figure:
    with styled():
        figure = new_figure(6.4, 1.1)
        axes = figure.add_subplot()
        axes.add_patch(
            Rectangle((0, 0), 1, 1, facecolor="white", hatch="////", edgecolor=MUTED, linewidth=0)
        )
        axes.text(
            0.5,
            0.5,
            f"pictures missing: {reason}",
            ha="center",
            va="center",
            fontsize=7.5,
            color=INK,
            wrap=True,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        )
        axes.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
        axes.spines[:].set_visible(False)
        axes.set_title(title)
    return figure
