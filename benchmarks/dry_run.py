"""What a dry run of the default configuration costs, here and at other commits; and what Snakemake
alone takes for as many jobs, by a Snakefile that knows nothing of this package.

All take turns, after one run of each that does not count.

    python benchmarks/dry_run.py                 # writes benchmarks/results/dry-run-cpu-DATE.json
    python benchmarks/dry_run.py before=FOLDER   # and a clone at an older commit
"""

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from full_workflow import Stopwatch
from result_file import REPOSITORY, RESULTS, Out, print_rows, save_result

# The rules of one job for each dataset, or network and dataset, with all that ours have.
SNAKEFILE = """
DATASETS = [f"study-{number // 30}/binding-{number % 30}" for number in range(246)]
RUNS = [f"train/network-{number}/{dataset}.json" for number in range(9) for dataset in DATASETS]

rule all:
    input: RUNS, expand("render/{dataset}.json", dataset=DATASETS), "plot.json"

rule plot:
    input: "tabulate.json"
    output: "plot.json"

rule tabulate:
    input: RUNS
    output: "tabulate.json"

rule prepare:
    output: "prepare.json"
"""
RULE = """
rule STAGE:
    input: INPUT
    output: "STAGE/NAMES.json"
    log: "logs/STAGE/NAMES.log"
    benchmark: "logs/benchmarks/STAGE/NAMES.tsv"
    resources: gpu_share=0
    params: settings="settings.json", code="digest"
    message: "STAGE MESSAGE"
    shell: "diagvib STAGE MESSAGE --settings {params.settings:q} --gpu-share {resources.gpu_share} > {log:q}"
"""
DATASET = "{study}/{binding}"
RULES = [
    ("draw", '"prepare.json"', DATASET),
    ("render", f'"prepare.json", "draw/{DATASET}.json"', DATASET),
    ("encode", f'"render/{DATASET}.json"', DATASET),
    ("train", "lambda names: features_or_images(**names)", f"{{network}}/{DATASET}"),
]
FUNCTION = """
def features_or_images(network, study, binding):
    return f"{'encode' if network == 'network-0' else 'render'}/{study}/{binding}.json"
"""


def write_snakefile(folder: Path) -> None:
    """A Snakefile with as many jobs as the default configuration has."""
    text = FUNCTION + SNAKEFILE
    for stage, inputs, names in RULES:
        shown = re.sub(r"{(\w+)}", r"{wildcards.\1}", names).replace("/", " ")
        rule = RULE.replace("STAGE", stage).replace("INPUT", inputs)
        text += rule.replace("NAMES", names).replace("MESSAGE", shown)
    (folder / "Snakefile").write_text(text)


def measure(timed: Stopwatch, name: str, folder: Path) -> None:
    """A dry run in a folder, and how many jobs it finds."""
    command = [sys.executable, "-m", "snakemake", "--dry-run"]
    if not (folder / "profiles").exists():  # the options of ours
        command += ["--quiet", "reason", "host", "--scheduler", "greedy"]
    totals = re.findall(r"^total +(\d+)$", timed(name, command, folder, "total"), re.MULTILINE)
    timed.rows[-1]["jobs"] = int(totals[-1])


def main(
    checkouts: Annotated[list[str] | None, typer.Argument(help="Others, as NAME=FOLDER.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    out: Out = RESULTS,
) -> None:
    """Measure all and write the result."""
    load = os.getloadavg()[0]
    with TemporaryDirectory() as temporary:
        alone = Path(temporary, "alone")
        alone.mkdir()
        write_snakefile(alone)
        folders = {"snakemake alone": alone, "this checkout": REPOSITORY}
        for checkout in checkouts or []:
            name, _, folder = checkout.partition("=")
            folders[name] = Path(folder)
        timed = Stopwatch(Path(temporary, "said.log"))
        for _ in range(rounds + 1):
            for name, folder in folders.items():
                measure(timed, name, folder)
    rows = timed.rows[len(folders) :]
    print_rows(rows, what="", jobs="d", cpu_seconds=".1f", peak_memory_mib="d")
    save_result("dry-run", "cpu", rows, out, load_before=load)


if __name__ == "__main__":
    typer.run(main)
