"""Say at the end of a workflow what failed: one line for each error of a job, and a full disk."""

import atexit
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from diagvib.foundation.files import FULL

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
    logs_by_reason: dict[str, list[Path]] = {}
    for log in sorted((log for log in logs if times[log] >= _STARTED), key=times.get):
        logs_by_reason.setdefault(_reason(log), []).append(log)
    summaries = [
        f"{reason} (log: {logs[-1]}{f' and {len(logs) - 1:,} more' * (len(logs) > 1)})"
        for reason, logs in logs_by_reason.items()
    ]
    fallback = "error: a job failed without a message; see Snakemake's output above"
    return "\n".join(summaries[-_MOST_LINES:]) or fallback


def _reason(log: Path) -> str:
    """The last `error: ...` of a log; without one, what its end suggests."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if errors := [line for line in lines if line.startswith("error: ")]:
        return errors[-1]
    raised = any(line.startswith("Traceback") for line in lines)
    cause = (
        "because of an error in the code" if raised else "perhaps because memory or time ran out"
    )
    end = f"ends with: {lines[-1]}" if lines else "is empty"
    return f"error: a job failed, {cause}; the log {end}"


class FullDisk(logging.Handler):
    """Prints a last line if Snakemake's process, or a job, could not write to a full disk.

    Snakemake shows only the last exception of such a write, and jobs cannot even write their logs.
    """

    def __init__(self, *folders: Path):
        """folders: where Snakemake and the jobs write."""
        super().__init__(logging.ERROR)
        self.folders, self.is_noticed = folders, False

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        refused = any(f"[Errno {number}]" in message for number in FULL)
        if not self.is_noticed and (refused or any(map(_is_full, self.folders))):
            self.is_noticed = True
            names = " or of ".join(map(str, self.folders))
            line = (
                f"error: the disk of {names} is full, or your share of it; free some space, then run "
                "the same command again"
            )
            atexit.register(print, line, file=sys.stderr)


def _is_full(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(2**16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL
    return False
