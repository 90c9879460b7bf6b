"""Figures and page from the tables of a test."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagvib.foundation.files import write_table
from diagvib.report.figures import draw_figures
from diagvib.report.page import write_report
from diagvib.report.report_data import ReportData
from diagvib.report.style import STACKED
from diagvib.studies.known_studies import sample_of
from diagvib.studies.study import load_study


def write_images(folder: Path, study: str, factors: list[str]) -> None:
    """Image files of dataset sample 0 in which a pixel encodes the classes of its cell: [20 + 80 *
    target class, 20 + 80 * cue class, ...]."""
    subject, selection = load_study(study), sample_of("digits", 0).classes
    facts = {"study": study, "binding": "-".join(factors), "sample": 0, "image_shape": [8, 8, 3]}
    for split in ("train", "test"):
        rows = []
        for cell in subject.cells(split).to_dict("records"):
            position = [cell[f"{role}_class"] for role in subject.roles]
            names = {name: selection[name][i] for name, i in zip(factors, position, strict=True)}
            image = bytes([*(20 + 80 * i for i in position), 0][:3] * 64)
            times = round(2000 * cell["weight"]) if split == "train" else 1
            rows += [{"group": cell["group"], **names, "image": image}] * times
        table = pa.Table.from_pylist(rows)
        write_table(folder / f"{split}.parquet", table, facts | {"split": split})


def report_data_of(root: Path, settings: dict, runs: Path | None = None) -> ReportData:
    """The data of the page of a test's root."""
    runs = runs or root / "runs"
    return ReportData(
        root / "tables", settings, root / "images", runs, lambda scene: root / "prepared"
    )


def make_report(root: Path, settings: dict, runs: Path | None = None) -> str:
    """Draw {root}/figures and write {root}/report.html from {root}/tables, runs and images; returns
    the page."""
    report_data = report_data_of(root, settings, runs)
    draws = draw_figures(report_data, root / "figures")
    write_report(report_data, draws, root / "figures", root / "report.html")
    return (root / "report.html").read_text(encoding="utf-8")


def drawn_in(root: Path) -> set[str]:
    """The names of the figures, and of nothing else, that are there as PNG and as SVG."""
    all_items = (root / "figures").rglob("*.*")
    paths = {path.relative_to(root / "figures") for path in all_items if STACKED not in path.stem}
    names = {str(path.with_suffix("")) for path in paths}
    assert {str(path) for path in paths} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }
    return names


def band_of(axes) -> np.ndarray:
    """The heights of the corners of a panel's first band."""
    return axes.collections[0].get_paths()[0].vertices[:, 1]


def matrix_of(page: str) -> dict:
    """The data of the page's matrix."""
    return json.loads(re.search(r'id="matrix-data">(.*?)</script>', page, re.DOTALL)[1])
