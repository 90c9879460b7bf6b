"""The command line: mistakes end in one line, and every command explains itself."""

import subprocess
from pathlib import Path

import pytest

from conftest import BIN

COMMANDS = [
    "fetch",
    "prepare",
    "draw",
    "render",
    "train",
    "tune",
    "tabulate",
    "plot",
    "plan",
    "version",
]


def diagvib(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [BIN / "diagvib", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_help_names_every_command():
    shown = diagvib("--help").stdout
    assert all(f"  {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    done = diagvib(command, "--help")
    assert done.returncode == 0 and "Usage" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "--set", "bindngs=all"], "unknown key 'bindngs'; did you mean bindings"),
        (["plan", "--config", "none.yaml"], "none.yaml: no such file"),
        (["draw", "zg", "shape-hue"], "unknown study 'zg'; did you mean"),
        (["draw", "zgo", "shape-hu"], "unknown factor 'hu'; did you mean hue"),
        (
            ["train", "resnet19", "zgo", "shape-hue"],
            "unknown baseline 'resnet19'; did you mean resnet18",
        ),
        (["draw", "zgo", "shape-hue"], "data/prepared"),
        (
            ["draw", "zgo", "shape"],
            "'shape' names 1 factors for 2 roles (target, cue); write e.g. ",
        ),
        (
            ["draw", "zso", "shape-hue"],
            "'shape-hue' names 2 factors for 1 roles (target); write e.g. ",
        ),
        (
            ["render", "zgo", "shape-hue"],
            "data/recipes/zgo/shape-hue.parquet: no such file; the stage that makes it",
        ),
        (
            ["train", "small_cnn", "zgo", "shape-hue"],
            "images/zgo/shape-hue/0/train.parquet: no such file",
        ),
        (
            ["train", "small_cnn", "zgo", "shape-hue", "--settings", "{}", "--set", "a=b"],
            "--settings replaces",
        ),
        (
            ["plan", "--set", "training.max_epochs=2e1"],
            "training.max_epochs: must be a valid integer",
        ),
    ],
)
def test_a_mistake_ends_in_one_line(tmp_path, arguments, says):
    done = diagvib(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and says in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
