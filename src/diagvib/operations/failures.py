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
    logs = {Path(log): grouped for part, grouped in parts for log in part.log}
    times = {log: log.stat().st_mtime for log in logs if log.exists()}
    reasons: dict[str, list[Path]] = {}
    for log in sorted(times, key=times.get):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        # Of a group, not all jobs have failed, or even run.
        if times[log] >= _STARTED and (errors or not logs[log]):
            ended = (
                "error: a job was ended, perhaps because memory or time ran out; the log ends with:"
            )
            reason = errors[-1] if errors else " ".join([ended, *lines[-1:]])
            reasons.setdefault(reason, []).append(log)
    said = [
        f"{reason} (log: {logs[-1]}{f' and {len(logs) - 1:,} more' * (len(logs) > 1)})"
        for reason, logs in reasons.items()
    ]
    unknown = "error: a job failed without a message; see Snakemake's output above"
    return "\n".join(said[-_SHOWN:]) or unknown
