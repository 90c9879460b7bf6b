"""Every figure, drawn in several processes; the same tables give the same bytes."""

import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

from diagvib.foundation.parallel import in_processes
from diagvib.papers.notes import source_note
from diagvib.report.confusion import confusion_figures
from diagvib.report.curves import cue_strength_figures, curve_figures
from diagvib.report.dot_plots import rank_figures
from diagvib.report.epochs import preference_figures, training_figures
from diagvib.report.gap_figures import gap_figures
from diagvib.report.matrix import heat_map_figures
from diagvib.report.price_figures import price_figures
from diagvib.report.report_data import Figure, ReportData
from diagvib.report.sheets import factor_figures, sheet_figures
from diagvib.report.style import HELD_OUT, PHONE, STACKED, save_figure, stacked
from diagvib.report.visualisation_sheets import (
    looking_figures,
    reconstruction_figures,
    visualisation_figures,
)
from diagvib.results.combinations import untested_notes

# Each gives the figures of one kind. The slowest come first, so that all processes end at about the
# same time.
KINDS = (
    factor_figures,
    training_figures,
    gap_figures,
    visualisation_figures,
    looking_figures,
    reconstruction_figures,
    cue_strength_figures,
    curve_figures,
    preference_figures,
    confusion_figures,
    sheet_figures,
    heat_map_figures,
    rank_figures,
    price_figures,
)
# With fewer figures, starting another process costs more time than it saves.
FIGURES_A_PROCESS = 12
_NOTES = 2  # of combinations without test images, below a figure


def draw_figures(report_data: ReportData, out: Path, threads: int = 1) -> list[Figure]:
    """Write every figure to `out` as PNG and SVG, in place of those that are there; returns those
    that have something to show.

    threads: the most processes that draw; the files do not depend on it.
    """
    figures, times = [figure for kind in KINDS for figure in kind(report_data)], Counter()
    for position, figure in enumerate(figures):
        times[figure.name] += 1
        if times[figure.name] > 1:  # study `a_b` with baseline `c`, and `a` with `b_c`
            figures[position] = replace(figure, name=f"{figure.name}+{times[figure.name]}")
    shutil.rmtree(out, ignore_errors=True)
    runs = report_data.frames["runs"]
    texts = [source_note(runs, report_data.settings), *untested_notes(runs)[:_NOTES]]
    note = "\n".join(filter(None, texts))
    outcomes = in_processes(
        partial(draw_figure, out=out, note=note),
        figures,
        threads,
        min_per_process=FIGURES_A_PROCESS,
    )
    return [figure for figure, outcome in zip(figures, outcomes, strict=True) if outcome]


def draw_figure(figure: Figure, out: Path, note: str) -> bool:
    """Draw and write one figure, and for the page one with stacked panels, if that is narrower; false
    where there is nothing to show."""
    drawing = figure.draw()
    if drawing is None:
        return False
    drawings = {"": drawing}
    if figure.section and drawing.get_figwidth() > PHONE:
        with stacked():
            narrow = figure.draw()
        if narrow.get_figwidth() < drawing.get_figwidth():
            drawings[STACKED] = narrow
    for ending, panel in drawings.items():
        if note:
            # Not a label of all panels' axes, of which a figure has one at most.
            look = {"title": note, "title_fontproperties": {"size": 7}, "alignment": "left"}
            legend = panel.legend(handles=[], loc="outside lower left", borderpad=0, **look)
            legend.get_title().set_color(HELD_OUT)
        kinds = ("svg",) if ending else ("png", "svg")
        save_figure(panel, out / f"{figure.name}{ending}", kinds)
    return True
