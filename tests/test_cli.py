"""The command line: every command explains itself, and mistakes end in one line."""

import importlib
import os
import signal
import subprocess
import sys
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest
import typer
from loopback import web_server
from typer.testing import CliRunner

from conftest import BIN, refused
from diagvib import __version__, cli, stages
from diagvib.cli import try_commands
from diagvib.cli.stage_commands import run_stage
from diagvib.commands.run import run_workflow
from diagvib.commands.view import FileHandler
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.workflow.ledger import check_complete

COMMANDS = [
    "fetch",
    "weights",
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
    call = subprocess.run([BIN / "diagvib", "--help"], capture_output=True, text=True, check=True)
    commands = typer.main.get_command(cli.app).commands
    assert "..." not in call.stdout.partition("Options:")[2] and {*COMMANDS} <= {*commands}
    for command in commands:
        assert f"  {command} " in call.stdout
        assert "Usage" in CliRunner().invoke(cli.app, [command, "--help"]).output
    assert (
        "..." not in CliRunner().invoke(cli.app, ["new", "--help"]).output.partition("Options:")[2]
    )


def test_without_published_results_pull_says_where_to_call_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("no published results here; call this in the repository"):
        cli.app(["pull"], standalone_mode=False)


def test_a_reader_that_has_gone_ends_a_command_without_a_word():
    ours, theirs = os.pipe()
    os.close(ours)
    command = [BIN / "diagvib", "plan", "--detect", "5"]
    call = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert call.returncode == 1 and not call.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan --set bindngs=all", "unknown key 'bindngs'; did you mean bindings"),
        ("plan --config none.yaml", "none.yaml: no such file"),
        ("draw zg shape-hue", "unknown study 'zg'; did you mean"),
        ("draw zgo shape-hue --settings none.json", "none.json: no such file"),
        ("train small_cnn zgo shape-hu", "unknown factor 'hu'; did you mean hue"),
        ("train small_cnn zgo shape", "study zgo: 'shape' names 1 factors for 2 roles"),
        ("encode lite0 zgo shape-hu", "unknown factor 'hu'"),
        ("run demo --set samples=2", "--set: write --config KEY=VALUE"),
        ("run demo --configfile mine.yaml", "--configfile: write one file alone"),
        ("evaluate resnet50 zgo --root a:b", "--root: 'a:b' cannot be used"),
        ("evaluate resnet50 zgo --input-size 0", "--input-size"),
        ("run --config mine.yaml", "--config: the file comes first"),
        ("train ../../escaped zgo shape-hue --settings {}", "'../../escaped'"),
        ("train resnet18 zgo shape-hue", "images/zgo/shape-hue/0/train.parquet: no such file"),
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
    output = capsys.readouterr().err
    assert says in output and "Traceback" not in output
    if ended.value.code == 1:
        assert output.startswith("error: ") and output.count("\n") == 1
    else:
        assert output.startswith("Usage: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "results/a"), "results/a: Permission denied"),
        (
            OSError(28, "No space left on device"),
            "the output: No space left on device; free some space, then run the same command again",
        ),
    ],
)
def test_what_the_system_refuses_is_one_line(monkeypatch, capsys, error, says):
    def forbidden(*_):
        raise error

    monkeypatch.setattr(cli, "app", forbidden)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == f"error: {says}\n"


def test_the_version_is_an_option_and_a_command():
    message = [CliRunner().invoke(cli.app, [name]).output for name in ("--version", "version")]
    assert message == [f"{__version__}\n"] * 2


def test_a_remedy_names_the_configuration_of_the_root(tmp_path, monkeypatch):
    """Without one, the commands make the paper's 989 jobs."""
    (tmp_path / "config").mkdir()
    for file, root in {"config/a.yaml": "outputs/a", "mine.yaml": "outputs/mine"}.items():
        (tmp_path / file).write_text(f"root: {root}\n")
    monkeypatch.chdir(tmp_path)
    for root, option in {
        "outputs/a/": " --configfile config/a.yaml`",
        str(tmp_path / "outputs/mine"): " --configfile mine.yaml`",
        "outputs/b": " --configfile FILE`, where FILE is the configuration with root: outputs/b",
        ".": "`",
    }.items():
        result = CliRunner().invoke(cli.app, ["view", root])
        assert str(result.exception).endswith(f"run `snakemake --cores all{option}")


@pytest.fixture
def served(tmp_path):
    """The port at which a folder's files are served, and the folder."""
    folder = tmp_path / "results"
    (folder / "explorer").mkdir(parents=True)
    (folder / "explorer/index.html").write_text("page")
    (folder / "explorer/same.html").symlink_to("index.html")
    (tmp_path / "secret").write_text("secret")
    (folder / "file").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    cached = tmp_path / "cache/files/md5/d4" / ("1d" * 15)
    cached.parent.mkdir(parents=True)
    cached.touch()
    (folder / "cached.html").symlink_to(cached)
    os.mkfifo(folder / "pipe")
    with web_server(partial(FileHandler, directory=folder)) as server:
        yield server.server_port


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/explorer/index.html", "127.0.0.1:{port}", 200),
        ("/explorer/index.html", "localhost:9000", 200),  # as through a tunnel
        ("/explorer/same.html", "localhost", 200),
        ("/cached.html", "localhost", 200),  # in DVC's cache
        ("/explorer/index.html", "attacker.example:{port}", 403),
        ("/explorer/index.html", "127.0.0.1.attacker.example", 403),
        ("/explorer/index.html", "", 403),
        ("/", "localhost", 404),
        ("/explorer/", "localhost", 404),
        ("/file", "localhost", 404),
        ("/folder/secret", "localhost", 404),
        ("/explorer/%2e%2e/../../secret", "localhost", 404),
        ("/pipe", "localhost", 404),
        ("/a%00b", "localhost", 404),
    ],
)
def test_only_files_of_the_folder_are_served_and_to_this_machine(served, path, host, status):
    for method in ("GET", "HEAD"):
        connection = HTTPConnection("127.0.0.1", served, timeout=10)
        connection.request(method, path, headers={"Host": host.format(port=served)})
        assert connection.getresponse().status == status
        connection.close()


