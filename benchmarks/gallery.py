"""Draw the pictures of docs/gallery.md: every class of each factor and an image of every cell of some
studies, from the embedded sources.

    python benchmarks/gallery.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from result_file import REPOSITORY

from diagvib.foundation.files import write_json
from diagvib.report.sheets import contact_sheet, factor_sheet
from diagvib.report.style import Drawing
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


def _diagvib(*words: object) -> None:
    *command, config = map(str, words)
    program = [sys.executable, "-m", "diagvib", *command, "--config", config]
    subprocess.run(program, cwd=REPOSITORY, check=True)


def _save(drawing: Drawing, name: str) -> None:
    OUT.mkdir(exist_ok=True)
    drawing.savefig(OUT / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    typer.run(main)
