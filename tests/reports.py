"""Figures and page from the tables of a test."""

import json
import re
from pathlib import Path

from diagvib.report.figure import Material
from diagvib.report.figures import draw_figures
from diagvib.report.page import write_report


def make_report(root: Path, settings: dict, **folders) -> str:
    """Draw {root}/figures and write {root}/report.html from {root}/tables, and from runs and images
    if there are any; returns the page."""
    folders = {"images": root / "images", "runs": root / "runs", **folders}
    material = Material(root / "tables", settings, **folders)
    drawn = draw_figures(material, root / "figures")
    write_report(material, drawn, root / "figures", root / "report.html")
    return (root / "report.html").read_text(encoding="utf-8")


def drawn_in(root: Path) -> set[str]:
    """The names of the figures, and of nothing else, that are there as PNG and as SVG."""
    paths = {path.relative_to(root / "figures") for path in (root / "figures").rglob("*.*")}
    names = {str(path.with_suffix("")) for path in paths}
    assert {str(path) for path in paths} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }
    return names


def matrix_of(page: str) -> dict:
    """The data of the page's matrix."""
    return json.loads(re.search(r'id="matrix-data">(.*?)</script>', page, re.DOTALL)[1])
