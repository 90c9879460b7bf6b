"""Results. The names of the tables' files are here, so that reading them imports neither pandas nor
scipy."""

# The tidy tables, each as CSV and as Parquet.
TIDY = (
    "runs",
    "p_matrix",
    "metrics",
    "contrasts",
    "comparison",
    "summary",
    "agreement",
    "reference",
    "overall",
    "baselines",
    "selection",
    "accuracy",
    "gaps",
    "whac_a_mole",
    "gap_methods",
    "average",
    "average_methods",
    "selection_average",
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
    "p_matrix.md",
    "p_matrix.tex",
)
