"""Contact sheets: an image from each cell of a study, to show its shortcuts (paper, Fig. 3)."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from diagvib.foundation.files import file_metadata, open_parquet, read_table
from diagvib.report.figure import Figure, Material
from diagvib.report.style import (
    BASELINE_COLOURS,
    HELD_OUT,
    MUTED,
    TESTED_ID,
    TESTED_OOD,
    TRAINED,
    Drawing,
    new_figure,
    styled,
)
from diagvib.results.known_studies import SHIPPED, KnownStudies, sample_of
from diagvib.scenes import load_scene
from diagvib.studies.needs import GAP_GROUPS

PICTURES = "In pictures"
# Of the test groups, in their order.
_COLOURS = (TRAINED, HELD_OUT, TESTED_ID, TESTED_OOD, *BASELINE_COLOURS[3:])
_SIDE, _TEXT = 0.86, 0.2  # inches: of an image, and the height of the text below it

Cell = tuple[str, ...]  # target class, then the class of each cue


def sheet_figures(material: Material) -> Iterator[Figure]:
    """A sheet of dataset sample 0 for each study with images: of the binding that shows a shortcut
    best or, for a study whose metrics name none, of its first binding."""
    known, runs = material.known, material.frames["runs"]
    for study, bindings in runs.groupby("study", sort=False)["binding"].unique().items():
        own = known.studies[study]
        for binding in [material.binding] if own.metrics == "shortcut" else bindings:
            factors = binding.split("-")
            folder = f"{study}/{'-'.join(factors[: len(own.bound)])}/0"
            fits = len(own.bound) <= len(factors) in (2, 3)
            if fits and material.images and (material.images / folder).exists():
                title = f"{known.title(study)}: an image of every combination of {binding}"
                draw = partial(contact_sheet, material.images / folder, study, factors, known)
                yield Figure(f"sheets/{study}_{binding}", title, draw, PICTURES, own.meaning)
                break


@styled()
def contact_sheet(
    folder: Path, study: str, factors: list[str], known: KnownStudies = SHIPPED
) -> Drawing:
    """An image of each cell: rows and columns are the last two factors' classes; with two cues, a
    block for each target class.

    folder: image files of dataset sample 0. Below each image is its cell's share of the training
    images; the colour of the frame is that of the test group. DiagvibError for missing or damaged
    files.
    """
    *target, (first, rows), (second, columns) = shown_classes(study, factors, known)
    blocks = [(name,) for name in target[0][1]] if target else [()]
    train, test = folder / "train.parquet", folder / "test.parquet"
    share, group = cell_shares(train, factors), tested_groups(test, factors, known.groups([study]))
    images = example_images(test, factors, set(group) - set(share.index))
    images |= example_images(train, factors, set(share.index))
    colours = dict(zip(known.groups([study]), _COLOURS, strict=False))
    width = (_SIDE * len(columns) + 0.25) * len(blocks) + 0.5
    figure = new_figure(width, (_SIDE + _TEXT) * len(rows) + 0.6 + 0.2 * bool(target))
    parts = figure.subfigures(1, len(blocks), squeeze=False)[0]
    for part, block in zip(parts, blocks, strict=True):
        part.suptitle(f"{target[0][0]}: {block[0]}" if target else "", fontsize=10)
        grid = part.subplots(len(rows), len(columns), squeeze=False)
        for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
            cell = (*block, row, column)
            colour = colours.get(group.get(cell), MUTED)
            _draw_cell(grid[i, j], images.get(cell), float(share.get(cell, 0)), colour)
        for axes, name in zip(grid[0], columns, strict=True):
            axes.set_title(name, loc="center", fontsize=8, pad=4)
        for axes, name in zip(grid[:, 0], rows, strict=True):
            axes.set_ylabel(name, fontsize=8)
    of_group = share.groupby([group.get(cell, "") for cell in share.index]).sum()
    misled = ("both cues agree with the target", *(f"{name} misleads" for name in (first, second)))
    words = dict(zip(GAP_GROUPS.values(), (*misled, "both mislead"), strict=True))
    handles = [
        Patch(
            facecolor="none",
            edgecolor=colours[name],
            linewidth=2,
            label=f"{words.get(name, name)}: {100 * of_group.get(name, 0):.3g} % of training",
        )
        for name in colours
        if name in group.values()
    ]
    figure.legend(
        handles=handles,
        title=f"{known.title(study)}: rows {first}, columns {second}",
        loc="outside upper left",
        ncols=2 if target else 1,
        fontsize=8.5,
        alignment="left",
    )
    return figure


def shown_classes(
    study: str, bound: list[str], known: KnownStudies
) -> list[tuple[str, tuple[str, ...]]]:
    """For each of the factors of target and cues: its name, and its classes in dataset sample 0.

    For a study without a role for the cue, the classes that the sample has selected.
    """
    own = known.studies[study]
    chosen, factors = sample_of(own.scene, 0), load_scene(own.scene).factors
    counts = [*(own.roles[role] for role in own.bound), *[None] * len(bound)]
    return [
        (factor, chosen.chosen(factor, count, factors[factor]) if count else chosen.classes[factor])
        for factor, count in zip(bound, counts, strict=False)
    ]


def cell_shares(train: Path, factors: list[str]) -> pd.Series:
    """Share of the training images in each drawn cell, indexed by (target class, cue classes)."""
    return read_table(train, factors).to_pandas().value_counts(normalize=True)


def tested_groups(test: Path, factors: list[str], groups: list[str]) -> dict[Cell, str]:
    """The test group of each drawn cell; the last of these groups, if it is in several."""
    table = read_table(test, ["group", *factors]).to_pandas().drop_duplicates()
    rows = sorted(table.itertuples(index=False, name=None), key=lambda row: groups.index(row[0]))
    return {tuple(cell): group for group, *cell in rows}


def example_images(path: Path, factors: list[str], cells: set[Cell]) -> dict[Cell, np.ndarray]:
    """The first image uint8[H, W, 3] of each requested cell in an image file; reads no further than
    necessary."""
    found: dict[Cell, np.ndarray] = {}
    with open_parquet(path) as file:
        shape = file_metadata(file, path)["image_shape"]
        for batch in file.iter_batches(batch_size=256, columns=[*factors, "image"]):
            names = (batch.column(factor).to_pylist() for factor in factors)
            for row, cell in enumerate(zip(*names, strict=True)):
                if cell in cells and cell not in found:
                    pixels = batch.column("image")[row].as_py()
                    found[cell] = np.frombuffer(pixels, np.uint8).reshape(shape)
            if len(found) == len(cells):
                break
    return found


def _draw_cell(axes: Axes, image: np.ndarray | None, share: float, colour: str) -> None:
    axes.set(xticks=[], yticks=[])
    if image is not None:
        axes.imshow(image, interpolation="none")
    axes.spines[:].set(visible=True, edgecolor=colour, linewidth=2.2)
    text = f"{100 * share:.3g} %" if share else "never"
    axes.set_xlabel(text, fontsize=8, labelpad=2)
