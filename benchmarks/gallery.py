"""Draw the pictures of docs/gallery.md: a shortcut in training beside its test, every class of each
factor and an image of every cell of some studies, from the embedded sources.

    python benchmarks/gallery.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import numpy as np
import typer
from pictures import THEMES
from result_file import REPOSITORY

from diagvib.foundation.files import read_table, write_json
from diagvib.report.sheets import contact_sheet, example_images, factor_sheet, images_at
from diagvib.report.style import Drawing, new_figure
from diagvib.settings.layout import Layout
from diagvib.studies.known_studies import KnownStudies

OUT = REPOSITORY / "docs/gallery"
SHOWN = {  # study -> the factors that its picture shows
    "zso": "shape-hue",
    "zgo": "shape-hue",
    "cgo-2": "shape-hue",
    "chgo": "shape-hue",
    "fgo-20": "shape-hue",
    "whac-95": "shape-position-hue",
}
SETTINGS = {
    "sources": "embedded",
    "studies": [*SHOWN],
    "bindings": [*dict.fromkeys(SHOWN.values())],
    "samples": 1,
    "counts": {"train": 3600, "val": 360, "id": 360, "ood": 360, "test": 360},
    "image_size": 96,
}


def main() -> None:
    with TemporaryDirectory() as folder:
        config = Path(folder, "gallery.yaml")
        write_json(config, SETTINGS | {"root": folder})
        known, layout = KnownStudies(), Layout(Path(folder))
        _diagvib("prepare", config)
        _save(factor_sheet("digits", layout.prepared("digits")), "factors")
        for study, shown in SHOWN.items():
            factors = shown.split("-")
            binding = "-".join(factors[: len(known.studies[study].bound)])
            _diagvib("draw", study, binding, config)
            _diagvib("render", study, binding, config)
            images = layout.images(study, binding) / "0"
            _save(contact_sheet(images, study, factors, known), study)
        for name, theme in THEMES.items():
            with mpl.rc_context(theme.style):
                _save(shortcut(layout.images("zgo", "shape-hue") / "0"), f"shortcut-{name}")


def shortcut(folder: Path) -> Drawing:
    """Two training images and two test images of each shape: in training it has one hue, in the test
    those of the others."""
    factors = ["shape", "hue"]
    train = read_table(folder / "train.parquet", factors).to_pandas()
    tested = example_images(folder / "test.parquet", factors)
    figure = new_figure(8, 2.9)
    for part, title in zip(figure.subfigures(1, 2), ("in training", "in the test"), strict=True):
        part.suptitle(title, fontsize=13)
        grid = part.subplots(2, 3)
        cells = train.drop_duplicates().itertuples(index=False, name=None)
        for column, (shape, hue) in zip(grid.T, cells, strict=True):
            rows = np.flatnonzero((train["shape"] == shape) & (train["hue"] == hue))[:2]
            images = images_at(folder / "train.parquet", rows)
            if title == "in the test":
                images = [tested[cell] for cell in tested if cell[0] == shape and cell[1] != hue]
            for axes, image in zip(column, images, strict=True):
                axes.imshow(image, interpolation="none")
                axes.set_axis_off()
    return figure


def _diagvib(*words: object) -> None:
    *command, config = map(str, words)
    program = [sys.executable, "-m", "diagvib", *command, "--config", config]
    subprocess.run(program, cwd=REPOSITORY, check=True)


def _save(drawing: Drawing, name: str) -> None:
    OUT.mkdir(exist_ok=True)
    drawing.savefig(OUT / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    typer.run(main)
