"""The real workflow at toy size, in a copy of the repository: the same result always, whatever happens on the way."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import REPOSITORY

TOY = """
root: toy
sources: embedded
studies: [zso, zgo, chgo]
pairs: [hue-shape]
samples: 2
counts: {train: 64, val: 18, id: 18, ood: 18}
baselines: [small_cnn]
training: {max_epochs: 2}
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    """A copy of what the workflow needs, with a toy configuration."""
    for name in ("Snakefile", "rules", "src", "config", "profiles"):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    (tmp_path / "toy.yaml").write_text(TOY)
    return tmp_path


def environment(repository: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(repository / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def command(*arguments: str, cores: int = 2) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--cores", str(cores), *arguments]


def snakemake(repository: Path, *arguments: str, cores: int = 2, fails: bool = False) -> str:
    done = subprocess.run(command(*arguments, cores=cores), cwd=repository, env=environment(repository),
                          capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def toy(repository: Path, *arguments: str, **options) -> str:
    return snakemake(repository, "--configfile", "toy.yaml", *arguments, **options)


def hashes(root: Path) -> dict[str, str]:
    """Every artifact that names alone decide. What holds times, and what is made of it, is left out."""
    timed = ("run.json", "run_times.csv", "tables.md", "report.html")
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for folder in ("data", "results") for path in sorted((root / folder).rglob("*"))
            if path.is_file() and path.name not in timed and "figures" not in path.parts}


def test_twice_and_with_other_cores_gives_the_same(repository):
    toy(repository)
    assert "Nothing to be done" in toy(repository)
    first = hashes(repository / "toy")
    assert sum(name.endswith("predictions.parquet") for name in first) == 6
    assert (repository / "toy/results/report.html").stat().st_size > 10_000
    shutil.move(repository / "toy", repository / "first")
    shutil.rmtree(repository / ".snakemake")
    toy(repository, cores=1)
    assert hashes(repository / "toy") == first


def test_killed_at_any_time_it_continues_to_the_same_result(repository):
    toy(repository)
    undisturbed = hashes(repository / "toy")
    shutil.rmtree(repository / "toy")
    shutil.rmtree(repository / ".snakemake")
    for seconds, number in ((4, signal.SIGKILL), (7, signal.SIGINT), (10, signal.SIGKILL)):
        running = subprocess.Popen(command("--configfile", "toy.yaml", "--nolock"), cwd=repository,
                                   env=environment(repository), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        time.sleep(seconds)
        os.killpg(running.pid, number)
        running.wait()
    toy(repository, "--nolock")
    assert hashes(repository / "toy") == undisturbed
    assert not list((repository / "toy").rglob("*.tmp"))


def test_only_what_depends_on_a_change_runs_again(repository):
    toy(repository)
    jobs = toy(repository, "-n", "--config", "training={max_epochs: 3}")
    assert count(jobs) == {"train": 3, "tabulate": 1, "plot": 1, "all": 1}
    with (repository / "src/diagvib/report.py").open("a") as file:
        file.write("# changed\n")
    assert count(toy(repository, "-n")) == {"plot": 1, "all": 1}


def test_a_deleted_run_is_made_again_alone(repository):
    toy(repository)
    before = hashes(repository / "toy")
    shutil.rmtree(repository / "toy/results/runs/small_cnn/zgo")
    assert count(toy(repository, "-n"))["train"] == 1
    toy(repository)
    assert hashes(repository / "toy") == before


def test_the_default_configuration_is_the_whole_paper(repository):
    jobs = count(snakemake(repository, "-n"))
    assert jobs["draw"] == jobs["render"] == 246
    assert jobs["train"] == 2 * 246


@pytest.mark.parametrize(("setting", "says"), [
    ("pears=all", "unknown key 'pears'; did you mean pairs?"),
    ("studies=[zgo,cgo-9]", "unknown study 'cgo-9'"),
    ("baselines=[resnet19]", "unknown baseline 'resnet19'; did you mean resnet18")])
def test_a_mistake_ends_before_anything_starts(repository, setting, says):
    output = toy(repository, "--config", setting, fails=True)
    assert says in output and "Traceback" not in output
    assert not (repository / "toy").exists()


def test_a_missing_mirror_file_is_named_in_the_log_shown(repository):
    (repository / "empty").mkdir()
    output = toy(repository, "--config", "sources=official", "mirror=empty", fails=True)
    assert "train-images-idx3-ubyte.gz" in output and "mirror" in output and "Traceback (most recent" not in output
    assert not list((repository / "toy").rglob("*.gz"))


def count(dry_run: str) -> dict[str, int]:
    """Rule -> number of jobs, from the table that a dry run prints."""
    lines = dry_run.split("Job stats:")[1].splitlines() if "Job stats:" in dry_run else []
    rows = [line.split() for line in lines[3:]]
    table = {}
    for row in rows:
        if len(row) != 2 or row[0] == "total":
            break
        table[row[0]] = int(row[1])
    return table
