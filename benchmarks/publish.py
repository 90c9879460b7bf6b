"""Copy what readers want from an experiment into docs/: tables, figures, and how and where they
were made.

    python benchmarks/publish.py outputs/laptop docs/results/laptop

The root must be complete and recorded (docs/data.md): its config.yaml says what was run, its
dvc.lock has the hash of every result; both are copied, too. The report, a megabyte, stays in the
root.
"""

import csv
import json
import shutil
import sys
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from result_file import machine

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.workflow.dvc import lock_of
from diagvib.workflow.ledger import verify
from diagvib.workflow.root_stages import config_of

# Copied if they exist; tables without rows are left out.
TABLES = (
    "metrics",
    "p_matrix",
    "runs",
)
FIGURES = (
    "p_matrix/zgo_*.png",
    "p_matrix/zso_*.png",
    "curves/*.png",
    "ranking/zgo.png",
    "asymmetry/zgo.png",
    "reconstructions/*.png",
)


def publish(root: Path, folder: Path) -> dict:
    """Copy tables (CSV), figures (PNG) and ledger; returns the content of about.json next to
    them."""
    if not lock_of(str(root)).exists():
        raise DiagvibError(
            f"{lock_of(str(root))}: no such file; run `diagvib record --config FILE` first"
        )
    if changed := verify(str(root))["modified"]:
        raise DiagvibError(f"{changed[0]}: changed since it was recorded; run `snakemake` first")
    config, layout = load_config(config_of(str(root))), Layout(root)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tables = [
        path for name in TABLES for path in sorted(layout.tables.glob(f"{name}.csv")) if _rows(path)
    ]
    for path in tables:
        shutil.copyfile(path, folder / path.name)
    for path in (path for name in FIGURES for path in sorted(layout.figures.glob(name))):
        shutil.copyfile(path, folder / f"{path.parent.name}_{path.name}")
    for path in (config_of(str(root)), lock_of(str(root))):
        shutil.copyfile(path, folder / path.name)
    runs = [read_json(path) for path in sorted(layout.all_runs.rglob("run.json"))]
    about = {
        "runs": len(runs),
        "expected": len(config.train_jobs) * config.samples,
        "date": date.today().isoformat(),
        "machine": machine(),
        "precision": sorted({run["precision"] for run in runs}),
        "versions": {
            name: sorted({run["versions"][name] for run in runs}) for name in runs[0]["versions"]
        },
        "commits": sorted({run["git"]["commit"] for run in runs if run["git"]}),
        "training_hours": round(
            sum(run["seconds"]["train"] + run["seconds"]["test"] for run in runs) / 3600, 2
        ),
    }
    write_json(folder / "about.json", about)
    return about


def _rows(path: Path) -> bool:
    with path.open(newline="") as file:
        return len(list(csv.reader(file))) > 1


def main(
    root: Annotated[Path, typer.Argument()], folder: Annotated[Path, typer.Argument()]
) -> None:
    try:
        print(json.dumps(publish(root, folder), indent=2))
    except DiagvibError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    typer.run(main)
