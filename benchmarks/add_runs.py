"""Add the finished runs that a GPU brought back to those of the paper's protocol, and say which cells
of the paper's tables are whole.

    python benchmarks/add_runs.py RESULTS

RESULTS: the folder of benchmarks/on_a_gpu.sh. Runs of another code, protocol or images are named and
left out. Those with another seed or precision go into a file of their own.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from gpu_jobs import CONFIG, MAIN_ROOT, read_lines

from diagvib import stages
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_text
from diagvib.papers.diagvib6.verdicts import COMPARED, PAPER_SAMPLES
from diagvib.results.cells import RUN_KEYS
from diagvib.results.tidy_tables import with_seeds
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout, run_folder_name
from diagvib.settings.resolve import load_config

COMMITTED = Path("docs/results/paper_protocol")
OF_RECORD = ("precision", "device", "images_per_second", "date")
OF_METRICS = ("selected_epoch", "epochs")
RUNS = Path(__file__).with_name("protocol_runs.txt")


def main(
    results: Annotated[Path, typer.Argument(help="The folder that came back.")],
    folder: Annotated[Path, typer.Option(help="Where the tables are.")] = COMMITTED,
    runs: Annotated[Path, typer.Option(help="The list of the runs.")] = RUNS,
    set_: Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, of all.")] = None,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    work = unpacked(results)
    for name in dict.fromkeys(line.root for line in read_lines(runs)):
        layout = Layout(work / name)
        if layout.all_runs.exists():
            lines = [line for line in read_lines(runs) if line.root == name]
            baselines = ", ".join(dict.fromkeys(line.baseline for line in lines))
            studies = ", ".join(dict.fromkeys(line.study for line in lines))
            changes = [f"baselines=[{baselines}]", f"studies=[{studies}]", "images=render"]
            config = load_config(CONFIG, [*changes, *lines[0].overrides, *(set_ or ())])
            stages.tabulate(layout, stage_settings(config, "tabulate"))
            table = "runs" if name == MAIN_ROOT else name
            added = add(finished(layout), folder / f"{table}.csv", RUN_KEYS)
            print(f"{name}: {added} finished runs")
    main_layout = Layout(work / MAIN_ROOT)
    if (main_layout.tables / "history.parquet").exists():
        history = with_seeds(pd.read_parquet(main_layout.tables / "history.parquet"))
        add(history, folder / "history.csv", [*RUN_KEYS, "epoch"])
        print(*whole_cells(pd.read_csv(main_layout.tables / "comparison.csv")), sep="\n")
    if (log := results / "devices.csv").exists():
        add(pd.read_csv(log), folder / "devices.csv", ["ended", "device", "step"])


def unpacked(results: Path) -> Path:
    """The folder with the roots, and in it all runs of the archive. DiagvibError without any."""
    work = results / "work"
    parts = sorted(results.glob("finished.tgz.*"))
    if parts:
        archive = results / "finished.tgz"
        with archive.open("wb") as file:
            for part in parts:
                shutil.copyfileobj(part.open("rb"), file)
        command = ["tar", "-xzf", archive, "-C", results]
        if not (marker := results / "unpacking").exists():  # otherwise files may be cut off
            command.append("--skip-old-files")
        marker.touch()
        status = subprocess.run(command).returncode
        archive.unlink()
        if status:
            raise DiagvibError(f"{parts[0]}: not unpacked; are all parts of this archive there?")
        marker.unlink()
    if not work.exists():
        raise DiagvibError(f"{results}: no finished runs; name the folder of on_a_gpu.sh")
    return work


def finished(layout: Layout) -> pd.DataFrame:
    """A row for each finished run, with where and how it was trained."""
    table = with_seeds(pd.read_csv(layout.tables / "runs.csv"))
    rows = []
    for row in table[table["status"] == "ok"].to_dict("records"):
        run = layout.runs(row["baseline"], row["study"], row["binding"]) / run_folder_name(
            row["sample"], row["seed"]
        )
        record, metrics = read_json(run / "run.json"), read_json(run / "metrics.json")
        facts = {key: record[key] for key in OF_RECORD} | {key: metrics[key] for key in OF_METRICS}
        rows.append(
            {key: value for key, value in row.items() if key not in ("status", "reason")} | facts
        )
    return pd.DataFrame(rows)


def add(rows: pd.DataFrame, path: Path, keys: list[str]) -> int:
    """Add rows to a table, instead of earlier ones with the same keys; returns their number."""
    if not len(rows):
        return 0
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=rows.columns)
    if "sample" in keys and "sample" not in table:
        table.insert(table.columns.get_loc("cue") + 1, "sample", 0)  # there was no other
    table = with_seeds(table)
    columns = [name for name in rows if name in (*table, "date")]
    parts = [part.fillna({"cue": ""}) for part in (table, rows[columns]) if len(part)]
    joint = pd.concat(parts, ignore_index=True).drop_duplicates(keys, keep="last")
    write_text(path, joint.to_csv(index=False, float_format="%.10g"))
    return len(rows)


def whole_cells(comparison: pd.DataFrame) -> list[str]:
    """A line for each number of the paper that has runs: ours, the paper's and the verdict."""
    cells = comparison[comparison["verdict"].isin(COMPARED)]
    count = f"{(cells['n'] == PAPER_SAMPLES).sum()} whole cells"
    return [
        *(
            f"{cell.table} {cell.study} {cell.baseline} {cell.target} {cell.metric}: {100 * cell.ours:.1f} "
            f"(paper {100 * cell.paper:.0f}), {cell.n} of {PAPER_SAMPLES} samples, {cell.verdict}"
            for cell in cells.itertuples()
        ),
        count,
    ]


if __name__ == "__main__":
    try:
        typer.run(main)
    except DiagvibError as error:
        sys.exit(f"error: {error}")
