"""The record of a figure, and what figures and the page are made from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from diagvib.papers.diagvib6.finding import telling_bindings
from diagvib.report.style import Drawing
from diagvib.results.metric_sets.findings import findings
from diagvib.results.metric_sets.metric_set import Finding
from diagvib.results.read_runs import run_folder
from diagvib.results.reader_tables import Frames
from diagvib.results.tidy_tables import read_tables
from diagvib.studies.known_studies import KnownStudies, known_studies


@dataclass(frozen=True)
class Figure:
    """name: its path below `figures/`, without the ending. title: what it shows, also for screen
    readers. draw: importable, so that another process can call it; None if there is nothing to
    show. section: the title of the page's section that shows it, empty for one that is only a file.
    caption: the text below it on the page. folded: shown on request."""

    name: str
    title: str
    draw: Callable[[], Drawing | None]
    section: str = ""
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class ReportData:
    """tables: the folder of the tidy tables. settings: the configuration. images: the folder of
    image files. runs: the folder of all runs. prepared: the folder of a scene's prepared sources.
    Examples are taken from what there is of the last three."""

    tables: Path
    settings: dict
    images: Path
    runs: Path
    prepared: Callable[[str], Path]

    @cached_property
    def frames(self) -> Frames:
        return read_tables(self.tables)

    @cached_property
    def known_studies(self) -> KnownStudies:
        return known_studies(self.settings)

    @cached_property
    def findings(self) -> list[Finding]:
        """What the results show, the most important first."""
        return findings(self.frames, self.known_studies, self.settings.get("mine"))

    @cached_property
    def studies(self) -> list[str]:
        return list(self.frames["runs"]["study"].unique())

    @cached_property
    def samples(self) -> str:
        """What repetitions are called here."""
        return self.known_studies.repetitions(self.studies)

    @cached_property
    def first_runs(self) -> pd.DataFrame:
        """The complete runs of dataset sample 0 with the first seed, with their folder."""
        runs = self.frames["runs"]
        first = (runs["sample"] == 0) & (runs["seed"] == 0)
        finished_runs = runs[first & (runs["status"] == "ok")]
        return finished_runs.assign(
            folder=[run_folder(self.runs, run) for run in finished_runs.to_dict("records")]
        )

    @cached_property
    def binding(self) -> str:
        """The binding that shows a shortcut best; empty if there is none."""
        bindings = telling_bindings(self.frames["p_matrix"], self.known_studies)
        return f"{bindings['target'][0]}-{bindings['cue'][0]}" if len(bindings) else ""
