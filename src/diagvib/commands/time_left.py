"""The time that is left of a workflow, as a line below Snakemake's own progress."""

import csv
import logging
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from diagvib.commands.plan_table import duration
from diagvib.commands.plan_times import job_seconds
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.settings.keys import ResolvedConfiguration

# Seconds between two lines on a terminal, and in a log.
_INTERVAL, _INTERVAL_LOG = 15, 300
# Rules whose jobs take most of the time.
_LONG = {"fetch", "weights", "render", "encode", "train", "tune"}

# A rule, and a baseline or a frozen network: jobs that take equally long.
Kind = tuple[str, str]


def show_time_left(workflow, config: ResolvedConfiguration) -> None:
    """Before the first job: from now on, say how much is left. workflow: Snakemake's."""
    if {"progress", "all"}.intersection(map(str, workflow.output_settings.quiet or ())):
        return
    planned = {}
    with suppress(DiagvibError):  # the jobs will say so
        planned = {("train", name): seconds for name, seconds in job_seconds(config).items()}
    waiting = {job.jobid: job for job in workflow.dag.needrun_jobs() if job.benchmark}
    recorded = defaultdict(list)
    for job in workflow.dag.jobs:
        if job.benchmark and job.jobid not in waiting:
            recorded[_kind(job)] += _recorded(job)
    handler = TimeLeft(waiting, recorded, planned, workflow.local_exec)
    logging.getLogger("snakemake.logging").addHandler(handler)


def _kind(job) -> Kind:
    names = job.wildcards_dict
    return job.rule.name, names.get("baseline") or names.get("network") or ""


def _recorded(job) -> list[float]:
    """The seconds of a finished job, which Snakemake has written."""
    path = Path(job.benchmark)
    with suppress(OSError, KeyError, ValueError), path.open(newline="") as file:
        return [float(row["s"]) for row in csv.DictReader(file, delimiter="\t")]
    return []


class TimeLeft(logging.Handler):
    """Says now and then how many jobs are done, and about how long the others take, of which as many
    run at once as now; nothing about time before one job of each rule in _LONG has ended."""

    def __init__(
        self,
        waiting: dict,
        recorded: dict[Kind, list[float]],
        planned: dict[Kind, float],
        local: bool,
    ):
        """waiting: the jobs to run, Snakemake's, by their numbers; recorded: seconds of earlier jobs;
        planned: those of a plan, of which only the ratios count; local: whether jobs run on this
        machine, and not after others in a queue."""
        super().__init__(logging.INFO)
        self.jobs, self.recorded, self.planned, self.local = waiting, recorded, planned, local
        self.waiting = {number: _kind(job) for number, job in waiting.items()}
        self.finished: dict[Kind, list[float]] = defaultdict(list)
        self.starts: dict[int, float] = {}
        self.interval = _INTERVAL if sys.stderr.isatty() else _INTERVAL_LOG
        self.start = self.line_time = time.monotonic()
        self.parallel = 1.0

    def emit(self, record: logging.LogRecord) -> None:
        event, now = getattr(record, "event", None), time.monotonic()
        if event == "job_started":
            self.starts |= {number: now for number in record.jobs if number in self.waiting}
            if self.local:
                self.parallel = max(1, len(self.starts))
        elif event == "job_finished" and record.job_id in self.waiting:
            kind = self.waiting.pop(record.job_id)
            start = self.starts.pop(record.job_id, None)
            timed = self.local and start is not None
            seconds = [now - start] if timed else _recorded(self.jobs[record.job_id])
            self.finished[kind] += seconds
            if not self.local:
                self.parallel = max(1, sum(map(sum, self.finished.values())) / (now - self.start))
        elif event == "job_error":
            self.waiting.pop(record.jobid, None)
            self.starts.pop(record.jobid, None)
        elif event == "progress" and now > self.line_time + self.interval:
            self.line_time = now
            say(self.line(record.done, record.total))

    def line(self, done: int, total: int) -> str:
        kinds = {kind: self._seconds(kind) for kind in {*self.waiting.values()}}
        unknown = sorted({rule for (rule, _), seconds in kinds.items() if seconds is None})
        text = f"workflow: {done:,} of {total:,} jobs"
        if len(unknown) == len(kinds) or _LONG.intersection(unknown):
            return text
        then = ", then " * bool(unknown) + ", ".join(unknown)
        return f"{text}, about {duration(self._left(kinds))} left{then}"

    def _left(self, kinds: dict[Kind, float | None]) -> float:
        """Seconds of the jobs that wait and run. kinds: seconds of a job; one that takes longer is
        thought to need a tenth more than it has had."""
        now = time.monotonic()
        remainders = []
        for number, kind in self.waiting.items():
            elapsed = (now - self.starts.get(number, now)) * self.local
            remainders.append(max((kinds[kind] or 0.0) - elapsed, elapsed / 10))
        return max([sum(remainders) / self.parallel, *remainders])

    def _seconds(self, kind: Kind) -> float | None:
        """Of a job of this kind: as measured, or in proportion to others in the plan, or as others
        of the rule."""
        measured = [*self.recorded.items(), *self.finished.items()]
        means = {name: sum(s) / len(s) for name, s in measured if s}
        if kind in means:
            return means[kind]
        in_both = means.keys() & self.planned.keys()
        if kind in self.planned and in_both:
            ratio = sum(means[name] for name in in_both) / sum(self.planned[n] for n in in_both)
            return ratio * self.planned[kind]
        of_rule = [mean for (rule, _), mean in means.items() if rule == kind[0]]
        return sum(of_rule) / len(of_rule) if of_rule else None
