"""Workflows at toy size, in copies of the repository.

The fixture `output` is one finished run of `TOY` that all tests share: two studies, two scenes, a
model and a method of one's own, recorded by DVC under its root, committed and pushed. A test that
changes something takes `finished`, a copy of it without git and DVC, or clones it; a test that
begins with nothing takes `repository`.
"""

import compileall
import hashlib
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from conftest import BIN, REPOSITORY
from diagvib import stages
from diagvib.scenes import load_scene
from diagvib.scenes.cache import cached
from diagvib.settings.jobs import stage_settings
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config

ROOT = "toy"
TOY = """
root: toy
sources: embedded
studies: [zgo, two-places]
studies_from: [square_studies.yaml]
bindings: [hue-shape, corner-colour]
samples: 2
counts: {train: 64, val: 18, id: 18, ood: 18, new: 40}
image_size: 64
baselines: [small_cnn, {name: tiny, studies: [zgo]}, {name: focal, studies: [zgo]}]
baselines_from: [lab/baselines.yaml]
training: {max_epochs: 2}
"""
# Two small jobs, for clusters.
CLUSTER_TOY = """
root: toy
sources: embedded
studies: [zgo, chgo]
bindings: [hue-shape]
samples: 2
counts: {train: 64, val: 18, id: 18, ood: 18}
image_size: 64
baselines: [small_cnn]
"""
MODELS = """
from torch import nn

def tiny(n_classes, image_size, width=4):
    return nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                         nn.Linear(4 * width, n_classes))
"""
METHODS = """
from typing import ClassVar

from diagvib.methods.method import Method

class Focal(Method):
    options: ClassVar[dict] = {"gamma": {"type": "number", "minimum": 0, "default": 2.0}}

    def combine(self, losses, batch):
        return ((1 - (-losses).exp()) ** self.options.gamma * losses).mean()
"""
BASELINES = """
tiny:
  model: {name: "lab.models:tiny", options: {width: 8}}
  method: erm
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 16
  origin: mine

focal:
  model: small_cnn
  method: {name: "lab.methods:Focal", gamma: 1.0}
  depends: [lab/table.csv]
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 16
  origin: mine
"""
FILES = {
    "toy.yaml": TOY,
    "lab/models.py": MODELS,
    "lab/methods.py": METHODS,
    "lab/baselines.yaml": BASELINES,
    "lab/table.csv": "1\n",
    **{
        name: (REPOSITORY / "tests" / name).read_text()
        for name in ("squares.py", "square_studies.yaml")
    },
}
RUN = "toy/results/runs/{}/zgo/hue-shape"  # of a baseline, by its name
WITH_DVC = ("dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore")


@cache
def compile_everything(checkout: Path) -> None:
    """Here, for all copies: in each of them the renderer would take longer than all that is
    rendered there."""
    from diagvib.scenes.digits.renderer import Renderer

    compileall.compile_dir(checkout / "src", quiet=1)
    Renderer(np.zeros((1, 40, 40), np.uint8), np.zeros((1, 64, 64), np.uint8)).render(
        [0], [0], [[0, 0]], [0.0], [[0.4, 0.6]], [[0.5, 0.5]], [1.0]
    )


def copy_of_the_repository(folder: Path, checkout: Path = REPOSITORY) -> Path:
    """A copy of what the workflow needs, with what is compiled of it, and the toy configuration."""
    compile_everything(checkout)
    shutil.copy2(checkout / "Snakefile", folder)
    # Without files that another process is writing just now.
    unfinished = shutil.ignore_patterns("*.tmp.*", "*.pyc.*")
    for name in ("rules", "src", "config", "profiles"):
        shutil.copytree(checkout / name, folder / name, ignore=unfinished)
    write(folder, FILES)
    return folder


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def contents(folder: Path, *suffixes: str) -> dict[str, bytes]:
    """The bytes of a folder's files, by their path in it; of all, or of those with these
    suffixes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (suffixes or [path.suffix])
    }


def dvc_repository(folder: Path, store: Path, files: dict[str, str]) -> Path:
    """A copy of the repository in git and DVC; nothing has been run.

    store: the folder to which `dvc push` copies. files: path -> text, added or replaced.
    """
    copy_of_the_repository(folder)
    for name in WITH_DVC:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name)
    write(folder, files)
    git(folder, "init")
    dvc(folder, "remote", "add", "--default", "store", str(store))
    git(folder, "add", ".")
    git(folder, "commit", "-m", "code")
    return folder


@pytest.fixture(scope="session")
def output(tmp_path_factory) -> Path:
    """A repository in which `TOY` has been run, recorded and pushed. Not to be changed.

    The first test that asks for it makes it, for all processes of the session. What Snakemake said
    is in `said.txt`.
    """
    top = tmp_path_factory.getbasetemp()
    top = top.parent if "PYTEST_XDIST_WORKER" in os.environ else top
    folder, message = top / "made", top / "made/said.txt"
    with FileLock(top / "made.lock"):
        if not message.exists():
            folder.mkdir()
            dvc_repository(folder, top / "store", {})
            log = toy(folder)
            git(folder, "add", ROOT)
            git(folder, "commit", "-m", "results")
            dvc(folder, "push", "-R", ROOT)
            message.write_text(log)
    return folder


@pytest.fixture
def finished(output, tmp_path) -> Path:
    """A copy of `output`, with its times and Snakemake's records, but not in git and DVC."""
    left_out = shutil.ignore_patterns(".git", ".dvc", "dvc.yaml", "dvc.lock", "provenance.json")
    return shutil.copytree(output, tmp_path / "finished", ignore=left_out)


