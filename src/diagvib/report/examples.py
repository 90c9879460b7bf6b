"""Example images of a scene: each class of each factor (paper, Fig. 2), each combination of a
binding's classes."""

import base64
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from diagvib.report.figure import Figure, Material
from diagvib.report.sheets import shown_classes
from diagvib.report.style import Drawing, new_figure, styled
from diagvib.scenes import load_scene
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.grid import folder_name

_SIDE = 96  # pixels of one combination on the page


def example_figures(material: Material) -> Iterator[Figure]:
    """Files only: a sheet for each prepared scene; if there are several, the name includes it."""
    scenes = _prepared_scenes(material)
    for scene, folder in scenes.items():
        name = "factors" if len(scenes) == 1 else f"factors_{folder_name(scene)}"
        draw = partial(factor_sheet, scene, folder)
        yield Figure(f"sheets/{name}", f"{scene}: each class of each factor", draw)


def _prepared_scenes(material: Material) -> dict[str, Path]:
    """The scenes of which everything is present that they render from, and where that is."""
    scenes = dict.fromkeys(material.known.studies[study].scene for study in material.studies)
    folders = {scene: material.prepared(scene) for scene in scenes if material.prepared}
    return {scene: folder for scene, folder in folders.items() if is_prepared(folder)}


@styled()
def factor_sheet(scene: str, prepared: Path) -> Drawing:
    """A row per factor, an image per class; all other factors are fixed (paper, Fig. 2)."""
    loaded = load_scene(scene)
    names = [(factor, name) for factor, classes in loaded.factors.items() for name in classes]
    examples = loaded.examples(prepared, [dict([name]) for name in names])
    images = dict(zip(names, examples, strict=True))
    side, columns = len(examples[0]), max(map(len, loaded.factors.values()))
    across, down = round(1.1 * side), round(1.31 * side)
    sheet = np.full((down * len(loaded.factors), across * columns, 3), 255, np.uint8)
    figure = new_figure(max(0.98 * columns + 0.4, 3.6), 1.16 * len(loaded.factors) + 0.2)
    axes = figure.subplots()  # shared by all images: one for each takes three times as long
    for row, (factor, classes) in enumerate(loaded.factors.items()):
        bottom = (row + 1) * down
        look = {"fontsize": 9, "rotation": 90, "ha": "right", "va": "center"}
        axes.text(-0.08 * side, bottom - side / 2, factor, **look)
        for column, name in enumerate(classes):
            left = column * across
            sheet[bottom - side : bottom, left : left + side] = images[factor, name]
            look = {"fontsize": 8, "ha": "center", "va": "bottom"}
            axes.text(left + side / 2, bottom - 1.05 * side, name, **look)
    axes.imshow(sheet, interpolation="none")
    axes.set_axis_off()
    return figure


def example_pictures(material: Material) -> dict[str, str]:
    """For each pair of target and cue, a data address with all combinations of its classes: rows
    target, columns cue classes. The key is {scene}-{target}-{cue}-{rows}x{columns}."""
    known, pairs, found = material.known, material.frames["runs"][["study", "binding"]], {}
    pairs = pairs[pairs["binding"].str.count("-") == 1].drop_duplicates().to_numpy()
    for scene, folder in _prepared_scenes(material).items():
        shown = [
            shown_classes(study, binding.split("-"), known)
            for study, binding in pairs
            if known.studies[study].scene == scene
        ]
        found |= _pictures(scene, folder, shown)
    return found


def _pictures(scene: str, prepared: Path, shown: list) -> dict[str, str]:
    """shown: for each picture, factor and classes of target and cue."""
    cells = {
        f"{folder_name(scene)}-{target}-{cue}-{len(rows)}x{len(columns)}": [
            [{target: row, cue: column} for column in columns] for row in rows
        ]
        for (target, rows), (cue, columns) in shown
    }
    wanted = [cell for rows in cells.values() for row in rows for cell in row]
    images = iter(load_scene(scene).examples(prepared, wanted) if wanted else ())
    return {
        name: _address(np.vstack([np.hstack([next(images) for _ in row]) for row in rows]), rows)
        for name, rows in cells.items()
    }


def _address(picture: np.ndarray, rows: list) -> str:
    size = (len(rows[0]) * _SIDE, len(rows) * _SIDE)
    return webp_address(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def webp_address(picture: Image.Image) -> str:
    """A picture as a data address, a tenth of the size of a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="webp", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
