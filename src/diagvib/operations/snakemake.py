"""What Snakemake needs besides the rules for a workflow of this size, so that the Snakefile shows
only the rules.

`prepare_snakemake` is called while the Snakefile is read, the others from its hooks. Figures:
benchmarks/README.md.
"""

import atexit
import gc
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.operations.beginning import begin, end
from diagvib.operations.failures import what_failed
from diagvib.operations.ledger import changed_behind, record_run
from diagvib.operations.provenance import unpack
from diagvib.operations.scheduler import wake_only_for_the_limit
from diagvib.scenes import load_scene
from diagvib.settings.config import resolve
from diagvib.settings.grid import Layout, scenes
from diagvib.training.finished_runs import LAST

_STOPPED = threading.Event()  # by SIGTERM


def prepare_snakemake(workflow, config: dict) -> dict:
    """Make Snakemake fit for a hundred thousand files, and return the configuration, resolved.

    Whatever is wrong with that ends the process with one line.
    """
    # Millions of objects are created and stay; searching them for garbage takes a sixth of the
    # time.
    gc.set_threshold(100_000, 20, 50)
    # Of a job that failed, it restores the outputs before, one by one; a new run has had none.
    logging.getLogger("snakemake.logging").addFilter(
        lambda record: "no backup found" not in record.getMessage()
    )
    wake_only_for_the_limit()
    resolved = begin(workflow, config, resolve)
    if workflow.is_main_process:
        try:
            unpack(resolved["root"])
        except DiagvibError as error:
            end(error)
    # Hooks run only where there are jobs; `dvc repro` records what it finds after "Nothing to be
    # done", too.
    if "DVC_STAGE" in os.environ and workflow.is_main_process:
        _check_recorded(resolved["root"])
    return resolved


def before_the_first_job(workflow, root: str) -> None:
    """Start nothing if something else has changed recorded files; forget what forced jobs would
    keep; and end on SIGTERM as Snakemake would."""
    _check_recorded(root)
    for job in () if workflow.touch else workflow.dag.needrun_jobs():
        if workflow.dag.reason(job).forced:
            _forget(job, Layout(Path(root)))

    def finish_running_jobs(*_) -> None:
        _STOPPED.set()
        # The main thread may hold the scheduler's lock when the signal comes, and would wait for
        # itself forever.
        threading.Thread(target=workflow.scheduler.exit_gracefully).start()

    signal.signal(signal.SIGTERM, finish_running_jobs)


def _forget(job, layout: Layout) -> None:
    """Delete what a job would keep: the mark of its finished runs, and unfinished trainings or
    trials."""
    for file in map(Path, job.output):
        if file.name == LAST:
            file.unlink(missing_ok=True)
    kept = {"train": layout.checkpoints, "tune": layout.tuned}.get(job.rule.name)
    if kept:
        shutil.rmtree(kept(**job.wildcards_dict), ignore_errors=True)


def after_success(workflow, config: dict, wanted: Iterable[str]) -> None:
    """Record the run, and say what was left out of it. wanted: every file of a complete one."""
    record_run(config, wanted, workflow.touch)
    for name in scenes(config):
        with suppress(DiagvibError):  # nothing is prepared yet
            prepared = Layout(Path(config["root"])).prepared(name)
            made = load_scene(name).catalogue(prepared).sources
            if made not in ("official", "embedded"):
                print(f"{name}: made from {made} sources", file=sys.stderr)


def after_failure(workflow) -> None:
    """At exit, say what failed, since Snakemake goes on to print where its own log is and that
    something failed."""
    said = what_failed(workflow.scheduler.failed)
    if _STOPPED.is_set():
        said = "error: stopped by SIGTERM; the same command goes on from there"
    atexit.register(print, said, file=sys.stderr)


def _check_recorded(root: str) -> None:
    try:
        changed = changed_behind(root)
    except DiagvibError as error:
        changed = error
    if changed:
        end(changed)
