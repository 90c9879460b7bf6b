"""The command line: every command explains itself, and mistakes end in one line."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import BIN
from diagvib import cli
from diagvib.foundation.errors import DiagvibError
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout
from diagvib.settings.jobs import stage_settings

COMMANDS = [
    "fetch",
    "prepare",
    "draw",
    "render",
    "encode",
    "train",
    "tune",
    "tabulate",
    "plot",
    "plan",
    "version",
]


def test_help_names_every_command_and_every_command_has_help():
    shown = subprocess.run([BIN / "diagvib", "--help"], capture_output=True, text=True, check=True)
    for command in COMMANDS:
        assert f"  {command} " in shown.stdout
        assert "Usage" in CliRunner().invoke(cli.app, [command, "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan --set bindngs=all", "unknown key 'bindngs'; did you mean bindings"),
        ("plan --config none.yaml", "none.yaml: no such file"),
        ("draw zg shape-hue", "unknown study 'zg'; did you mean"),
        ("draw zgo shape-hue --settings " + "[" * 100_000, "--settings: not valid JSON"),
        ("train ../../escaped zgo shape-hue --settings {}", "'../../escaped'"),
        ("train small_cnn zgo shape-hue", "images/zgo/shape-hue/0/train.parquet: no such file"),
        ("train small_cnn zgo shape-hue --settings {} --set a=b", "--settings replaces"),
        ("tune small_cnn vae --settings {}", "--settings holds the settings of one baseline"),
        ("tabulate --root {x}", "--root: '{x}' cannot be used"),
        ("tabulate --threads 0", "--threads"),
    ],
    ids=lambda value: value[:40],
)
def test_a_mistake_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, says):
    """One line beginning with `error:`, or typer's usage error; and no file is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["diagvib", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said
    if ended.value.code == 1:
        assert said.startswith("error: ") and said.count("\n") == 1
    else:
        assert said.startswith("Usage: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "results/a"), "results/a: Permission denied"),
        (OSError(28, "No space left on device"), "the output: No space left on device"),
    ],
)
def test_what_the_system_refuses_is_one_line(monkeypatch, capsys, error, says):
    def forbidden(*_):
        raise error

    monkeypatch.setattr(cli, "app", forbidden)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == f"error: {says}\n"


def test_nothing_runs_before_every_name_is_known(monkeypatch):
    tuned = []
    monkeypatch.setattr(cli.stages, "tune", lambda layout, job, **given: tuned.append(given))
    given = [{"baseline": name} for name in ("alexnet", "resnet05")]
    with pytest.raises(DiagvibError, match="unknown baseline 'resnet05'"):
        cli._run("tune", Layout(Path("x")), load_config(), None, *given)
    assert tuned == []
    with pytest.raises(DiagvibError, match="tuning of group_dro: study zso.* cue"):
        cli._run("tune", Layout(Path("x")), load_config(), None, {"baseline": "group_dro"})


def test_options_not_given_are_the_configurations_and_with_settings_the_defaults(monkeypatch):
    found = []
    monkeypatch.setattr(cli.stages, "train", lambda layout, job, **given: found.append(given))
    names = {"baseline": "resnet18", "study": "zgo", "binding": "shape-hue"}
    given = {**names, "device": "cuda", "mirror": None, "keep_weights": None, "tensorboard": False}
    config = load_config(overrides=["keep_weights=true", "tensorboard=true"])
    settings = stage_settings(config, "train", "zgo", "resnet18").text()
    for of_job in ((config, None), (None, settings)):
        cli._run("train", Layout(Path("x")), *of_job, {**given})
    chosen = {**names, "device": "cuda", "tensorboard": False}
    assert found == [{**chosen, "keep_weights": True}, chosen]
