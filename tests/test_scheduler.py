"""Snakemake's own process under the real Snakefile and rules; only the command that the jobs call
is a stand-in."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import REPOSITORY
from diagvib.scenes import load_scene
from diagvib.studies.binding import all_bindings
from diagvib.studies.study import load_study
from stand_in import python, repository_with_stand_in
from test_workflow import environment

BINDINGS = [
    binding.name for binding in all_bindings(load_study("zgo"), load_scene("digits").factors)
][:15]
# 60 quick jobs, then two trainings that take turns on one core.
CONFIG = f"""
root: toy
sources: embedded
studies: [zgo, chgo]
bindings: [{", ".join(BINDINGS)}]
samples: 5
baselines: [{{name: small_cnn, studies: [zgo], bindings: [{", ".join(BINDINGS[:2])}]}}]
"""
# Snakemake, and a thread in it that records the largest number of timers.
WATCHED = """
import pathlib, sys, threading, time
def watch():
    most = 0
    while True:
        most = max(most, sum(isinstance(thread, threading.Timer) for thread in threading.enumerate()))
        pathlib.Path("timers.new").write_text(str(most))
        pathlib.Path("timers.new").replace("timers.txt")
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
from snakemake.cli import main
main(sys.argv[1:])
"""

# A limit that holds jobs back when they are selected, and has ended when the scheduler thinks about
# a timer.
ENDED = """
from snakemake.scheduling.job_scheduler import JobRateLimiter as limiter
limiter.get_free_jobs = lambda self, first=iter([{}]), usual=limiter.get_free_jobs: next(first, usual(self))
"""
# Two jobs that each note, before they end, which ones have started.
TWO = """
from diagvib.operations.scheduler import wake_only_for_the_limit
wake_only_for_the_limit()
rule all:
    input: "one", "two"
rule job:
    output: "{name}"
    shell: "touch started.{wildcards.name}; sleep 3; ls started.* > {output}"
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    return repository_with_stand_in(tmp_path, CONFIG, "sleep 3")


@contextmanager
def snakemake(repository: Path, *arguments: str, changed: str = ""):
    with (repository / "said.txt").open("w") as said:
        command = [
            python(repository),
            "-c",
            changed + WATCHED,
            "--cores",
            "1",
            *arguments,
            "--configfile",
            "toy.yaml",
        ]
        running = subprocess.Popen(
            command,
            cwd=repository,
            env=environment(repository),
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            yield running
        finally:
            running.kill()
            running.wait()


def recipes(repository: Path) -> int:
    return len(list((repository / "toy/data/recipes").rglob("*.parquet")))


def test_finished_jobs_leave_no_timers_behind(repository):
    with snakemake(repository, "runs") as running:
        assert running.wait(timeout=300) == 0, (repository / "said.txt").read_text()
    assert len(list((repository / "toy/results/runs").rglob("run.json"))) == 10
    assert int((repository / "timers.txt").read_text()) <= 1


def test_a_rate_limit_of_the_users_still_limits(repository):
    with snakemake(repository, "--max-jobs-per-timespan", "5/1h", "recipes") as running:
        while "rate limit reached" not in (said := (repository / "said.txt").read_text()):
            assert running.poll() is None, said
            time.sleep(0.1)
        time.sleep(2)
        assert running.poll() is None and recipes(repository) == 4, "prepare, and four of draw"
        assert int((repository / "timers.txt").read_text()) == 1


def test_what_a_rate_limit_held_back_is_started_after_its_time(repository):
    with snakemake(repository, "--max-jobs-per-timespan", "5/1s", "recipes") as running:
        assert running.wait(timeout=300) == 0, (repository / "said.txt").read_text()
    assert "rate limit reached" in (repository / "said.txt").read_text()
    assert recipes(repository) == 30
    assert int((repository / "timers.txt").read_text()) <= 2, (
        "one, and perhaps the one before, on its way out"
    )


def test_a_limit_that_ends_while_nothing_runs_stops_nothing(repository):
    with snakemake(repository, "recipes", changed=ENDED.format(0)) as running:
        assert running.wait(timeout=60) == 0, (repository / "said.txt").read_text()
    assert (repository / "said.txt").read_text().count("rate limit reached") == 1 and recipes(
        repository
    ) == 30


def test_a_job_that_a_limit_held_back_starts_while_another_runs(tmp_path):
    (tmp_path / "Snakefile").write_text(TWO)
    code = ENDED.format(1) + "from snakemake.cli import main; main(['--cores', '2'])"
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == [
        "started.one\nstarted.two\n"
    ] * 2


def test_a_snakemake_without_that_scheduler_is_left_alone(repository):
    code = (
        "import snakemake.scheduling.job_scheduler as module; del module.JobScheduler._schedule_reevalutation; "
        "from diagvib.operations.scheduler import wake_only_for_the_limit as mend; mend(); "
        "assert not hasattr(module.JobScheduler, '_schedule_reevalutation')"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        check=True,
    )
