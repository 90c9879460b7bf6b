"""Contact sheets of studies with two cues: an image of every cell, its share in training, and which
cue misleads."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from diagvib.foundation.files import file_metadata, open_parquet, read_table
from diagvib.report.sheets import Cell, cell_shares, example_images, shown_classes
from diagvib.report.style import HELD_OUT, MUTED, TESTED_ID, TESTED_OOD, TRAINED, new_figure, styled
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.studies.binding import Binding
from diagvib.studies.needs import GAP_GROUPS

_SIDE, _TEXT, _LEGEND = (
    0.86,
    0.2,
    6.6,
)  # inches: side of a picture, height of the text below it, width of the legend
_COLOURS = dict(zip(GAP_GROUPS.values(), (TRAINED, HELD_OUT, TESTED_ID, TESTED_OOD), strict=True))


def cell_sheet(train: Path, test: Path, binding: Binding, known: KnownStudies = SHIPPED) -> Figure:
    """A block for each target class: rows are the classes of cue 1, columns those of cue 2, one
    image each.

    train, test: image files of one (study, binding, sample); binding: of a target and two cues.
    Below each image is its cell's share of the training images; the colour of the frame is that of
    the test group. DiagvibError for missing or damaged files.
    """
    with open_parquet(train) as file:
        metadata = file_metadata(file, train)
    (target, blocks), (first, rows), (second, columns) = shown_classes(
        metadata["study"], binding, metadata["sample"], known
    )
    cells = list(product(blocks, rows, columns))
    share, group = cell_shares(train, binding), tested_groups(test, binding)
    images = example_images(test, binding, set(cells) - set(share.index))
    images |= example_images(train, binding, set(share.index))
    with styled():
        figure = new_figure(
            max(_SIDE * len(blocks) * len(columns) + 0.25 * len(blocks) + 0.5, _LEGEND),
            (_SIDE + _TEXT) * len(rows) + 1.1,
        )
        parts = figure.subfigures(1, len(blocks), squeeze=False)[0]
        for part, block in zip(parts, blocks, strict=True):
            part.suptitle(f"{target}: {block}", fontsize=10)
            grid = part.subplots(len(rows), len(columns), squeeze=False)
            for i, j in product(range(len(rows)), range(len(columns))):
                cell = (block, rows[i], columns[j])
                _draw_cell(
                    grid[i, j], images.get(cell), float(share.get(cell, 0)), group.get(cell, "")
                )
                if i == 0:
                    grid[i, j].set_title(columns[j], loc="center", fontsize=8, pad=4)
            for axes, name in zip(grid[:, 0], rows, strict=True):
                axes.set_ylabel(name, fontsize=8)
        handles = [
            Patch(facecolor="none", edgecolor=_COLOURS[name], linewidth=2, label=words)
            for name, words in _group_words(first, second, share, group).items()
        ]
        figure.legend(
            handles=handles,
            loc="outside upper left",
            ncols=2,
            fontsize=8.5,
            alignment="left",
            title=f"{known.title(metadata['study'])}: rows {first}, columns {second}; below each image its "
            "share of the training images",
        )
    return figure


def tested_groups(test: Path, binding: Binding) -> dict[Cell, str]:
    """The test group of each drawn cell."""
    table = (
        read_table(test, ["group", *binding.factors])
        .to_pandas()
        .drop_duplicates(list(binding.factors))
    )
    return dict(
        zip(
            table[list(binding.factors)].itertuples(index=False, name=None),
            table["group"],
            strict=True,
        )
    )


def _group_words(
    first: str, second: str, share: pd.Series, group: dict[Cell, str]
) -> dict[str, str]:
    """For each group that occurs, its meaning and its share of the training images."""
    misleads = {
        (True, True): "both cues agree with the target",
        (False, True): f"{first} misleads",
        (True, False): f"{second} misleads",
        (False, False): "both mislead",
    }
    of_group = share.groupby([group.get(cell, "") for cell in share.index]).sum()
    return {
        name: f"{misleads[agree]}: {100 * of_group.get(name, 0):.3g} % of training"
        for agree, name in GAP_GROUPS.items()
        if name in group.values()
    }


def _draw_cell(axes: Axes, image: np.ndarray | None, share: float, group: str) -> None:
    colour = _COLOURS.get(group, MUTED)
    axes.set(xticks=[], yticks=[])
    if image is not None:
        axes.imshow(image, interpolation="none")
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=colour, linewidth=2.2)
    axes.set_xlabel(
        f"{100 * share:.2g} %" if share else "never", fontsize=8, color=colour, labelpad=2
    )
