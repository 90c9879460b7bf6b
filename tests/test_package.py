"""The package as users install it: built, put into a folder of its own, and used from an empty
one."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from conftest import REPOSITORY

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            folder,
            wheel,
        ],
        check=True,
        capture_output=True,
    )
    return folder


def run(installed: Path, folder: Path, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(installed), "DIAGVIB_CACHE": str(folder / "cache")},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_both_hold_everything_that_the_program_reads(built):
    tracked = subprocess.run(
        ["git", "ls-files", "config", "dvc.yaml", "src/diagvib", "Snakefile", "rules", "profiles"],
        cwd=REPOSITORY,
        check=True,
        text=True,
        capture_output=True,
    ).stdout.split()
    wheel, sdist = (next(built.glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"diagvib/{name}".replace("diagvib/src/", "") for name in tracked} <= inside
    with tarfile.open(sdist) as archive:
        held_out = {name.partition("/")[2] for name in archive.getnames()}
    assert {*tracked, "README.md", "LICENSE"} <= held_out
    assert not [name for name in held_out if name.startswith("published/")]


def test_the_librarys_lines_run_from_an_empty_folder(installed, tmp_path):
    lines = next(
        block
        for block in re.findall(
            r"```python\n(.*?)```", (REPOSITORY / "docs/library.md").read_text(), re.S
        )
        if "diagvib.load" in block
    )
    # Just enough images to show that it runs.
    lines = re.sub(
        r'"train": \d+, "id": \d+, "ood": \d+', '"train": 64, "id": 18, "ood": 18', lines
    )
    output = run(installed, tmp_path, "-c", lines)
    assert set(re.findall(r"'(\w+)'", output)) == {
        "accuracy",
        "id_accuracy",
        "ood_accuracy",
        "worst_cell",
    }
    assert (tmp_path / "grid.png").exists()


def test_the_workflow_runs_in_an_empty_folder(installed, tmp_path):
    """By the name of a configuration, or by a file of the user's; DVC records it, without git."""
    run(installed, tmp_path, "-m", "dvc", "init", "--no-scm")
    counts = "counts={train: 36, val: 18, id: 18, ood: 18}"
    small = (f"{counts}", "studies=[zgo]", "training={max_epochs: 1}", "image_size=64")
    run(installed, tmp_path, "-m", "diagvib", "run", "demo", "--config", *small)
    assert (tmp_path / "outputs/demo/results/report.html").exists()
    stages, lock = ((tmp_path / f"outputs/demo/dvc.{end}").read_text() for end in ("yaml", "lock"))
    assert "cmd: diagvib run outputs/demo/config.yaml" in stages and "src/" not in stages
    assert "path: outputs/demo/results/report.html" in lock
    (tmp_path / "mine.yaml").write_text("root: mine\nsources: embedded\nbaselines: [small_cnn]\n")
    for name in ("mine.yaml", "waterbirds", "imagenet_w"):
        display = run(
            installed, tmp_path, "-m", "diagvib", "run", name, "-n", "--config", "mirror=."
        )
        assert "train" in display, name
    assert not (tmp_path / "Snakefile").exists() and not (tmp_path / "config").exists()
