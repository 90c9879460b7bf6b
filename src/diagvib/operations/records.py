"""Read Snakemake's private records in .snakemake; nothing else does.

As of Snakemake 9.27, the oldest that the Snakefile takes: metadata/ holds a JSON file for each
output, with `endtime`, the output's time of change when its job ended; incomplete/ marks outputs
whose job is under way or was stopped. A file is named by its output's path in URL-safe base64,
divided into folders `@...` where that is long.
"""

import base64
import binascii
from collections.abc import Container, Iterator
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, file_sha256, read_json

RECORDS = Path(".snakemake")
# Snakemake's mark in folders that it made.
_MARK = ".snakemake_timestamp"
# Snakemake divides longer names.
_LONGEST_NAME = 254


def made_here(path: Path, gone: Container[str], since: float = 0.0) -> bool:
    """Whether the workflow made this file after `since`, or was making it when it was stopped, or
    will make it again, as its digest file is among the files that are gone.

    If the path is itself a record of Snakemake's: whether it is of a file that was made then.
    """
    if path.is_relative_to(RECORDS / "metadata"):
        output = recorded_path(path)
        return output is not None and since < _ended(output) == _changed(output)
    for folder in path.parents:
        digests = folder / DIGESTS_FILE
        if str(digests) in gone:
            return True
        if digests.is_file() and digests != path:
            try:
                noted = read_json(digests).get(path.relative_to(folder).as_posix())
            except DiagvibError:  # damaged, too
                return False
            return noted == file_sha256(path) and made_here(digests, gone, since)
    for output in (path, *path.parents):
        if record_of("incomplete", str(output)).exists():
            return True
        if record_of("metadata", str(output)).exists():
            ended, changed = _ended(output), _changed(path)
            return since < ended and (changed == ended if output == path else changed <= ended)
    return False


def _ended(output: Path) -> float:
    """When the job that made an output ended; 0 if its record does not say, for example because it
    is damaged."""
    try:
        ended = read_json(record_of("metadata", str(output))).get("endtime")
    except DiagvibError:
        return 0.0
    return ended if isinstance(ended, float) else 0.0


def _changed(path: Path) -> float | None:
    """When a file was last changed; of a folder, Snakemake's mark in it. None if it is absent."""
    path = path / _MARK if path.is_dir() else path
    return path.stat().st_mtime if path.exists() else None


def record_of(kind: str, path: str) -> Path:
    """The record of an output, `metadata` or `incomplete`."""
    name = base64.urlsafe_b64encode(path.encode()).decode()
    *folders, last = (name[at : at + _LONGEST_NAME] for at in range(0, len(name), _LONGEST_NAME))
    return RECORDS.joinpath(kind, *(f"@{folder}" for folder in folders), last)


def all_records() -> Iterator[tuple[Path, Path]]:
    """Every record in `metadata`, sorted, with the output that it is of."""
    for record in sorted((RECORDS / "metadata").rglob("*")):
        if record.is_file() and (output := recorded_path(record)):
            yield record, output


def recorded_path(record: Path) -> Path | None:
    """The output that a record is of; None if the name is not that of a record."""
    parts = record.relative_to(RECORDS / "metadata").parts
    try:
        return Path(base64.urlsafe_b64decode("".join(p.removeprefix("@") for p in parts)).decode())
    except (binascii.Error, UnicodeDecodeError):
        return None
