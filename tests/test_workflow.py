"""The real workflow at toy size, in a copy of the repository: the same result always, whatever
happens on the way."""

import compileall
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conftest import REPOSITORY
from diagvib.scenes.digits.renderer import Renderer
from warm import programs

TOY = """
root: toy
sources: embedded
studies: [zso, zgo, chgo]
bindings: [hue-shape]
samples: 2
counts: {train: 64, val: 18, id: 18, ood: 18}
baselines: [small_cnn]
training: {max_epochs: 2}
"""


@cache
def compile_everything(checkout: Path) -> None:
    """Here, for all copies: in each of them the renderer would take longer than all that is
    rendered there."""
    compileall.compile_dir(checkout / "src", quiet=1)
    Renderer(np.zeros((1, 40, 40), np.uint8), np.zeros((1, 64, 64), np.uint8)).render(
        [0], [0], [[0, 0]], [0.0], [[0.4, 0.6]], [[0.5, 0.5]], [1.0]
    )


def copy_of_the_repository(folder: Path, checkout: Path = REPOSITORY) -> Path:
    """A copy of what the workflow needs, with what is compiled of it, and a toy configuration."""
    compile_everything(checkout)
    for name in ("Snakefile", "rules", "src", "config", "profiles"):
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy2(source, folder / name)
    (folder / "toy.yaml").write_text(TOY)
    return folder


def add_baseline(repository: Path, name: str, kind: str) -> None:
    """A baseline of this model in config/baselines/diagvib6.yaml."""
    with (repository / "config/baselines/diagvib6.yaml").open("a") as file:
        file.write(
            f"\n{name}: {{model: '{kind}', method: erm, batch_size: 16, origin: test, "
            "optimiser: {name: adam, lr: 5.0e-4}}\n"
        )


