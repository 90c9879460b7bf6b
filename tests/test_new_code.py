"""What `diagvib new method`, `model`, `study` and `scene` write works as it is, and says its choices."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import refused
from diagvib.cli import app
from diagvib.commands.new_code import KINDS, write_new
from diagvib.foundation.hooks import hooks_of
from diagvib.methods.method import Method
from diagvib.settings.resolve import load_config
from killing import killed_at_each_change


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_its_configuration_and_its_test_work_as_they_are(kind, folder):
    name = f"new_{kind}"
    message = CliRunner().invoke(app, ["new", kind, name])
    assert message.exit_code == 0 and f"python -m pytest test_{name}.py" in message.output
    config = load_config(f"{name}_config.yaml")
    assert name in [*config.studies, *(baseline.name for baseline in config.baselines)]
    written = importlib.import_module(f"test_{name}")
    tests = [value for key, value in vars(written).items() if key.startswith("test_")]
    assert len(tests) >= 2
    for test in tests:
        test(*[folder / "root"] * len(inspect.signature(test).parameters))


def test_every_hook_of_a_method_is_offered():
    write_new("method", "of_hooks")
    text = Path("of_hooks.py").read_text()
    hooks = [name for name in hooks_of(Method) if name != "optimiser"]
    assert all(f"def {name}(self" in text for name in hooks)


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("model", "My Model", "a name for a file, such as my_model, is needed"),
        ("model", "class", "a name for a file, such as my_model, is needed"),
        ("method", "torch", "torch: Python has a module of this name"),
        ("method", "jtt", "jtt: this name is already taken"),
        ("study", "zgo", "another study has this name"),
    ],
)
def test_a_name_that_cannot_be_used_leaves_no_files(kind, name, says, folder):
    with refused(says):
        write_new(kind, name)
    assert [*folder.iterdir()] == []


def test_a_killed_call_continues(folder):
    for _ in killed_at_each_change(lambda: write_new("method", "mine")):
        pass
    assert {path.name for path in folder.glob("*mine*")} == {
        *("mine.py", "mine.yaml", "mine_config.yaml", "test_mine.py")
    }


def test_no_file_is_overwritten(folder):
    (folder / "mine.yaml").write_text("a")
    with refused("^mine.yaml: already exists"):
        write_new("study", "mine")
    assert (folder / "mine.yaml").read_text() == "a" and "mine" not in sys.modules
