"""The lock that a killed Snakemake leaves, under the real Snakefile and rules; the command of the
jobs is a stand-in."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stand_in import command, repository_with_stand_in
from toy import environment

CONFIG = """
root: toy
sources: embedded
studies: [zgo]
bindings: [hue-shape]
samples: 5
baselines: [small_cnn]
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository whose training lasts until it contains a file `go`."""
    return repository_with_stand_in(
        tmp_path, CONFIG, "touch training; until [ -e go ]; do sleep 0.1; done"
    )


def start(repository: Path, *arguments: str) -> subprocess.Popen:
    """Snakemake, in a separate process group."""
    return subprocess.Popen(
        command(repository, "runs", *arguments),
        cwd=repository,
        env=environment(repository),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def training(repository):
    """Snakemake during training. Whatever remains of it is killed."""
    running = start(repository)
    while not (repository / "training").exists():
        assert running.poll() is None, running.stdout.read()
        time.sleep(0.1)
    yield running
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def goes_on(repository: Path) -> None:
    (repository / "go").touch()
    said, _ = (again := start(repository)).communicate()
    assert again.returncode == 0, said


def test_killed_it_says_how_to_unlock_and_then_continues(repository, training):
    said, _ = (second := start(repository)).communicate()
    assert second.returncode == 1 and "Directory cannot be locked" in said
    assert "It can be removed with the --unlock argument" in " ".join(said.split())
    assert training.poll() is None
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    assert start(repository, "--unlock").wait() == 0
    goes_on(repository)


def test_nothing_is_half_deleted(repository):
    said, _ = (asked := start(repository, "--delete-all-output")).communicate()
    assert asked.returncode == 1
    assert "`rm -r toy/data toy/results` deletes everything" in said.splitlines()[-1]


def test_ended_by_a_signal_it_says_so_and_that_the_same_command_continues(repository, training):
    os.killpg(training.pid, signal.SIGTERM)
    said, _ = training.communicate()
    assert training.returncode == 1 and "no backup found" not in said
    assert said.splitlines()[-1] == "error: stopped by SIGTERM; the same command goes on from there"
    goes_on(repository)
