"""What a killed Snakemake leaves locked, under the real Snakefile and rules; the command of the
jobs is a stand-in."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stand_in import python, repository_with_stand_in
from test_workflow import environment

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


def start(repository: Path) -> subprocess.Popen:
    """Snakemake, in a separate process group."""
    return subprocess.Popen(
        [python(repository), "-m", "snakemake", "--cores", "1", "runs", "--configfile", "toy.yaml"],
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


def locks(repository: Path) -> list[Path]:
    return sorted((repository / ".snakemake/locks").glob("*"))


def test_killed_with_its_jobs_the_same_command_continues(repository, training):
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    assert locks(repository)
    (repository / "go").touch()
    said, _ = (again := start(repository)).communicate()
    assert again.returncode == 0, said
    assert not locks(repository)


def test_killed_alone_its_jobs_keep_the_folder_until_they_have_ended(repository, training):
    training.kill()
    training.wait()
    said, _ = (again := start(repository)).communicate()
    assert again.returncode == 1
    *_, last = said.splitlines()
    assert last.startswith(
        "error: the last Snakemake here was killed, but its jobs still run (process "
    )
    assert locks(repository)
    (repository / "go").touch()
    said, _ = (again := start(repository)).communicate()
    assert again.returncode == 0, said


def test_a_lock_that_lives_or_that_another_machine_may_hold_is_kept(repository, training):
    kept = locks(repository)
    said, _ = (second := start(repository)).communicate()
    assert second.returncode == 1 and "Directory cannot be locked" in said and "--unlock" in said
    assert locks(repository) == kept and training.poll() is None
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    for path in kept:
        *files, signature = path.read_text().splitlines()
        name, equals, machine = signature.partition("=")
        assert name == "DIAGVIB_RUN"
        path.write_text("\n".join([*files, name + equals + "another" + machine]) + "\n")
    said, _ = (second := start(repository)).communicate()
    assert second.returncode == 1 and "Directory cannot be locked" in said and "--unlock" in said
    assert locks(repository) == kept


def test_ended_by_a_signal_it_says_so_and_that_the_same_command_continues(repository, training):
    os.killpg(training.pid, signal.SIGTERM)
    said, _ = training.communicate()
    assert training.returncode == 1 and "no backup found" not in said
    assert said.splitlines()[-1] == "error: stopped by SIGTERM; the same command goes on from there"
    (repository / "go").touch()
    said, _ = (again := start(repository)).communicate()
    assert again.returncode == 0, said
