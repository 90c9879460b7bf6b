"""Write the components of variation that `diagvib plan --detect` reads, config/components.csv, from the
runs of a configuration with several seeds:

python benchmarks/components.py config/seeds/small.yaml outputs/seeds/small/results/tables/runs.csv

A row for each study and binding: of the accuracy where the cue misleads (without a cue, of all), and
of its difference from the first baseline's, paired by sample and seed. Rows of other protocols are
kept; those of the same are replaced. Then the table of docs/chance.md is written anew.
"""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import typer
from result_file import REPOSITORY
from result_tables.committed import misled_accuracy

from diagvib.commands.detect import (
    count_text,
    is_gain,
    pooled,
    read_components,
    samples_needed,
    variance_of_means,
    with_median_gains,
)
from diagvib.foundation.files import write_text
from diagvib.results.cells import RUN_KEYS
from diagvib.results.reader_tables import markdown_table
from diagvib.results.variation import SPREADS, variation_rows
from diagvib.studies.metric_needs import ID

OUT, PAGE = REPOSITORY / "config/components.csv", REPOSITORY / "docs/chance.md"
# In points.
EFFECTS = (5, 10, 20)
COLUMNS = ["protocol", "number", "study", "binding", "mean", "n", "seeds", *SPREADS]
COLUMNS += ["command", "date"]


def main(
    configuration: Path, runs_file: Path, out: Path = OUT, protocol: str = "", changes: str = ""
) -> None:
    """changes: what `--config` changed in the configuration; protocol: then its name."""
    protocol = protocol or configuration.stem
    runs = pd.read_csv(runs_file, keep_default_na=False, na_values="")
    runs = runs[runs["status"] == "ok"].fillna({"cue": ""})
    command = f"snakemake --cores all --configfile {configuration}"
    command += f" --config '{changes}'" if changes else ""
    rows = pd.DataFrame(components(runs)).assign(
        protocol=protocol, command=command, date=date.today().isoformat()
    )
    others = [pd.read_csv(out).query("protocol != @protocol")] if out.exists() else []
    table = pd.concat([*(part for part in others if len(part)), rows])[COLUMNS]
    write_text(out, table.to_csv(index=False, float_format="%.4g"))
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- detect -->\n")
    write_text(
        PAGE,
        f"{head}<!-- detect -->\n{page_table()}\n<!-- end -->{rest.partition('<!-- end -->')[2]}",
    )


def page_table() -> str:
    """The samples that show effects of several sizes, with one seed each, and with which counts the
    interval of the variance of runs agrees. Of more than two methods of a protocol, the gains stand in one row,
    which has the medians of their variances."""
    lines, variances = [], with_median_gains(pooled(read_components()))
    for (protocol, number, study), variance in variances.iterrows():
        accuracies = variance["base"], is_gain(number)
        run = variance_of_means(variance, 1), variance["low"], variance["high"]
        counts = []
        for effect in EFFECTS:
            count, low, high = (
                count_text(samples_needed(effect / 100, part, *accuracies)) for part in run
            )
            counts.append(f"{count} ({low} to {high})")
        deviations = [f"{100 * np.sqrt(variance[source]):.1f}" for source in ("samples", "seeds")]
        lines.append([protocol, number, study, *deviations, *counts])
    heads = ["protocol", "result", "study", "SD, samples", "SD, seeds"]
    heads += [f"samples for {effect} points" for effect in EFFECTS]
    return "\n".join(markdown_table(heads, lines))


def components(runs: pd.DataFrame) -> Iterator[dict]:
    """`variation_rows` of single bindings, of accuracies and of differences."""
    plain = runs.get(f"{ID}_accuracy", np.nan)
    values = runs[RUN_KEYS].assign(
        accuracy=np.where(runs["cue"] == "", plain, misled_accuracy(runs))
    )
    first = values["baseline"].iloc[0]
    keys = [name for name in RUN_KEYS if name != "baseline"]
    reference = values[values["baseline"] == first].set_index(keys)["accuracy"]
    further = values[values["baseline"] != first].set_index(keys)
    references = reference.reindex(further.index).to_numpy()
    change = further.assign(accuracy=further["accuracy"] - references).reset_index()
    for part in (values, change):
        for row in variation_rows(part) if len(part) else ():
            if row["binding"]:
                difference = f" - {first}" if part is change else ""
                yield {**row, "number": f"{row['baseline']}{difference}"}


if __name__ == "__main__":
    typer.run(main)
