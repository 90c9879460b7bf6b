"""Keeps Snakemake's scheduler from waking itself.

To enforce its limit of jobs per time span (`max-jobs-per-timespan`, 100/1s unless set), Snakemake 9
starts a timer whenever it checks the queue, and each timer triggers a check: every finished job
adds a chain of checks, none of which ends while jobs wait. After a few hundred jobs this takes a
whole core (snakemake issue 3804).
"""

import threading
import time


def wake_only_for_the_limit() -> None:
    """Let timers wake Snakemake's scheduler only while the limit holds jobs back or no job runs,
    and one timer at a time.

    Without a timer the scheduler checks the queue whenever a job ends, which is enough for a queue
    that waits for cores, as long as a job runs. To be called while the Snakefile is read, in every
    process: groups and Slurm's jobs have their own schedulers. No effect on a Snakemake that works
    differently.
    """
    try:
        from snakemake.scheduling.job_scheduler import JobRateLimiter, JobScheduler

        theirs = JobScheduler._schedule_reevalutation
        ask, register = JobRateLimiter.get_free_jobs, JobRateLimiter.register_jobs
    except (ImportError, AttributeError):
        return
    if theirs is _look_again:
        return

    def get_free_jobs(limiter) -> int:
        limiter.left = ask(limiter)
        return limiter.left

    def register_jobs(limiter, started: int) -> None:
        limiter.left -= started
        register(limiter, started)

    JobRateLimiter.get_free_jobs, JobRateLimiter.register_jobs = get_free_jobs, register_jobs
    _look_again.theirs = theirs
    JobScheduler._schedule_reevalutation = _look_again


def _look_again(scheduler, delay: float) -> None:
    limiter = scheduler.job_rate_limiter
    if limiter is None or delay != limiter.timespan:  # the scheduler waits for something else
        _look_again.theirs(scheduler, delay)
        return
    # As it was when jobs were selected: the limit may have ended since, and no timer would start
    # what it held back.
    held = limiter.left <= 0
    if (held or not scheduler.running) and not getattr(scheduler, "_will_wake", False):
        scheduler._will_wake = True
        # Until the first job of the span is older than the span; the full span if Snakemake does
        # not say.
        started = getattr(limiter, "_jobs", None) if held else None
        wait = (
            max(0, started[0] + delay - time.time())
            if started
            else delay
            if held
            else min(delay, 1)
        )
        timer = threading.Timer(wait, _wake, [scheduler])
        timer.daemon = True  # a limit per day must not keep a finished Snakemake running for a day
        timer.start()


def _wake(scheduler) -> None:
    scheduler._will_wake = False
    scheduler._open_jobs.release()
