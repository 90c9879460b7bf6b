"""CPU seconds of processes that do little more than start, with this code and with that of another
checkout.

A training job of 64 images, the figures of a toy run, and `snakemake -n` of the paper's
configuration. The two checkouts alternate, each in a folder of its own; the ratio is the median
over the rounds.

    git worktree add ../before COMMIT
    python benchmarks/starts.py ../before               # writes benchmarks/results/starts-cpu-DATE.json
"""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated

import typer

REPOSITORY = Path(__file__).parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests")]

from diagvib.bench.results import RESULTS, save_result  # noqa: E402
from diagvib.settings.grid import Layout  # noqa: E402
from test_workflow import copy_of_the_repository  # noqa: E402

TOY = ["--configfile", "toy.yaml", "--config", "device=cpu"]
TRAINED = str(Layout(Path("toy")).runs("small_cnn", "zgo", "hue-shape"))
# What is deleted first, and the arguments of Snakemake, whose own start is counted, too.
WORK = {
    "a training job of 64 images": ([TRAINED], [*TOY, "--", f"{TRAINED}/0/metrics.json"]),
    "the figures of a toy run": (["toy/results/figures"], TOY),
    "snakemake -n, the paper's configuration": ([], ["-n"]),
}


def main(
    before: Annotated[Path, typer.Argument(help="The other checkout.")],
    rounds: Annotated[int, typer.Option(help="Each with both checkouts.", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = RESULTS,
) -> None:
    """Measure all and write the result."""
    load, rows = os.getloadavg()[0], []
    with TemporaryDirectory() as top:
        folders = [
            copy_of_the_repository(Path(mkdtemp(dir=top)), checkout)
            for checkout in (before, REPOSITORY)
        ]
        for folder in folders:
            cpu_seconds(folder, TOY)
        for what, (deleted, arguments) in WORK.items():
            pairs = [
                [seconds(folder, deleted, arguments) for folder in folders] for _ in range(rounds)
            ]
            rows.append(
                {
                    "what": what,
                    "device": "cpu",
                    "before_cpu_s": round(median(old for old, _ in pairs), 2),
                    "now_cpu_s": round(median(new for _, new in pairs), 2),
                    "ratio": round(median(old / new for old, new in pairs), 2),
                    "rounds": rounds,
                }
            )
            print(
                "  ".join(f"{key} {value}" for key, value in rows[-1].items() if key != "device"),
                flush=True,
            )
    save_result("starts", "cpu", rows, out, load_before=load)


def seconds(folder: Path, deleted: list[str], arguments: list[str]) -> float:
    for path in deleted:
        shutil.rmtree(folder / path)
    return cpu_seconds(folder, arguments)


def cpu_seconds(folder: Path, arguments: list[str]) -> float:
    """Of Snakemake and its jobs, run one after another."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "1", *arguments],
        cwd=folder,
        check=True,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    typer.run(main)
