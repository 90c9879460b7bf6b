"""The Snakefile's Python: `prepare_snakemake` is called while it is read, the other functions from
its hooks. Figures: benchmarks/README.md."""

import atexit
import gc
import logging
import mimetypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import FULL, read_yaml
from diagvib.foundation.messages import say
from diagvib.foundation.plug_ins import exits_refused
from diagvib.foundation.progress import TERMINAL
from diagvib.foundation.slots import WORKFLOW
from diagvib.provenance.expected import ExpectedJobs, study_and_baseline
from diagvib.provenance.finished import RUN_RECORD
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import resolve, typed, with_paths
from diagvib.workflow.failures import FullDisk, what_failed
from diagvib.workflow.gpu_shares import GpuShares, gpu_shares
from diagvib.workflow.ledger import check_recorded, record_run, say_unrecorded, to_be_recorded
from diagvib.workflow.records import RECORDS, pack, unpack
from diagvib.workflow.reruns import compare_all, decide_reruns

_STOPPED = threading.Event()  # by SIGTERM
_LARGE = 10**12  # bytes
# `--report` would show a file of an unknown type as text.
mimetypes.add_type("application/vnd.apache.parquet", ".parquet")


def prepare_snakemake(workflow, config: dict) -> tuple[ExpectedJobs, GpuShares]:
    """The jobs of the configuration, which is resolved, and their shares of GPUs. Whatever is wrong
    with it, or with the records of what is there, ends the process with one line."""
    # The `diagvib` next to this Python, whether or not its environment is active.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    # Of all jobs, whose code may draw by `hash` of a text or in the order of a set.
    os.environ["PYTHONHASHSEED"] = "0"
    os.environ[WORKFLOW] = str(os.getpid())
    with suppress(OSError, AttributeError):  # no terminal
        os.environ[TERMINAL] = os.ttyname(sys.stderr.fileno())
    # Millions of objects are created and stay; searching them for garbage takes a sixth of the
    # time.
    gc.set_threshold(100_000, 20, 50)
    with _ended_by_mistakes():
        # Of a module, Snakemake leaves out hooks and globals.
        if not workflow.modifier.is_main_snakefile():
            raise DiagvibError(
                'the Snakefile of diagvib cannot be a `module`; write `include: "PATH/Snakefile"`, '
                "whose rules have the same names"
            )
        files, paths = {}, {}
        for file in workflow.configfiles:
            # Snakemake accepts a file with a duplicate key; this does not.
            files |= (content := read_yaml(file))
            paths |= with_paths(content, Path(file))
        options = {
            key: paths[key] if key in files and files[key] == value else typed(value)
            for key, value in config.items()
        }
        resolved = resolve(options, _location(workflow))
        logging.getLogger("snakemake.logging").addHandler(FullDisk(RECORDS, Path(resolved.root)))
        if workflow.is_main_process:
            atexit.register(say_unrecorded, workflow, resolved.root)
            unpack(resolved.root)
            # Hooks run only where there are jobs; `dvc repro` records what it finds after "Nothing
            # to be done", too.
            if "DVC_STAGE" in os.environ:
                check_recorded(resolved.root)
                pack(resolved.root)
    jobs = ExpectedJobs(resolved)
    decide_reruns(jobs)
    _set_before_planning()
    with _ended_by_mistakes():
        shares = gpu_shares(resolved, workflow.resource_settings.cores)
    if workflow.is_main_process and "gpu_share" not in workflow.global_resources:
        workflow.register_resource("gpu_share", 100 * max(1, len(shares.devices)))
    return jobs, shares


def _location(workflow) -> str:
    """Where messages place a mistake: the configuration's files, and keys given by `--config`."""
    values = (workflow.config_settings.config or {}).items()
    settings = ["--config", *(f"{key}={value}" for key, value in values)] if values else []
    return one_line(" ".join([*map(str, workflow.configfiles), *settings]))


def _set_before_planning() -> None:
    """Settings that results or other jobs depend on, since a profile of the user's would replace
    one of ours. Snakemake has its settings only after the Snakefile is read."""
    from snakemake.dag import DAG

    make = DAG.__init__

    def make_with_settings(self, workflow, *arguments, **options):
        compare_all(workflow)
        # After a kill, unfinished files are made again.
        workflow.dag_settings.force_incomplete = True
        # Inputs of any size are compared by content: times mean nothing in a clone.
        largest = workflow.dag_settings.max_checksum_file_size
        workflow.dag_settings.max_checksum_file_size = max(largest, _LARGE)
        if workflow.execution_settings:  # one failed job does not stop the others
            workflow.execution_settings.keep_going = True
        make(self, workflow, *arguments, **options)

    DAG.__init__ = make_with_settings


