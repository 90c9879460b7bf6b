"""Snakemake's own process, its scheduler and its lock, under the real Snakefile and rules; only the
command that the jobs call is a stand-in."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import BIN, REPOSITORY
from diagvib.scenes import load_scene
from diagvib.studies.binding import all_bindings
from diagvib.studies.study import load_study
from diagvib.workflow.failures import what_failed
from diagvib.workflow.hooks import after_failure, after_success, prepare_snakemake
from stand_in import change_stand_in, command, repository_with_stand_in
from toy import call, environment, write

BINDINGS = [
    binding.name for binding in all_bindings(load_study("zgo"), load_scene("digits").factors)
][:5]
# 20 quick jobs, then two trainings that take turns on one core.
CONFIG = f"""
root: toy
sources: embedded
studies: [zgo, chgo]
bindings: [{", ".join(BINDINGS)}]
samples: 5
baselines: [{{name: small_cnn, studies: [zgo], bindings: [{", ".join(BINDINGS[:2])}]}}]
"""
# Snakemake, and a thread in it that counts how often it sees a timer.
WATCHED = """
import pathlib, sys, threading, time
def watch():
    looks = timers = 0
    while True:
        looks += 1
        timers += any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
        pathlib.Path("timers.new").write_text(f"{timers} {looks}")
        pathlib.Path("timers.new").replace("timers.txt")
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
from snakemake.cli import main
main(sys.argv[1:])
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository whose trainings last until it contains a file `go`."""
    return repository_with_stand_in(
        tmp_path, CONFIG, "touch training; until [ -e go ]; do sleep 0.1; done"
    )


@contextmanager
def started(repository: Path, *arguments: str, code: str = "") -> Iterator[subprocess.Popen]:
    """Snakemake, in a separate process group. Whatever remains of it is killed."""
    running = subprocess.Popen(
        command(repository, *arguments, code=code),
        cwd=repository,
        env=environment(repository),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def ended(repository: Path, *arguments: str) -> tuple[int, str]:
    with started(repository, *arguments) as running:
        message, _ = running.communicate()
        return running.returncode, message


@contextmanager
def training(repository: Path) -> Iterator[subprocess.Popen]:
    """Snakemake during the first training."""
    (repository / "training").unlink(missing_ok=True)
    with started(repository, "runs", code=WATCHED) as running:
        while not (repository / "training").exists():
            assert running.poll() is None, running.stdout.read()
            time.sleep(0.1)
        yield running


def test_stopped_it_says_how_to_continue_and_finished_jobs_leave_no_timers(repository):
    with training(repository) as running:
        code, output = ended(repository, "runs")
        assert code == 1 and "Directory cannot be locked" in output
        assert "It can be removed with the --unlock argument" in " ".join(output.split())
        time.sleep(3)
        timers, looks = map(int, (repository / "timers.txt").read_text().split())
        assert timers == 0 and looks > 100
        os.killpg(running.pid, signal.SIGTERM)
        output, _ = running.communicate()
        assert running.returncode == 1 and "no backup found" not in output
        last = "error: stopped by SIGTERM; the same command goes on from there"
        assert output.splitlines()[-1] == last
    with training(repository) as running:
        os.killpg(running.pid, signal.SIGKILL)
    assert ended(repository, "--unlock")[0] == 0
    (repository / "go").touch()
    code, output = ended(repository, "runs")
    assert code == 0, output
    assert len(list((repository / "toy/results/runs").rglob("run.json"))) == 10


def test_a_rate_limit_of_the_users_still_limits(repository):
    with started(repository, "--max-jobs-per-timespan", "5/1h", "recipes") as running:
        message = ""
        while "rate limit reached" not in message:
            assert running.poll() is None, message
            message += running.stdout.readline()
        time.sleep(2)
        assert running.poll() is None
    recipes = list((repository / "toy/data/recipes").rglob("*.parquet"))
    assert len(recipes) == 4, "prepare, and four of draw"


def test_only_a_job_without_a_traceback_may_have_lacked_memory_or_time(tmp_path):
    log = tmp_path / "log"
    job = SimpleNamespace(is_group=lambda: False, log=[str(log)])
    for text, message in (
        ("epoch 1\n", "perhaps because memory or time ran out; the log ends with: epoch 1"),
        (
            "Traceback (most\n  ...\nTypeError: x\n",
            "because of an error in the code; the log ends with: T",
        ),
    ):
        log.write_text(text)
        assert what_failed([job]).startswith(f"error: a job failed, {message}")


def test_the_last_error_of_each_log_is_told_once_with_its_latest_log(tmp_path):
    logs = [tmp_path / name for name in ("old", "one", "two", "three")]
    for number, (log, last) in enumerate(zip(logs, ("x", "same", "same", "other"), strict=True)):
        log.write_text(f"error: tried again\nerror: {last}\nat the end\n")
        os.utime(log, (time.time() + number,) * 2)
    os.utime(logs[0], (1, 1))  # of an earlier workflow
    killed = tmp_path / "killed"
    killed.write_text("epoch 3\n")
    logs.append(killed)
    jobs = [SimpleNamespace(is_group=lambda: False, log=[str(log)]) for log in logs]
    assert what_failed(jobs).splitlines() == [
        f"error: a job failed, perhaps because memory or time ran out; the log ends with: epoch 3 (log: {killed})",
        f"error: same (log: {logs[2]} and 1 more)",
        f"error: other (log: {logs[3]})",
    ]


@pytest.mark.parametrize("folder", [".snakemake", "toy"])
def test_the_last_line_names_a_full_disk(tmp_path, own_disk, folder):
    """Of Snakemake's records, or of the jobs, whose logs cannot be written either."""
    fill = f"head -c 4M /dev/zero > {folder}/fill"
    repository = repository_with_stand_in(tmp_path, CONFIG, fill)
    mount = f'mkdir {folder}; mount -t tmpfs -o size=1m tmpfs {folder}; exec "$@"'
    process = subprocess.run(
        [*own_disk, mount, "sh", *command(repository, "runs")],
        cwd=repository,
        env=environment(repository),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    last = (
        "error: the disk of .snakemake or of toy is full, or your share of it; free some space, "
        "then run the same command again"
    )
    assert process.returncode == 1 and process.stdout.splitlines()[-1] == last


def test_without_its_weights_only_a_networks_jobs_do_not_run(tmp_path):
    """A root that was finished before weights were fetched stays as it is."""
    selection = f"studies: [zgo], bindings: [{BINDINGS[0]}]"
    of_both = f"[{{name: small_cnn, {selection}}}, {{name: resnet50_in, {selection}}}]"
    config = CONFIG.partition("baselines:")[0] + f"baselines: {of_both}\n"
    repository = repository_with_stand_in(tmp_path, config)
    offline = "echo 'error: no network' >&2; exit 1; "
    change_stand_in(repository, "  weights) ", f"  weights) {offline}")
    code, output = ended(repository)
    page, last = output.splitlines()[-2:]
    assert code == 1 and page == "tables and page of the other runs: toy/results/report.html"
    log = "toy/logs/weights/resnet50.IMAGENET1K_V1.log"
    assert last == f"error: no network (log: {log})"
    runs, weights = repository / "toy/results/runs", repository / "toy/data/raw/weights"
    assert [path.name for path in runs.iterdir()] == ["small_cnn"]
    change_stand_in(repository, offline, "")
    assert ended(repository)[0] == 0 and (runs / "resnet50_in").exists()
    shutil.rmtree(weights)
    assert "Nothing to be done" in ended(repository, "--dry-run")[1]


@pytest.mark.parametrize("rule", ["encode", "train"])
def test_the_tables_of_runs_on_other_machines_are_made_by_hand(rule, monkeypatch, tmp_path):
    """Without its weights, a network encodes nothing, and its runs do not start."""
    failed, tabulate = (
        SimpleNamespace(rule=SimpleNamespace(name=name), log=[], is_group=lambda: False)
        for name in (rule, "tabulate")
    )
    tabulate.shellcmd = "diagvib tabulate --settings 'a b.json' --root c > c/log 2>&1"
    tabulate.input = [str(tmp_path)]
    workflow = SimpleNamespace(
        scheduler=SimpleNamespace(failed=[failed], running=[]),
        dag=SimpleNamespace(needrun_jobs=lambda: [failed, tabulate]),
        local_exec=False,
    )
    messages = []
    monkeypatch.setattr("atexit.register", lambda _, message, file: messages.append(message))
    after_failure(workflow)
    tables = "diagvib tabulate --settings 'a b.json' --root c"
    assert messages[1] == f"tables and page of the other runs: {tables}"


@pytest.mark.parametrize(
    ("crash", "message"),
    [(None, "error: interrupted; the same command goes on"), (OSError(), "error: a job failed")],
)
def test_ctrl_c_is_not_called_a_failed_job(crash, message, monkeypatch):
    scheduler = SimpleNamespace(failed=set(), running={"train"}, _executor_error=crash)
    messages = []
    monkeypatch.setattr("atexit.register", lambda _, message, file: messages.append(message))
    after_failure(SimpleNamespace(scheduler=scheduler))
    assert len(messages) == 1 and messages[0].startswith(message)


def test_a_root_that_cannot_be_there_is_one_line(repository):
    code, output = ended(repository, "--dry-run", "--config", f"root={'x' * 300}")
    assert code == 1 and "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith("error: xxx") and last.endswith(": File name too long")


def test_a_report_of_snakemakes_offers_tables_for_download():
    report = pytest.importorskip("snakemake.report.common")
    kinds = {report.mime_from_file(f"overall.{name}")[0] for name in ("csv", "parquet")}
    assert kinds == {"text/csv", "application/vnd.apache.parquet"}


INCLUDED = """
configfile: "toy.yaml"
include: {path!r}
rule mine:
    input: rules.draw.output[0].format(study="zgo", binding={binding!r})
    output: "mine.txt"
    shell: "echo {{input}} > {{output}}"
"""
MODULE = """
configfile: "toy.yaml"
module diagvib:
    snakefile: {path!r}
    config: config
use rule * from diagvib as d_*
"""


def test_another_workflow_includes_it_but_not_as_a_module(tmp_path):
    path = str(REPOSITORY / "Snakefile")
    texts = {
        "toy.yaml": CONFIG,
        "Snakefile": INCLUDED.format(path=path, binding=BINDINGS[0]),
        "Module": MODULE.format(path=path),
    }
    dry_run = [BIN / "snakemake", "--dry-run", "--snakefile"]
    code = {"PYTHONPATH": str(REPOSITORY / "src")}
    call(write(tmp_path, texts), *dry_run, "Snakefile", "mine", **code)
    message = call(tmp_path, *dry_run, "Module", fails=True, **code)
    assert "error: the Snakefile of diagvib cannot be a `module`; write `include: " in message
    assert "Traceback" not in message


def test_files_that_are_touched_are_not_announced(monkeypatch, capsys):
    monkeypatch.setattr("diagvib.workflow.hooks.record_run", lambda config, touched: None)
    finished = [SimpleNamespace(rule=SimpleNamespace(name="plot"))]
    dag = SimpleNamespace(finished_jobs=finished)
    after_success(SimpleNamespace(touch=True, dag=dag), SimpleNamespace(root="toy"))
    assert capsys.readouterr().err == ""
    after_success(SimpleNamespace(touch=False, dag=dag), SimpleNamespace(root="toy"))
    assert "The page: toy/results/report.html" in capsys.readouterr().err


def test_a_mistake_names_all_that_is_configured(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ})
    files = tmp_path / "first.yaml", tmp_path / "second.yaml"
    for file in files:
        file.write_text("seeds: 1")
    settings = SimpleNamespace(config={"samples": "no"})
    main = SimpleNamespace(is_main_snakefile=lambda: True)
    workflow = SimpleNamespace(configfiles=files, config_settings=settings, modifier=main)
    message = r"first\.yaml /.*second\.yaml --config samples=no: samples: must be a valid integer"
    with pytest.raises(SystemExit, match=message):
        prepare_snakemake(workflow, {"samples": "no"})