@pytest.fixture
def repository(tmp_path) -> Path:
    return copy_of_the_repository(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """A repository in which the toy configuration has been run once, with two cores. Not to be
    changed."""
    folder = copy_of_the_repository(tmp_path_factory.mktemp("undisturbed"))
    toy(folder)
    return folder


@pytest.fixture
def finished(undisturbed, tmp_path) -> Path:
    """A copy of `undisturbed`, with its times and Snakemake's records."""
    return shutil.copytree(undisturbed, tmp_path / "finished")


def environment(repository: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(repository / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def command(
    *arguments: str, cores: int = 2, python: str | Path = sys.executable
) -> list[str | Path]:
    return [python, "-m", "snakemake", "--cores", str(cores), *arguments]


def snakemake(repository: Path, *arguments: str, cores: int = 2, fails: bool = False) -> str:
    done = subprocess.run(
        command(*arguments, cores=cores, python=programs() / "python"),
        cwd=repository,
        env=environment(repository),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def toy(repository: Path, *arguments: str, **options) -> str:
    return snakemake(repository, "--configfile", "toy.yaml", *arguments, **options)


def hashes(root: Path) -> dict[str, str]:
    """Every artifact that names alone decide. What holds times, and what is made of it, is left
    out."""
    timed = ("run.json", "run_times.csv", "run_times.parquet", "tables.md", "report.html")
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("data", "results")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file() and path.name not in timed and "figures" not in path.parts
    }


def test_everything_is_made(undisturbed):
    made = hashes(undisturbed / "toy")
    assert sum(name.endswith("predictions.parquet") for name in made) == 6
    assert sum(name.endswith("test.parquet") for name in made) == 6
    assert (undisturbed / "toy/results/report.html").stat().st_size > 10_000
    assert "Nothing to be done" in toy(undisturbed)


# A disk of its own, in a namespace of its own, that is full while images are rendered. What that
# leaves is in `kept`.
FULL = """
mount -t tmpfs -o size=64M tmpfs toy
cp -a recipes/. toy
fallocate -l $(($(df --output=avail --block-size=1 toy | tail -n 1) - 40000)) toy/filler
if "$@" > full.txt 2>&1; then exit 9; fi
rm toy/filler
cp -a toy kept
"""


def test_with_one_core_and_a_full_disk_it_stops_and_then_gives_the_same(undisturbed, repository):
    own_disk = ["unshare", "--mount", "--map-root-user", "sh", "-e", "-c"]
    if (
        not shutil.which("unshare")
        or subprocess.run(
            [*own_disk, "mount -t tmpfs tmpfs /mnt"], check=False, capture_output=True
        ).returncode
    ):
        toy(repository, cores=1)
        assert hashes(repository / "toy") == hashes(undisturbed / "toy")
        pytest.skip(
            "one core does; no file system can be mounted here, not even in a namespace, to be filled"
        )
    toy(repository, "--", "recipes", cores=1)
    (repository / "toy").rename(repository / "recipes")
    (repository / "toy").mkdir()
    real = command("--configfile", "toy.yaml", cores=1)
    subprocess.run(
        [*own_disk, FULL, "sh", *real, "--config", "studies=[zgo]"],
        cwd=repository,
        env=environment(repository),
        check=True,
    )
    assert "the disk is full; free some space" in (repository / "full.txt").read_text()
    (repository / "toy").rmdir()
    (repository / "kept").rename(repository / "toy")
    toy(repository, "--", "runs", cores=1)
    subprocess.run(
        [*real, "--", "tables"],
        cwd=repository,
        env=environment(repository),
        check=True,
        capture_output=True,
    )
    assert hashes(repository / "toy") == hashes(undisturbed / "toy")


def test_killed_at_any_time_it_continues_to_the_same_result(undisturbed, repository):
    """First a new Python, whose hash seed is another than that of the undisturbed run."""
    warm = programs() / "python"
    for stage, number, python in (
        ("draw", signal.SIGKILL, sys.executable),
        ("render", signal.SIGINT, warm),
        ("train", signal.SIGKILL, warm),
    ):
        with subprocess.Popen(
            command("--configfile", "toy.yaml", python=python),
            cwd=repository,
            process_group=0,
            env=environment(repository),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as running:
            while not list((repository / "toy/logs" / stage).rglob("*.log")):
                assert running.poll() is None, f"ended before a job of {stage}"
                time.sleep(0.05)
            time.sleep(0.3)  # into the job
            os.killpg(running.pid, number)
        assert running.returncode
    toy(repository, "--", "tables")
    assert hashes(repository / "toy") == hashes(undisturbed / "toy")
    assert not list((repository / "toy").rglob("*.tmp"))


def test_rendering_on_the_training_device_gives_the_same_predictions(undisturbed, finished):
    shutil.rmtree(finished / "toy/data/images")
    shutil.rmtree(finished / "toy/results")
    toy(finished, "--config", "images=render", "--", "runs")
    runs = [
        {
            name: value
            for name, value in hashes(folder / "toy").items()
            if name.startswith("results/runs")
        }
        for folder in (finished, undisturbed)
    ]
    assert runs[0] == runs[1] and len(runs[0]) == 24
    assert not (finished / "toy/data/images").exists()


def test_only_what_depends_on_a_change_runs_again(finished):
    assert count(toy(finished, "-n", "--config", "training={max_epochs: 3}")) == {
        "train": 3,
        "tabulate": 1,
        "plot": 1,
        "all": 1,
    }
    with (finished / "src/diagvib/report/page.py").open("a") as file:
        file.write("MORE = 1\n")
    assert count(toy(finished, "-n")) == {"plot": 1, "all": 1}


def test_a_deleted_run_is_made_again_alone(undisturbed, finished):
    shutil.rmtree(finished / "toy/results/runs/small_cnn/zgo")
    assert count(toy(finished, "-n"))["train"] == 1
    toy(finished)
    assert hashes(finished / "toy") == hashes(undisturbed / "toy")


def test_more_dataset_samples_leave_the_runs_that_are_there(undisturbed, finished):
    more = ("--config", "samples=3", "--", "runs")
    assert count(toy(finished, "-n", *more))["train"] == 3
    toy(finished, *more)
    before, after = (
        {path.relative_to(root): path.read_bytes() for path in (root / "results/runs").rglob("*.*")}
        for root in (undisturbed / "toy", finished / "toy")
    )
    assert before.items() < after.items() and len(after) == len(before) * 3 // 2
    assert "Nothing to be done" in toy(finished, *more)


def test_weights_are_kept_on_demand_and_only_what_lacks_them_is_trained_for_them(
    undisturbed, finished
):
    kept = ("--config", "keep_weights=true")
    jobs = count(toy(finished, "-n", *kept))
    assert jobs["train"] == 3 and not {"draw", "render"} & set(jobs)
    toy(finished, *kept)
    weights = sorted((finished / "toy/results/runs").rglob("weights.pt"))
    assert len(weights) == 6
    assert {
        name: value
        for name, value in hashes(finished / "toy").items()
        if not name.endswith("weights.pt")
    } == hashes(undisturbed / "toy")
    assert "Nothing to be done" in toy(finished, *kept)
    assert "Nothing to be done" in toy(finished), "no longer asking for them trains nothing"
    weights[0].unlink()
    assert count(toy(finished, "-n", *kept))["train"] == 1


def test_the_default_configuration_is_the_whole_paper(repository):
    jobs = count(snakemake(repository, "-n"))
    assert jobs["draw"] == jobs["render"] == 246
    assert jobs["train"] == 2 * 246


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("bindngs=all", "unknown key 'bindngs'; did you mean bindings"),
        ("studies=[zgo,cgo-9]", "unknown study 'cgo-9'"),
        ("baselines=[resnet19]", "unknown baseline 'resnet19'; did you mean resnet18"),
    ],
)
def test_a_mistake_ends_before_anything_starts(repository, setting, says):
    output = toy(repository, "--config", setting, fails=True)
    *_, last = output.splitlines()
    assert last.startswith("error: ") and says in last and "Traceback" not in output
    assert sum(says in line for line in output.splitlines()) == 1
    assert not (repository / "toy").exists()


def test_a_missing_mirror_file_is_named_in_the_log_shown(repository):
    (repository / "empty").mkdir()
    output = toy(repository, "--config", "sources=official", "mirror=empty", fails=True)
    assert (
        "train-images-idx3-ubyte.gz" in output
        and "mirror" in output
        and "Traceback (most recent" not in output
    )
    assert not list((repository / "toy").rglob("*.gz"))
    *_, last = output.splitlines()
    assert last.startswith("error: empty/mnist/train-images") and last.endswith(
        "(log: toy/logs/fetch/digits.log)"
    )


def test_jobs_that_fail_for_one_reason_share_the_last_line(repository):
    (repository / "broken.py").write_text("def make(n_classes, image_size):\n    return None\n")
    add_baseline(repository, "broken", "broken:make")
    output = toy(repository, "--config", "baselines=[broken]", "studies=[zso,zgo]", fails=True)
    *_, last = output.splitlines()
    assert last.startswith(
        "error: model: broken:make returned NoneType, not a torch.nn.Module (log: toy/logs/train/"
    )
    assert last.endswith(".log and 1 more)")
    assert sum(line.startswith("error: ") for line in output.splitlines()) == 3, (
        "in two logs, and at the end"
    )


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
