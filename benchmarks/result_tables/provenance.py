"""Where each committed result comes from: runs, commands, dates, machines, times."""

import os

import pandas as pd
from result_file import REPOSITORY

from result_tables.committed import Row

SOURCES = REPOSITORY / "docs/results/provenance.csv"


def provenance_table() -> list[Row]:
    rows = [["results", "runs", "command", "date", "machine", "time"]]
    for source in pd.read_csv(SOURCES, keep_default_na=False).itertuples():
        path = os.path.relpath(source.results, "docs")
        name = path.removeprefix("results/").removesuffix("/runs.csv").rpartition("/")[2]
        commands = "<br>".join(f"`{line}`" for line in source.command.splitlines())
        runs = str(number_of_runs(pd.read_csv(REPOSITORY / source.results)))
        rows.append([f"[{name}]({path})", runs, commands, source.date, source.machine, source.time])
    return rows


def number_of_runs(table: pd.DataFrame) -> int:
    """Of a table with a row for each run, or of means over n runs."""
    if "status" in table:
        return int((table["status"] == "ok").sum())
    if "sample" in table:
        return len(table)
    means = table.dropna(subset="study").drop_duplicates(["study", "baseline", "binding"])
    return int(means["n"].sum())