LEAVING = """
import signal, sys
from argparse import ArgumentParser
class Leaving:
    def combine(self, losses, batch):
        sys.exit(0)
    def losses(self, logits, labels):
        exit()
    def penalty(self, features, batch):
        ArgumentParser().parse_args(["--help"])
    def augment(self, batch, update):
        raise KeyboardInterrupt
    def predict(self, batch, update):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
        signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("hook", ["combine", "losses", "penalty", "augment"])
def test_code_of_a_user_that_ends_the_process_is_named(tmp_path, monkeypatch, capsys, hook):
    (tmp_path / "leaving.py").write_text(LEAVING)
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("leaving").Leaving
    monkeypatch.setattr(cli, "app", lambda: getattr(kind(), hook)(None, None))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    output = capsys.readouterr().err
    assert ended.value.code == 1
    assert output.startswith(f"error: leaving:Leaving.{hook} (") and "ends the process by" in output
    monkeypatch.setattr(cli, "app", lambda: kind().predict(None, None))
    with pytest.raises((KeyboardInterrupt, SystemExit)) as ended:
        cli.main()
    assert "leaving" not in capsys.readouterr().err, "Ctrl-C is nobody's fault"


def test_nothing_runs_before_every_name_is_known(monkeypatch):
    tuned = []
    monkeypatch.setattr(stages, "tune", lambda layout, job, **arguments: tuned.append(arguments))
    inputs = [{"baseline": name} for name in ("alexnet", "resnet05")]
    with refused("unknown baseline 'resnet05'"):
        run_stage("tune", Layout(Path("x")), load_config(), None, *inputs)
    assert tuned == []
    with refused("tuning of group_dro: study zso.* cue"):
        run_stage("tune", Layout(Path("x")), load_config(), None, {"baseline": "group_dro"})


def test_options_not_given_are_the_configurations_and_with_settings_the_defaults(
    monkeypatch, tmp_path
):
    results = []
    monkeypatch.setattr(stages, "train", lambda layout, job, **arguments: results.append(arguments))
    names = {"baseline": "resnet18", "study": "zgo", "binding": "shape-hue"}
    options = {
        **names,
        "device": "cuda",
        "mirror": None,
        "keep_weights": None,
        "tensorboard": False,
    }
    config = load_config(overrides=["keep_weights=true", "tensorboard=true"])
    (settings := tmp_path / "a.json").write_text(
        stage_settings(config, "train", "zgo", "resnet18").text()
    )
    for of_job in ((config, None), (None, settings)):
        run_stage("train", Layout(Path("x")), *of_job, {**options})
    selection = {**names, "device": "cuda", "tensorboard": False}
    assert results == [{**selection, "keep_weights": True}, selection]


def test_names_that_a_terminal_cannot_show_are_no_error():
    code = "from diagvib import cli; cli.version = lambda: print('\u725b'); cli.main()"
    call = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert call.stdout == "\\u725b\n"


def test_sigterm_ends_a_command_as_ctrl_c_does(monkeypatch, capsys):
    monkeypatch.setattr(try_commands, "load_config", lambda *_: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(sys, "argv", ["diagvib", "plan"])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ending:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert ending.value.code == 130
    assert capsys.readouterr().err == "interrupted; run the same command again to continue\n"


def stand_in(monkeypatch, folder: Path, script: str) -> Path:
    """A shell script in place of the Python that runs Snakemake."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return python


def test_sigterm_reaches_the_workflow(tmp_path, monkeypatch):
    """Which ends it, and says how: 7 stands for its exit status."""
    stand_in(
        monkeypatch, tmp_path, "trap 'exit 7' TERM\nsleep 0.3\nkill -TERM $PPID\nsleep 9 & wait"
    )
    assert run_workflow("demo", []) == 7


def test_a_home_that_cannot_be_written_to_does_not_stop_the_workflow(tmp_path, monkeypatch):
    """Nor the check whether it has finished. Snakemake keeps a cache there; 3 stands for its exit
    status."""
    config = load_config()
    script = 'echo "$XDG_CACHE_HOME" > cache\necho a profile >&2\necho no memory\nexit 3'
    python = stand_in(monkeypatch, tmp_path, script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    replacement = str(tmp_path / ".snakemake/cache")
    for home, cache in ((tmp_path, ""), (python, replacement), ("/proc/nowhere", replacement)):
        monkeypatch.setenv("HOME", str(home))
        assert run_workflow("demo", []) == 3
        assert Path("cache").read_text() == f"{cache}\n"
        Path("cache").unlink()
        with refused("`snakemake -n` fails: no memory"):
            check_complete(config)
        assert Path("cache").read_text() == f"{cache}\n"
