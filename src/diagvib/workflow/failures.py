"""Summarise the failed jobs of a workflow, one line for each error."""

import time
from collections.abc import Iterable
from pathlib import Path

_MOST_LINES = 5
_STARTED = time.time()


def what_failed(jobs: Iterable) -> str:
    """`error: ...` from the failed jobs' logs, each with its log; the latest last.

    jobs: Snakemake's, including groups, of which not all jobs have failed, or even run. Jobs with
    the same reason share a line.
    """
    parts = [part for job in jobs for part in (job if job.is_group() else [job])]
    logs = [Path(log) for part in parts for log in part.log if Path(log).exists()]
    times = {log: log.stat().st_mtime for log in logs}
    reasons: dict[str, list[Path]] = {}
    for log in sorted((log for log in logs if times[log] >= _STARTED), key=times.get):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raised = any(line.startswith("Traceback") for line in lines)
        cause = "by an error in the code" if raised else "perhaps because memory or time ran out"
        ended = f"error: a job was ended, {cause}; the log ends with:"
        errors = [line for line in lines if line.startswith("error: ")]
        reasons.setdefault([" ".join([ended, *lines[-1:]]), *errors][-1], []).append(log)
    summaries = [
        f"{reason} (log: {logs[-1]}{f' and {len(logs) - 1:,} more' * (len(logs) > 1)})"
        for reason, logs in reasons.items()
    ]
    fallback = "error: a job failed without a message; see Snakemake's output above"
    return "\n".join(summaries[-_MOST_LINES:]) or fallback
