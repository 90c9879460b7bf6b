"""The cost of the workflow itself at full size: 246 draw, render and encode jobs each and 2,214
train jobs, with tiny files.

It runs in a copy of the repository in a temporary folder, with the real rules, Snakefile, profile
and hooks. Only the command `diagvib` that the jobs call is replaced: by a shell script that writes
a line into every file that the real one would write. What remains is Snakemake, the file system,
and DVC if the repository has a dvc.yaml.

    python benchmarks/full_workflow.py                        # writes benchmarks/results/workflow-cpu-DATE.json
    python benchmarks/full_workflow.py --baselines 90 --no-run         # a dry run of 110,700 runs
    python benchmarks/full_workflow.py --baselines 1 --no-ledger --out DIR -- --scheduler-subsample 50
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
import yaml
from result_file import REPOSITORY, RESULTS, Out, save_result

from diagvib.foundation.files import DIGESTS_FILE
from diagvib.images import FEATURES_FILE
from diagvib.results import TABLE_FILES
from diagvib.scenes.digits.factors import classes
from diagvib.settings.layout import RUN_FILES
from diagvib.studies.study import SPLITS

# The paper's nine (Sec. 4).
BASELINES = [
    "resnet18",
    "alexnet",
    "resnet50",
    "wide_resnet50_2",
    "densenet161",
    "resnet50_in",
    "asr",
    "vae",
    "factor_vae",
]
FROZEN = "resnet50_in"
SAMPLES = 5

# Called as `diagvib STAGE NAMES ... --root R ...`. Lines differ from file to file, so that DVC
# stores each file; digest files name the files that they stand for.
STAND_IN = """#!/bin/sh
stage=$1; a=${2##*:}; b=$3; c=$4; root=.
while [ $# -gt 0 ]; do [ "$1" = --root ] && root=$2; shift; done
make() { mkdir -p "$1"; folder=$1; shift; for name; do echo "$stage $folder $name" > "$folder/$name"; done; }
list() { folder=$1; shift; (cd "$folder"; sha256sum "$@") | sed 's/\\(.*\\)  \\(.*\\)/"\\2": "\\1",/; 1s/^/{/; $s/,$/}/' \\
         > "$folder/%(digests)s"; }
each() { for sample in %(samples)s; do for name; do echo "$sample/$name"; done; done; }
case $stage in
  fetch) make "$root/data/raw/$a" train.gz; list "$root/data/raw/$a" train.gz ;;
  weights) mkdir -p "$root/data/raw/weights"; echo "{}" > "$root/data/raw/weights/$a.$b.json" ;;
  prepare) make "$root/data/prepared/$a/textures" %(textures)s
           make "$root/data/prepared/$a" digits.parquet sources.json
           list "$root/data/prepared/$a" digits.parquet sources.json ;;
  draw) make "$root/data/recipes/$a" "$b.parquet" ;;
  render) for sample in %(samples)s; do make "$root/data/images/$a/$b/$sample" %(images)s; done
          list "$root/data/images/$a/$b" $(each %(images)s) ;;
  encode) mkdir -p "$root/data/features/$a/$b/$c"
          echo "{\\"$a $b $c\\": 0}" > "$root/data/features/$a/$b/$c/%(features)s" ;;
  train) for sample in %(samples)s; do make "$root/results/runs/$a/$b/$c/$sample" %(runs)s; done
         list "$root/results/runs/$a/$b/$c" $(each %(runs)s) ;;
  tabulate) make "$root/results/tables" %(tables)s; make "$root/results/metrics/a" b.json ;;
  plot) make "$root/results/figures/sheets" a.png; make "$root/results" report.html
        make "$root/results/explorer" index.html ;;
  *) echo "the stand-in knows no $stage" >&2; exit 1 ;;
esac
"""


def copy_of_the_repository(folder: Path, baselines: int) -> Path:
    """A Git repository of the checkout's files, with a configuration that asks for so many
    baselines: the paper's, then copies of small_cnn."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=REPOSITORY,
        text=True,
        check=True,
        capture_output=True,
    ).stdout.splitlines()
    for name in listed:
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    small_cnn = yaml.safe_load((folder / "config/baselines/diagvib6.yaml").read_text())["small_cnn"]
    copies = {f"copy_{number}": small_cnn for number in range(len(BASELINES), baselines)}
    (folder / "copies.yaml").write_text(yaml.safe_dump(copies))
    asked = {
        "baselines": [*BASELINES[:baselines], *copies],
        "baselines_from": ["copies.yaml"] if copies else [],
        "samples": SAMPLES,
    }
    path = folder / "config/config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | asked, sort_keys=False))
    return folder


def environment_with_stand_in(folder: Path) -> Path:
    """A virtual environment like this one except for the command `diagvib`; returns its Python.

    The rules use the `diagvib` next to the Python that runs Snakemake.
    """
    (folder / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder)
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    for program in ("python", "dvc"):
        if (Path(sys.prefix) / "bin" / program).exists():
            (folder / "bin" / program).symlink_to(Path(sys.prefix) / "bin" / program)
    stand_in = folder / "bin" / "diagvib"
    stand_in.write_text(
        STAND_IN
        % {
            "samples": " ".join(map(str, range(SAMPLES))),
            "textures": " ".join(f"{texture}.png" for texture in classes("texture")),
            "images": " ".join(f"{split}.parquet" for split in SPLITS),
            "digests": DIGESTS_FILE,
            "features": FEATURES_FILE,
            "runs": " ".join(RUN_FILES),
            "tables": " ".join(TABLE_FILES),
        }
    )
    stand_in.chmod(0o755)
    return folder / "bin" / "python"


