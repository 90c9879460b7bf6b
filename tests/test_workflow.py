"""The real workflow at toy size, in a copy of the repository: the same result always, whatever
happens on the way."""

import compileall
import hashlib
import os
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conftest import BIN, REPOSITORY
from diagvib.scenes.digits.renderer import Renderer

TOY = """
root: toy
sources: embedded
studies: [zso, zgo]
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


def command(*arguments: str, cores: int = 2) -> list[str | Path]:
    return [BIN / "snakemake", "--cores", str(cores), *arguments]


def snakemake(repository: Path, *arguments: str, cores: int = 2, fails: bool = False) -> str:
    done = subprocess.run(
        command(*arguments, cores=cores),
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
    timed = (
        "run.json",
        "run_times.csv",
        "run_times.parquet",
        "tables.md",
        "tables.tex",
        "report.html",
    )
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("data", "results")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
        and path.name not in timed
        and "figures" not in path.parts
        and not ("runs" in path.parts and path.name == "sha256.json")
    }


def test_everything_is_made(undisturbed):
    made = hashes(undisturbed / "toy")
    assert sum(name.endswith("predictions.parquet") for name in made) == 4
    assert sum(name.endswith("test.parquet") for name in made) == 4
    assert (undisturbed / "toy/results/report.html").stat().st_size > 10_000
    assert "Nothing to be done" in toy(undisturbed)


# A disk of its own, in a namespace of its own, that is full while images are rendered.
FULL = """
cp -a toy made; mount -t tmpfs -o size=64M tmpfs toy; cp -a made/. toy
fallocate -l $(($(df --output=avail --block-size=1 toy | tail -n 1) - 40000)) toy/filler
if "$@" > full.txt 2>&1; then exit 9; fi
rm -r toy/filler made; cp -a toy made
"""


def test_after_a_full_disk_it_gives_the_same(undisturbed, finished):
    own_disk = ["unshare", "--mount", "--map-root-user", "sh", "-e", "-c"]
    if (
        not shutil.which("unshare")
        or subprocess.run(
            [*own_disk, "mount -t tmpfs tmpfs /mnt"], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("no file system can be mounted here, not even in a namespace, to be filled")
    shutil.rmtree(finished / "toy/results")
    shutil.rmtree(finished / "toy/data/images")
    images = command("--configfile", "toy.yaml", "--config", "studies=[zgo]", "--", "images")
    subprocess.run(
        [*own_disk, FULL, "sh", *images], cwd=finished, env=environment(finished), check=True
    )
    assert "the disk is full; free some space" in (finished / "full.txt").read_text()
    shutil.rmtree(finished / "toy")
    (finished / "made").rename(finished / "toy")
    toy(finished, "--config", "studies=[zgo]", "--", "images")
    made = hashes(finished / "toy")
    assert sum("zgo" in name and "test.parquet" in name for name in made) == 2
    assert made.items() <= hashes(undisturbed / "toy").items()


def test_killed_at_any_time_it_continues_to_the_same_result(undisturbed, repository):
    """Finished with one core, where the undisturbed run had two."""
    for stage, number in (("draw", signal.SIGKILL), ("render", signal.SIGTERM), ("train", 9)):
        with subprocess.Popen(
            command("--configfile", "toy.yaml"),
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
        if number == signal.SIGKILL:
            toy(repository, "--unlock")
    toy(repository, "--", "tables", cores=1)
    assert hashes(repository / "toy") == hashes(undisturbed / "toy")
    assert not list((repository / "toy").rglob("*.tmp"))


def test_rendering_on_the_training_device_gives_the_same_predictions(undisturbed, finished):
    shutil.rmtree(finished / "toy/data/images")
    shutil.rmtree(finished / "toy/results")
    toy(finished, "--config", "images=render", "studies=[zgo]", "--", "runs")
    run = "results/runs/small_cnn/zgo/hue-shape/1/predictions.parquet"
    assert hashes(finished / "toy")[run] == hashes(undisturbed / "toy")[run]
    assert not (finished / "toy/data/images").exists()


def test_more_samples_and_weights_leave_what_is_there(undisturbed, finished):
    more = ("--config", "studies=[zgo]", "samples=3", "keep_weights=true", "--", "runs")
    toy(finished, *more)
    before, after = (hashes(folder / "toy") for folder in (undisturbed, finished))
    kept = {name for name in before if "runs/small_cnn/zgo" in name}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    weights = sorted((finished / "toy/results/runs").rglob("weights.pt"))
    assert len(weights) == 3
    fewer = [value for value in more if value != "keep_weights=true"]
    assert "Nothing to be done" in toy(finished, *fewer), "no longer asking for them"
    weights[0].unlink()
    assert "Nothing to be done" in toy(finished, *fewer)
    assert count(toy(finished, "-n", *more)) == {"train": 1, "runs": 1}


def test_a_mistake_ends_before_anything_starts(repository):
    output = toy(repository, "--config", "bindngs=all", fails=True)
    assert output.splitlines()[-1].startswith("error: ") and "Traceback" not in output
    assert output.count("unknown key 'bindngs'; did you mean bindings") == 1
    assert not (repository / "toy").exists()


def test_a_missing_mirror_file_is_named_in_the_log_shown(repository):
    (repository / "empty").mkdir()
    output = toy(repository, "--config", "sources=official", "mirror=empty", fails=True)
    assert "Traceback (most recent" not in output
    assert not list((repository / "toy").rglob("*.gz"))
    *_, last = output.splitlines()
    assert last.startswith("error: empty/mnist/train-images-idx3-ubyte.gz")
    assert last.endswith("(log: toy/logs/fetch/digits.log)")


def test_jobs_that_fail_for_one_reason_share_the_last_line(finished):
    (finished / "broken.py").write_text("def make(n_classes, image_size):\n    return None\n")
    add_baseline(finished, "broken", "broken:make")
    output = toy(finished, "--config", "baselines=[broken]", fails=True)
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
