"""Example images of a scene: each class of each factor (paper, Fig. 2), each combination of a
binding's classes."""

import base64
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from diagvib.foundation.files import whole_file
from diagvib.report.style import new_figure, styled
from diagvib.scenes.scene import Scene

_SIDE = 96  # pixels of one combination on the page


def is_prepared(scene: Scene, prepared: Path) -> bool:
    """Whether everything that a scene renders from is present."""
    return all((prepared / name).exists() for name in scene.prepared_files())


def factor_sheet(scene: Scene, prepared: Path) -> Figure:
    """A row per factor, an image per class; all other factors are fixed (paper, Fig. 2)."""
    names = [(factor, name) for factor, classes in scene.factors.items() for name in classes]
    images = dict(
        zip(names, scene.examples(prepared, [dict([name]) for name in names]), strict=True)
    )
    side, columns = len(next(iter(images.values()))), max(map(len, scene.factors.values()))
    across, down = round(1.1 * side), round(1.31 * side)
    sheet = np.full((down * len(scene.factors), across * columns, 3), 255, np.uint8)
    with styled():
        figure = new_figure(max(0.98 * columns + 0.4, 3.6), 1.16 * len(scene.factors) + 0.2)
        axes = figure.subplots()  # shared by all images: one for each takes three times as long
        for row, (factor, classes) in enumerate(scene.factors.items()):
            bottom = (row + 1) * down
            axes.text(
                -0.08 * side,
                bottom - side / 2,
                factor,
                fontsize=9,
                rotation=90,
                ha="right",
                va="center",
            )
            for column, name in enumerate(classes):
                left = column * across
                sheet[bottom - side : bottom, left : left + side] = images[factor, name]
                axes.text(
                    left + side / 2,
                    bottom - 1.05 * side,
                    name,
                    fontsize=8,
                    ha="center",
                    va="bottom",
                )
        axes.imshow(sheet, interpolation="none")
        axes.set_axis_off()
    return figure


def write_examples(
    scene: Scene, prepared: Path, shown: Mapping[str, list[tuple[str, tuple[str, ...]]]], out: Path
) -> None:
    """Write {out}/{name}.webp for each name: all combinations of its classes, rows target, columns
    cue classes.

    shown: for each name, the factor and classes of target and cue.
    """
    cells = [
        {target: row, cue: column}
        for (target, rows), (cue, columns) in shown.values()
        for row in rows
        for column in columns
    ]
    images = list(scene.examples(prepared, cells)) if cells else []
    for name, ((_, rows), (_, columns)) in shown.items():
        own, images = images[: len(rows) * len(columns)], images[len(rows) * len(columns) :]
        whole = np.concatenate(
            [
                np.concatenate(own[i : i + len(columns)], axis=1)
                for i in range(0, len(own), len(columns))
            ]
        )
        with whole_file(out / f"{name}.webp") as temporary:
            Image.fromarray(whole).resize(
                (len(columns) * _SIDE, len(rows) * _SIDE), Image.Resampling.LANCZOS
            ).save(temporary, format="webp", quality=82, method=6)


def example_addresses(folder: Path) -> dict[str, str]:
    """What `write_examples` wrote, as data addresses for a page, by name."""
    return {
        path.stem: "data:image/webp;base64," + base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.glob("*.webp"))
    }
