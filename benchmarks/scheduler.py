"""How much CPU Snakemake's own process takes while many jobs have finished and two long ones run.

A Snakefile of empty jobs, then of long ones of which two run and two wait; once with Snakemake's
own scheduler, once without its default limit. The share is of one core, over the given
time, starting a little after the long jobs do.

    python benchmarks/scheduler.py                  # writes benchmarks/results/scheduler-cpu-DATE.json
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from result_file import REPOSITORY, RESULTS, Out, print_rows, save_result

SNAKEFILE = """
onstart:
    if config["mended"]:
        from diagvib.workflow.hooks import look_only_when_a_job_ends
        look_only_when_a_job_ends(workflow)
rule all:
    input: expand("long/{n}", n=range(4))
rule quick:
    output: "quick/{n}"
    shell: "touch {output}"
rule finished:
    input: expand("quick/{n}", n=range(config["jobs"]))
    output: touch("finished")
rule long:
    input: "finished"
    output: "long/{n}"
    shell: "mkdir -p started; touch started/{wildcards.n}; exec sleep 3600"
"""

SETTLED = 5  # seconds, for the CPU time that starting the long jobs takes


def main(
    jobs: Annotated[int, typer.Option(help="Finished before the long ones start.")] = 2000,
    seconds: Annotated[int, typer.Option(help="To measure for.")] = 20,
    out: Out = RESULTS,
) -> None:
    """Measure both and write the result."""
    load, rows = os.getloadavg()[0], []
    for mended in (False, True):
        rows.append(
            {
                "what": f"snakemake after {jobs} jobs, two long ones running",
                "device": "cpu",
                "scheduler": "without its default limit" if mended else "as it comes",
                "jobs": jobs,
                **measured(jobs, seconds, mended),
            }
        )
    shown = ("scheduler", "quick_jobs_seconds", "cpu_share", "threads")
    print_rows(rows, **dict.fromkeys(shown, ""))
    save_result("scheduler", "cpu", rows, out, load_before=load)


def measured(jobs: int, seconds: float, mended: bool) -> dict:
    """Run it in a separate folder; ends everything that it started."""
    with TemporaryDirectory() as folder:
        Path(folder, "Snakefile").write_text(SNAKEFILE)
        options = [
            "-m",
            "snakemake",
            "--cores",
            "2",
            "--scheduler",
            "greedy",
            "--quiet",
            "all",
            "--config",
        ]
        start = time.perf_counter()
        running = subprocess.Popen(
            [sys.executable, *options, f"jobs={jobs}", f"mended={mended}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while len(list(Path(folder).glob("started/*"))) < 2:
                if running.poll() is not None:
                    raise SystemExit("snakemake ended early")
                time.sleep(0.2)
            quick = time.perf_counter() - start
            time.sleep(SETTLED)
            before, since = cpu_seconds(running.pid), time.perf_counter()
            time.sleep(seconds)
            share = (cpu_seconds(running.pid) - before) / (time.perf_counter() - since)
            threads = len(os.listdir(f"/proc/{running.pid}/task"))
        finally:
            os.killpg(running.pid, 9)
            running.wait()
    return {"quick_jobs_seconds": round(quick, 1), "cpu_share": round(share, 4), "threads": threads}


def cpu_seconds(process: int) -> float:
    """User and system time of a process, without its children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    typer.run(main)
