"""Snakemake's own process under the real Snakefile and rules; only the command that the jobs call
is a stand-in."""

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagvib.scenes import load_scene
from diagvib.studies.binding import all_bindings
from diagvib.studies.study import load_study
from stand_in import command, repository_with_stand_in
from toy import environment

BINDINGS = [
    binding.name for binding in all_bindings(load_study("zgo"), load_scene("digits").factors)
][:5]
# 20 quick jobs, then two trainings that take turns on one core.
CONFIG = f"""
root: toy
sources: embedded
studies: [zgo, chgo]
bindings: [{", ".join(BINDINGS)}]
samples: 5
baselines: [{{name: small_cnn, studies: [zgo], bindings: [{", ".join(BINDINGS[:2])}]}}]
"""
# Snakemake, and a thread in it that counts how often it sees a timer.
WATCHED = """
import pathlib, sys, threading, time
def watch():
    looks = timers = 0
    while True:
        looks += 1
        timers += any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
        pathlib.Path("timers.new").write_text(f"{timers} {looks}")
        pathlib.Path("timers.new").replace("timers.txt")
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
from snakemake.cli import main
main(sys.argv[1:])
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    return repository_with_stand_in(tmp_path, CONFIG, "sleep 2")


@contextmanager
def snakemake(repository: Path, *arguments: str):
    with (repository / "said.txt").open("w") as said:
        running = subprocess.Popen(
            command(repository, *arguments, code=WATCHED),
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


def test_finished_jobs_leave_no_timers_behind(repository):
    with snakemake(repository, "runs") as running:
        assert running.wait(timeout=300) == 0, (repository / "said.txt").read_text()
    assert len(list((repository / "toy/results/runs").rglob("run.json"))) == 10
    timers, looks = map(int, (repository / "timers.txt").read_text().split())
    assert timers == 0 and looks > 100


def test_a_rate_limit_of_the_users_still_limits(repository):
    with snakemake(repository, "--max-jobs-per-timespan", "5/1h", "recipes") as running:
        while "rate limit reached" not in (said := (repository / "said.txt").read_text()):
            assert running.poll() is None, said
            time.sleep(0.1)
        time.sleep(2)
        assert running.poll() is None
    drawn = list((repository / "toy/data/recipes").rglob("*.parquet"))
    assert len(drawn) == 4, "prepare, and four of draw"
