"""What decides that a job runs again, all of it:

- one of its files is missing, older than an input whose content changed, or left by a killed job,
  or a job that makes its inputs runs (Snakemake checks these four);
- Snakemake has no record of one of its files: the root was moved or copied, or `.snakemake` deleted;
- a file that its digest file stands for is gone;
- its files record another provenance than the expected one: made by hand, by another clone, or by
  code that was edited while it ran; or a run's files have changed since;
- its settings or its code are not those of Snakemake's record.

Code is the same if it computes the same (`foundation.program`) or was shown to (`equal_code.csv`).
"""

import ast
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata
from diagvib.images import split_files
from diagvib.provenance.code import same_code
from diagvib.provenance.expected import ExpectedJobs, settings_file
from diagvib.provenance.finished import RUN_RECORD, changed_files, differing
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import WEIGHTS_FILE


def reasons(
    jobs: ExpectedJobs, job, parameters: list[str], recorded: Callable[[str], list[str] | None]
) -> Iterator[tuple[str, set[str]]]:
    """Why a job, Snakemake's, runs again, and the files that say so.

    parameters: the job's, as Snakemake records them: its settings' file and the digest of its code.
    recorded: those of the record of an output; None without a record.
    """
    outputs = [path for path in job.output if _is_made(path)]
    if not outputs:
        return
    records = {path: recorded(path) for path in outputs}
    expected = {_canonical(text, jobs.config.root) for text in parameters}
    checks = {
        "no record of what made it": (path for path in outputs if records[path] is None),
        "files that are gone": _missing_files(jobs.config, job),
        "changed, or made with other settings, code or images": _made_differently(jobs, job),
        "other settings or code than in the record": (
            path
            for path, texts in records.items()
            if texts is not None
            and {_canonical(text, jobs.config.root) for text in texts} != expected
        ),
    }
    for reason, files in checks.items():
        with suppress(DiagvibError):  # cannot be read, which is said where it is used
            if reason_files := set(files):
                yield reason, reason_files


def _is_made(output: str) -> bool:
    """Whether an output is there. A folder of hidden files alone is not: by one of these, git keeps
    `results/metrics`."""
    if os.path.isdir(output):
        return any(not name.startswith(".") for name in os.listdir(output))
    return os.path.exists(output)


def _missing_files(config: Configuration, job) -> Iterator[str]:
    """The files that a job's output stands for and that are gone."""
    output, rule = Path(job.output[0]), job.rule.name
    if rule not in ("fetch", "weights", "prepare", "render", "encode", "train"):
        return
    digests = read_json(output)
    names = [name for name, digest in digests.items() if isinstance(digest, str)]
    if rule == "encode":
        splits = {Path(f"{name}.npy"): entry for name, entry in digests.items() if "/" in name}
        names = [
            file
            for path, entry in splits.items()
            for file in split_files(path, entry.get("views", ()))
        ]
    if rule == "train" and config.keep_weights:
        names += {f"{os.path.dirname(name)}/{WEIGHTS_FILE}" for name in names}
    yield from (str(path) for name in names if not (path := output.parent / name).exists())


def _made_differently(jobs: ExpectedJobs, job) -> Iterator[str]:
    """The files of a job that record another provenance than the expected one; and runs whose files
    have changed since. (Images, which are large, are compared when they are read.)"""
    for path, expected in jobs.provenance(job):
        with suppress(DiagvibError, OSError):  # damaged
            recorded = (read_metadata if path.suffix == ".parquet" else read_json)(path)
            of_run = path.name == RUN_RECORD
            changed = of_run and changed_files(recorded, path.parent, path.stat().st_mtime)
            if changed or differing(recorded, expected):
                yield str(path)


@cache  # thousands of jobs have few of them
def _canonical(parameter: str, root: str) -> str:
    """A recorded parameter as it would be recorded now: settings as their file, and one digest for
    all code that computes the same."""
    value = ast.literal_eval(parameter)
    if isinstance(value, str) and value.startswith("{"):  # settings of an earlier version
        return repr(settings_file(root, value))
    return repr(same_code(value))