class Stopwatch:
    """Runs commands in a folder, one after another, and keeps a row for each: what, seconds, peak
    memory, and more."""

    def __init__(self, log: Path):
        self.rows: list[dict] = []
        self._log = log

    def __call__(
        self, what: str, command: list[str | Path], folder: Path, expect: str = "", **more
    ) -> str:
        """Time a command; returns its output. SystemExit if it fails or does not print `expect`."""
        start = time.perf_counter()
        with self._log.open("w+") as log:
            environment = os.environ | {"PYTHONPATH": str(folder / "src")}
            running = subprocess.Popen(
                command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
            _, status, usage = os.wait4(running.pid, 0)
            seconds = time.perf_counter() - start
            running.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            said = log.read()
        if running.returncode or expect not in " ".join(said.split()):
            raise SystemExit(
                f"{what}: {' '.join(map(str, command))} in {folder} ended with {running.returncode}, "
                f"and said:\n{said[-3000:]}"
            )
        row = {
            "what": what,
            "device": "cpu",
            "seconds": round(seconds, 2),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),  # its children's too
            "peak_memory_mib": round(usage.ru_maxrss / 1024),
            **more,
        }
        self.rows.append(row)
        print(*(f"{key} {value}" for key, value in row.items() if key != "device"), flush=True)
        return said


def commit_all(folder: Path, message: str) -> None:
    """Commit everything in a folder to its Git repository, under a neutral name."""
    name = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    for command in (["add", "--all"], [*name, "commit", "--quiet", "--message", message]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def measure_workflow(
    timed: Stopwatch, snakemake: list[str | Path], folder: Path, jobs: int
) -> None:
    """From nothing to complete, and the time Snakemake takes to say that there is nothing to do."""
    timed("run", snakemake, folder, jobs=jobs)
    timed.rows[-1]["jobs_per_second"] = round(jobs / timed.rows[-1]["seconds"], 1)
    timed.rows[-1]["files"] = sum(
        len(names) for top in ("data", "results") for _, _, names in os.walk(folder / top)
    )
    timed("dry run, complete", [*snakemake, "-n"], folder, "Nothing to be done")
    timed("run, complete", snakemake, folder, "Nothing to be done")


def measure_ledger(timed: Stopwatch, snakemake: list[str | Path], folder: Path) -> None:
    """DVC's part: recording all artifacts, checking whether they changed, and a clone that pulls
    them."""
    dvc, clone = snakemake[0].parent / "dvc", folder.parent / "clone"
    # The run itself has recorded everything once; this is what a later run with few changes adds:
    timed(
        "ledger commit",
        [snakemake[0], "-c", "from diagvib.workflow.ledger import commit; commit('.')"],
        folder,
    )
    timed("ledger status", [dvc, "status"], folder, "up to date")
    commit_all(folder, "results")
    store = ["remote", "add", "--force", "--default", "--local", "store", folder.parent / "store"]
    subprocess.run([dvc, *store], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    timed("ledger push to a local folder", [dvc, "push"], folder)
    subprocess.run(["git", "clone", "--quiet", folder, clone], check=True)
    subprocess.run([dvc, *store], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    timed("ledger pull in a clone", [dvc, "pull", "--quiet"], clone)
    timed("dry run in the clone", [*snakemake, "-n"], clone, "Nothing to be done")
    timed("ledger status in the clone", [dvc, "status"], clone, "up to date")


def main(
    options: Annotated[list[str] | None, typer.Argument(help="More options for snakemake.")] = None,
    baselines: Annotated[
        int, typer.Option(min=1, help="The paper's nine, then copies of one.")
    ] = len(BASELINES),
    run: Annotated[bool, typer.Option(help="Not only a dry run.")] = True,
    keep: Annotated[
        Path | None, typer.Option(help="Work in this new folder, and leave it.")
    ] = None,
    ledger: Annotated[bool, typer.Option(help="Measure DVC too.")] = True,
    out: Out = RESULTS,
) -> None:
    """Simulate the full grid, by default the paper's, and write its cost."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    work = keep or Path(mkdtemp(prefix="diagvib-workflow-"))
    copy, load = copy_of_the_repository(work / "repository", baselines), os.getloadavg()[0]
    python = environment_with_stand_in(work / "environment")
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    commit_all(copy, "code")
    timed = Stopwatch(work / "said.log")
    snakemake = [python, "-m", "snakemake", "--cores", "all", *(options or [])]
    # fetch, prepare, tabulate, plot and all, in addition to draw and render of each dataset, the
    # training jobs, and encode and weights for the frozen network
    encoded = FROZEN in BASELINES[:baselines]
    jobs = 5 + encoded + 246 * (2 + encoded + baselines)
    timed("dry run from nothing", [*snakemake, "-n"], copy, f"total {jobs}", jobs=jobs)
    if run:
        measure_workflow(timed, snakemake, copy, jobs)
    if run and ledger and (copy / "dvc.yaml").exists():
        measure_ledger(timed, snakemake, copy)
    save_result("workflow", "cpu", timed.rows, out, load_before=load)
    if not keep:
        shutil.rmtree(work)


if __name__ == "__main__":
    typer.run(main)
