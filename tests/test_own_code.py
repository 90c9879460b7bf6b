"""A user's own model and the renderer are inputs of the files that depend on them, under the real
rules; the jobs' command is a stand-in."""

from pathlib import Path

import pytest

from conftest import REPOSITORY
from diagvib.foundation.code import code_of
from diagvib.operations.stage_code import stage_code
from diagvib.settings.config import load_config
from diagvib.training.code_digest import baseline_modules
from stand_in import change_stand_in, repository_with_stand_in, snakemake
from test_workflow import add_baseline, count

FILES = {
    "atelier/__init__.py": "raise SystemExit('must not run')\n",
    "atelier/models.py": (
        "import os\nfrom .layers import Block\nfrom diagvib import errors\nimport torch, sys\n"
        "make = Block\n"
    ),
    "atelier/layers.py": "def later():\n    import shapes.round as r\n    from . import constants\n",
    "atelier/constants.py": "from atelier import models\n",
    "atelier/unused.py": "",
    "shapes/round.py": "this is no Python",
    "single.py": "import numpy\n",
}
CONFIG = """
root: toy
sources: embedded
studies: [zgo]
bindings: [hue-shape]
samples: 5
baselines: [own, small_cnn]
"""


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("model", "files"),
    [
        (
            "atelier.models:make",
            [
                "atelier/__init__.py",
                "atelier/constants.py",
                "atelier/layers.py",
                "atelier/models.py",
                "shapes/round.py",
            ],
        ),
        ("single:make", ["single.py"]),
        ("absent.module:make", []),
        ("atelier.absent:make", ["atelier/__init__.py"]),
        ("small_cnn", []),
    ],
)
def test_the_files_of_a_model_are_found_without_running_them(tmp_path, monkeypatch, model, files):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = {"model": {"name": model}, "method": {"name": "erm"}}
    assert [
        path for path in code_of(baseline_modules(settings)).files() if not path.startswith("/")
    ] == files


def test_of_an_installed_package_only_its_own_files_are_taken():
    files = code_of(["yaml.loader"]).files()
    assert any(path.endswith("yaml/scanner.py") for path in files)
    assert {Path(path).parent.name for path in files} == {"yaml"}


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = repository_with_stand_in(tmp_path, CONFIG)
    write(folder)
    add_baseline(folder, "own", "atelier.models:make")
    return folder


def test_a_change_in_a_model_of_ones_own_trains_it_again_and_no_other(repository):
    snakemake(repository, "runs")
    assert "Nothing to be done" in snakemake(repository, "-n", "runs")
    (repository / "atelier/constants.py").write_text("from atelier import models\nMORE = 1\n")
    assert count(snakemake(repository, "-n", "runs")) == {"train": 1, "runs": 1}


def test_trainings_and_tuning_that_render_depend_on_what_renders(repository, monkeypatch):
    change_stand_in(
        repository, "  train) ", '  tune) make "$root/results/tuning" $a.csv $a.yaml ;;\n  train) '
    )
    call = ["runs", "toy/results/tuning/small_cnn.csv", "--config", "images=render"]
    snakemake(repository, *call)
    modules = {
        f"src/diagvib/{name}.py"
        for name in (
            "scenes/digits/renderer",
            "scenes/digits/triton_kernel",
            "scenes/digits/cpu_kernel",
            "images/files",
            "images/datasets",
            "foundation/columns",
            "studies/recipes",
        )
    }
    monkeypatch.chdir(REPOSITORY)
    config = load_config(overrides=["images=render"])
    assert modules <= set(stage_code(config, "train", None, "zgo", "small_cnn"))
    assert modules <= set(stage_code(config, "tune", None, None, "small_cnn"))
    with (repository / "src/diagvib/scenes/digits/renderer.py").open("a") as file:
        file.write("MORE = 1\n")
    assert count(snakemake(repository, "-n", *call)) == {"train": 2, "tune": 1, "runs": 1}


SCENE = """
from typing import TYPE_CHECKING
import filled, items, looped
from everything import *
if TYPE_CHECKING:
    from checked import Checked
else:
    from run import Checked
try:
    from quick import shade
except ImportError:
    from slow import shade
SIDES, SHADES = filled.sides(), 1
COLOURS = {}
COLOURS.update(items.colours())
for name in looped.names():
    COLOURS[name] = 1

class Mine:
    import within

    def realize(self):
        return SIDES, COLOURS, shade, Checked
"""


def test_whatever_runs_when_a_scene_is_imported_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scene.py").write_text(SCENE)
    modules = ["everything", "filled", "items", "looped", "quick", "run", "slow", "within"]
    for name in (*modules, "checked", "other"):
        (tmp_path / f"{name}.py").write_text("")
    assert code_of([], ["scene:Mine"], ["diagvib.stages:render"]).files()[-9:] == [
        f"{name}.py" for name in sorted([*modules, "scene"])
    ]