@contextmanager
def _ended_by_mistakes() -> Iterator[None]:
    """A DiagvibError, or a path that cannot be used, ends the process with its line alone; Snakemake
    adds others to any exception."""
    try:
        with exits_refused():
            yield
    except DiagvibError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.filename is None or error.errno in FULL:  # of which `FullDisk` tells
            raise
        sys.exit(f"error: {error.filename}: {error.strerror}")


def before_the_first_job(workflow, jobs: ExpectedJobs) -> None:
    """Start nothing if something else has changed recorded files; write the jobs' settings; forget
    what forced jobs would keep; and end on SIGTERM as Snakemake would."""
    with _ended_by_mistakes():
        check_recorded(jobs.config.root)
        to_be_recorded(jobs.config.root)
        starting = [] if workflow.touch else [*workflow.dag.needrun_jobs()]
        for stage, *names in {
            (job.rule.name, *study_and_baseline(job.wildcards))
            for job in starting
            if job.params.get("settings")
        }:
            jobs.write_settings(stage, *names)
    for job in starting:
        if workflow.dag.reason(job).forced:
            _forget(job, jobs.layout)
    look_only_when_a_job_ends(workflow)

    def finish_running_jobs(*_) -> None:
        _STOPPED.set()
        # The main thread may hold the scheduler's lock when the signal comes, and would wait for
        # itself forever.
        threading.Thread(target=workflow.scheduler.exit_gracefully).start()

    signal.signal(signal.SIGTERM, finish_running_jobs)


def look_only_when_a_job_ends(workflow) -> None:
    """Drop Snakemake's default limit of 100 jobs per second; a limit of the user's own stays.

    With a limit, Snakemake starts a timer at every look at the queue, each of which causes the next
    one: after some hundred jobs they take 94 % of a core (its issue 3804).
    """
    limit = workflow.scheduling_settings.max_jobs_per_timespan
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def _forget(job, layout: Layout) -> None:
    """Delete what a job would keep: the marks of finished runs, unfinished trainings or trials, and
    features."""
    names = job.wildcards_dict
    if job.rule.name == "train":
        for mark in layout.runs(**names).glob(f"*/{RUN_RECORD}"):
            mark.unlink()
    folders = {"train": layout.checkpoints, "tune": layout.tuned, "encode": layout.features}
    if folder := folders.get(job.rule.name):
        shutil.rmtree(folder(**names), ignore_errors=True)


def after_success(workflow, config: Configuration) -> None:
    """Record the run, then say what it shows and where its page is, if it was drawn now."""
    record_run(config, workflow.touch)
    if workflow.touch or "plot" not in {job.rule.name for job in workflow.dag.finished_jobs}:
        return
    from diagvib.results.metric_sets.findings import findings
    from diagvib.results.tidy_tables import read_tables
    from diagvib.studies.known_studies import known_studies

    layout, texts = Layout(config.root), []
    with suppress(DiagvibError):  # tables that cannot be read; the page is there all the same
        frames, studies_known = read_tables(layout.tables), known_studies(config.model_dump())
        texts = [finding.text for finding in findings(frames, studies_known, config.mine)]
    say(*texts[:1], f"The page: {layout.report}")


def after_failure(workflow) -> None:
    """At exit, say what failed, since Snakemake goes on to print where its own log is and that
    something failed; and make the tables and the page of the runs that are finished."""
    scheduler = workflow.scheduler
    message = what_failed(scheduler.failed)
    if _STOPPED.is_set():
        message = "error: stopped by SIGTERM; the same command goes on from there"
    # Ctrl-C leaves jobs that are running.
    elif scheduler.running and not (scheduler.failed or scheduler._executor_error):
        message = "error: interrupted; the same command goes on from there"
    atexit.register(print, message, file=sys.stderr)
    stopped = _STOPPED.is_set() or scheduler.running
    if not stopped and (line := _report_finished_runs(workflow)):
        atexit.register(print, line, file=sys.stderr)  # is printed before


def _report_finished_runs(workflow) -> str:
    """Make tables and page without the missing runs, which they name; marked as unfinished, so that
    the next workflow makes them again. Returns a line about them: the commands, where jobs run on
    other machines; nothing if no run is finished or these jobs failed themselves."""
    waiting = {job.rule.name: job for job in workflow.dag.needrun_jobs()}
    steps = [waiting[rule] for rule in ("tabulate", "plot") if rule in waiting]
    finished = "tabulate" in waiting and any(map(os.path.exists, waiting["tabulate"].input))
    if not finished or any(job in workflow.scheduler.failed for job in steps):
        return ""
    if not workflow.local_exec:
        commands = " && ".join(job.shellcmd.rpartition(" > ")[0] for job in steps)
        return f"tables and page of the other runs: {commands}"
    say("tables and page of the finished runs are made")
    for job in steps:
        workflow.persistence.started(job)
        Path(job.log[0]).parent.mkdir(parents=True, exist_ok=True)
        if subprocess.run(["bash", "-c", job.shellcmd], check=False).returncode:
            return what_failed([job])
    return f"tables and page of the other runs: {steps[-1].output[0]}"
