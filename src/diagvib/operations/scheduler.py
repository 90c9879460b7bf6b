"""Snakemake's scheduler, kept from waking itself.

To keep its limit of jobs a time span (`max-jobs-per-timespan`, 100/1s unless set), Snakemake 9 starts a timer at every
look at the queue, and each timer causes a look: one more chain of looks for every finished job, none of which ends
while jobs wait. After a few hundred jobs that takes a whole core (snakemake issue 3804).
"""

import threading
import time


def wake_only_for_the_limit() -> None:
    """Let timers wake Snakemake's scheduler only where the limit holds jobs back, and one timer at a time.

    Without a timer the scheduler looks whenever a job ends, which is all that a queue needs that waits for cores. To be
    called while the Snakefile is read, in whichever process: groups and Slurm's jobs have schedulers of their own. No
    effect on a Snakemake that works otherwise.
    """
    try:
        from snakemake.scheduling.job_scheduler import JobScheduler
        theirs = JobScheduler._schedule_reevalutation
    except (ImportError, AttributeError):
        return
    if theirs is not _look_again:
        _look_again.theirs = theirs
        JobScheduler._schedule_reevalutation = _look_again


def _look_again(scheduler, delay: float) -> None:
    limiter = scheduler.job_rate_limiter
    if limiter is None or delay != limiter.timespan:  # the scheduler waits for something else
        _look_again.theirs(scheduler, delay)
    elif not limiter.get_free_jobs() and not getattr(scheduler, "_will_wake", False):
        scheduler._will_wake = True
        # Until the first job of the span is older than the span; the whole span where Snakemake does not say.
        started = getattr(limiter, "_jobs", None)
        timer = threading.Timer(max(0, started[0] + delay - time.time()) if started else delay, _wake, [scheduler])
        timer.daemon = True  # a limit a day must not keep a finished Snakemake for a day
        timer.start()


def _wake(scheduler) -> None:
    scheduler._will_wake = False
    scheduler._open_jobs.release()
