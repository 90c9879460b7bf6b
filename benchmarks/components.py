"""Write the components of variation that `diagvib plan --detect` reads, config/components.csv, from the
runs of a configuration with several seeds:

python benchmarks/components.py config/seeds/small.yaml outputs/seeds/small/results/tables/runs.csv

A row for each study and binding: of the accuracy where the cue misleads (without a cue, of all), and
of its difference from the first baseline's, paired by sample and seed. Rows of other protocols are
kept; those of the same are replaced.
"""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import typer
from result_file import REPOSITORY

from diagvib.foundation.files import write_text
from diagvib.results.cells import RUN_KEYS
from diagvib.results.variation import SPREADS, variation_rows
from diagvib.studies.needs import ID, OOD

OUT = REPOSITORY / "config/components.csv"
COLUMNS = ["protocol", "number", "study", "binding", "mean", "n", "seeds", *SPREADS]
COLUMNS += ["command", "date"]


def main(configuration: Path, runs_file: Path, out: Path = OUT) -> None:
    protocol, runs = configuration.stem, pd.read_csv(runs_file, keep_default_na=False, na_values="")
    runs = runs[runs["status"] == "ok"].fillna({"cue": ""})
    command = f"snakemake --cores all --configfile {configuration}"
    rows = pd.DataFrame(components(runs)).assign(
        protocol=protocol, command=command, date=date.today().isoformat()
    )
    others = pd.read_csv(out).query("protocol != @protocol") if out.exists() else rows[:0]
    table = pd.concat([others, rows])[COLUMNS]
    write_text(out, table.to_csv(index=False, float_format="%.4g"))


def components(runs: pd.DataFrame) -> Iterator[dict]:
    """`variation_rows` of single bindings, of accuracies and of differences."""
    groups = (runs.get(f"{group}_accuracy", np.nan) for group in (ID, OOD))
    values = runs[RUN_KEYS].assign(accuracy=np.where(runs["cue"] == "", *groups))
    first = values["baseline"].iloc[0]
    keys = [name for name in RUN_KEYS if name != "baseline"]
    reference = values[values["baseline"] == first].set_index(keys)["accuracy"]
    further = values[values["baseline"] != first].set_index(keys)
    change = further.assign(accuracy=further["accuracy"] - reference).reset_index()
    for part in (values, change):
        for row in variation_rows(part) if len(part) else ():
            if row["binding"]:
                difference = f" - {first}" if part is change else ""
                yield {**row, "number": f"{row['baseline']}{difference}"}


if __name__ == "__main__":
    typer.run(main)
