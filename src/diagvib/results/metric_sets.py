"""The sets of metrics, by the name under which a study requests one. To add a set, add a file and a
line here."""

from collections.abc import Mapping

import pandas as pd

from diagvib.results.accuracy import accuracy_tables
from diagvib.results.average import average_tables
from diagvib.results.gaps import gaps_tables
from diagvib.results.known_studies import KnownStudies
from diagvib.results.shortcut import shortcut_tables

# Each makes its tables from the runs, the long table of cells, the known studies, and the settings
# of each baseline.
METRIC_SETS = {
    "shortcut": shortcut_tables,
    "accuracy": accuracy_tables,
    "gaps": gaps_tables,
    "average": average_tables,
}


def metric_tables(
    runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> dict[str, pd.DataFrame]:
    """The tables of every set, each from the runs of the studies that name it; without rows if
    there are none."""
    found: dict[str, pd.DataFrame] = {}
    for name, make in METRIC_SETS.items():
        studies = known.judged_by(name, runs["study"])
        found |= make(
            runs[runs["study"].isin(studies)], cells[cells["study"].isin(studies)], known, baselines
        )
    return found
