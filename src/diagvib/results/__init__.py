"""Results. The names of the tables' files are here, so that rules need not import pandas."""

from diagvib.studies.metric_needs import METRICS

# The tidy tables, each as CSV and as Parquet.
TIDY = (
    "runs",
    "metrics",
    *(name for needs in METRICS.values() for name in needs.tables),
    "selection",
    "selection_price",
    "variation",
    "comparison",
    "agreement",
    "run_times",
)

# The files that `tabulate` writes under results/tables.
TABLE_FILES = (
    *(f"{name}.{kind}" for name in TIDY for kind in ("csv", "parquet")),
    "cells.parquet",
    "history.parquet",
    "versions.json",
    "tables.md",
    "tables.tex",
)
