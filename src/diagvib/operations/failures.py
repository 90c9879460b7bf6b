"""Summarise the failed jobs of a workflow, one line for each error."""

import time
from collections.abc import Iterable
from pathlib import Path

_SHOWN = 5
_STARTED = time.time()


def what_failed(jobs: Iterable) -> str:
    """`error: ...` from the failed jobs' logs, each with its log; the latest last.

    jobs: Snakemake's, including groups. Jobs with the same reason share a line.
    """
    parts = [(part, job.is_group()) for job in jobs for part in (job if job.is_group() else [job])]
    # Of a group, not all jobs have failed, or even run.
    logs = {log: grouped for part, grouped in parts for log in map(Path, part.log) if log.exists()}
    times = {log: log.stat().st_mtime for log in logs}
    reasons: dict[str, list[Path]] = {}
    for log in sorted(times, key=times.get):
        if times[log] >= _STARTED and (reason := _reason(log, logs[log])):
            reasons.setdefault(reason, []).append(log)
    if not reasons:
        return "error: a job failed without a message; see Snakemake's output above"
    lines = [
        f"{reason} (log: {found[-1]}{f' and {len(found) - 1:,} more' * (len(found) > 1)})"
        for reason, found in list(reasons.items())[-_SHOWN:]
    ]
    more = len(reasons) - len(lines)
    return "\n".join(
        [f"error: {more} more reasons, in the logs of the failed jobs"] * bool(more) + lines
    )


def _reason(log: Path, grouped: bool) -> str | None:
    """The last `error:` line of a log. Without one: how the log ends, or None if the job need not
    have failed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    if errors or grouped:
        return errors[-1] if errors else None
    if not lines:
        return "error: a job was ended from outside, for example because memory or time ran out"
    return f"error: a job ended without a message; its log ends with: {lines[-1]}"