@pytest.fixture
def repository(tmp_path) -> Path:
    """A copy of the repository with the toy configuration; nothing has been run."""
    return copy_of_the_repository(tmp_path)


def images_here(config: Configuration, root: Path) -> Layout:
    """Make a configuration's images in this process, without Snakemake. Embedded sources are
    prepared once for all tests."""
    layout = Layout(root)
    for scene in config.scenes:
        if config.sources == "embedded":
            shutil.copytree(cached(load_scene(scene), "embedded", None), layout.prepared(scene))
        else:
            stages.fetch(layout, stage_settings(config, "fetch"), scene, config.mirror)
            stages.prepare(layout, stage_settings(config, "prepare"), scene)
    for study, binding in config.datasets:
        stages.draw(layout, stage_settings(config, "draw", study), study, binding)
        if config.images == "parquet":
            job = stage_settings(config, "render", study)
            stages.render(layout, job, study, binding, 1)
    return layout


def runs_here(config: Configuration, layout: Layout) -> None:
    """Make a configuration's features and runs from its images, in this process."""
    for network in config.networks:
        for study, binding in config.datasets:
            job = stage_settings(config, "encode", study, network)
            stages.encode(layout, job, network, study, binding, "cpu", 1)
    for baseline, study, binding in config.train_jobs:
        job = stage_settings(config, "train", study, baseline)
        stages.train(layout, job, baseline, study, binding, "cpu")


def run_here(path: Path, *changes: str, root: Path, report: bool = False) -> Layout:
    """Run a configuration in this process, all stages without Snakemake; to its tables, or to its
    report."""
    config = load_config(path, list(changes))
    layout = images_here(config, root)
    runs_here(config, layout)
    stages.tabulate(layout, stage_settings(config, "tabulate"), 1)
    if report:
        stages.plot(layout, stage_settings(config, "plot"), 1)
    return layout


def environment(repository: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(repository / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def call(folder: Path, *command: str | Path, fails: bool = False, **additions: str) -> str:
    """Run a program in a repository; returns all of its output. more: its further environment."""
    process = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**environment(folder), **additions},
        stdin=subprocess.DEVNULL,
    )
    assert (process.returncode != 0) == fails, process.stdout + process.stderr
    return process.stdout + process.stderr


def command(*arguments: str, cores: int = 2) -> list[str | Path]:
    return [BIN / "snakemake", "--cores", str(cores), *arguments]


def snakemake(folder: Path, *arguments: str, cores: int = 2, fails: bool = False) -> str:
    return call(folder, *command(*arguments, cores=cores), fails=fails)


def toy(folder: Path, *arguments: str, **options) -> str:
    return snakemake(folder, "--configfile", "toy.yaml", *arguments, **options)


def dvc(folder: Path, *arguments: str, **options) -> str:
    return call(folder, BIN / "dvc", *arguments, **options)


def diagvib(folder: Path, *arguments: str, **options) -> str:
    return call(folder, BIN / "diagvib", *arguments, **options)


def git(folder: Path, *arguments: str) -> str:
    author = {
        f"GIT_{person}_{subject_text}": "test@localhost"
        for person in ("AUTHOR", "COMMITTER")
        for subject_text in ("NAME", "EMAIL")
    }
    return call(folder, "git", "-c", "init.defaultBranch=main", *arguments, **author)


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


def hashes(root: Path) -> dict[str, str]:
    """Every artifact that names alone decide. What holds times or the commit, and what is made of
    it, is left out."""
    timed = re.compile(
        r"(run|versions)\.json|run_times\..*|tables\.(md|tex)|report\.html|\.snakemake_timestamp"
    )
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("data", "results")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
        and not timed.fullmatch(path.name)
        and "figures" not in path.parts
        and not ("runs" in path.parts and path.name == "sha256.json")
    }
