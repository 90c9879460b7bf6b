"""The line about the time that is left of a workflow."""

import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagvib.commands.time_left import TimeLeft, show_time_left
from diagvib.settings.resolve import load_config


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """Time that passes when a test says so."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def tell(handler: logging.Handler, event: str, **fields: object) -> None:
    handler.handle(logging.makeLogRecord({"event": event, **fields}))


def job(number: int, baseline: str, rule: str = "train", folder: Path = Path()) -> SimpleNamespace:
    """One of Snakemake's."""
    return SimpleNamespace(
        jobid=number,
        rule=SimpleNamespace(name=rule),
        wildcards_dict={"baseline": baseline},
        benchmark=folder / f"{number}.tsv",
    )


def test_jobs_at_once_and_jobs_under_way_count(clock, capsys):
    """Of five jobs of 100 s, two run at once: after the first, one has 60 s to go and three wait. A
    job of another baseline takes as long as the plan's ratio says."""
    waiting = {number: job(number, "erm") for number in range(5)} | {9: job(9, "", "tabulate")}
    planned = {("train", "erm"): 2.0, ("train", "vae"): 6.0}
    handler = TimeLeft(waiting, {}, planned, local=True)
    tell(handler, "job_started", jobs=[0])
    clock.now += 60
    tell(handler, "job_started", jobs=[1])
    assert handler.line(0, 6) == "workflow: 0 of 6 jobs"
    clock.now += 40
    tell(handler, "job_finished", job_id=0)
    assert handler.line(1, 6) == "workflow: 1 of 6 jobs, about 3 min left, then tabulate"
    handler.waiting[7] = ("train", "vae")
    assert handler.line(1, 7) == "workflow: 1 of 7 jobs, about 6 min left, then tabulate"
    tell(handler, "progress", done=1, total=7)
    assert not capsys.readouterr().err, "lines in a log are few"
    clock.now += 301
    tell(handler, "progress", done=1, total=7)
    assert capsys.readouterr().err.startswith("workflow: 1 of 7 jobs, about 5 min left")
    handler.waiting = {1: ("train", "erm")}  # for 341 s, and so for longer than it should
    assert handler.line(6, 7) == "workflow: 6 of 7 jobs, about 34 s left"


def test_jobs_of_an_earlier_workflow_and_on_other_machines_count(clock, tmp_path, monkeypatch):
    """Of which nobody knows how long they wait in a queue: after 20 s, a job of 40 s has ended, so
    two run at once."""
    jobs = [job(number, "erm", folder=tmp_path) for number in range(4)]
    for number in (0, 1):
        jobs[number].benchmark.write_text("s\th:m:s\n40.0\t0:00:40\n")
    logger = logging.getLogger("snakemake.logging")
    monkeypatch.setattr(logger, "handlers", [])
    dag = SimpleNamespace(jobs=jobs, needrun_jobs=lambda: jobs[1:])
    config = load_config(overrides=["baselines=[small_cnn]"])
    for quiet in (["progress"], ["reason", "host"]):
        settings = SimpleNamespace(quiet=quiet)
        workflow = SimpleNamespace(dag=dag, local_exec=False, output_settings=settings)
        show_time_left(workflow, config)
    (handler,) = logger.handlers
    assert handler.line(0, 3) == "workflow: 0 of 3 jobs, about 2 min left"
    clock.now += 20
    tell(handler, "job_finished", job_id=1)
    assert handler.line(1, 3) == "workflow: 1 of 3 jobs, about 40 s left"
