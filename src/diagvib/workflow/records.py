"""Snakemake's private records in .snakemake; nothing else reads or writes them.

As of Snakemake 9.27, the oldest that the Snakefile takes: metadata/ holds a JSON file for each
output, with `endtime`, the output's time of change when its job ended; incomplete/ marks outputs
whose job is under way or was stopped. A file is named by its output's path in URL-safe base64,
divided into folders `@...` where that is long.

The records of all roots are in one folder. Those of a root are packed into one file there, which DVC
keeps, and unpacked after `dvc pull`: with them, a clone has nothing to run again.
"""

import base64
import json
import os
import re
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, file_sha256, read_json, write_json, write_text
from diagvib.images import FEATURES_FILE
from diagvib.settings.resolve import PROVENANCE

RECORDS = Path(".snakemake")
_METADATA = RECORDS / "metadata"
# Snakemake's mark in folders that it made.
_MARK = ".snakemake_timestamp"
_DIGEST_FILES = DIGESTS_FILE, FEATURES_FILE
# Snakemake divides longer names.
_LONGEST_NAME = 254


def snakemake_environment() -> dict[str, str]:
    """That of this process. Where the home directory cannot be written to, with another folder for
    caches, without which Snakemake does not start."""
    cache = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"), "snakemake")
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if os.access(cache, os.W_OK):
        return {**os.environ}
    return {**os.environ, "XDG_CACHE_HOME": str((RECORDS / "cache").absolute())}


def made_here(path: Path, gone: Container[str], since: float = 0.0) -> bool:
    """Whether the workflow made this file after `since`, or was making it when it was stopped, or
    will make it again, as its digest file is among the files that are gone."""
    if path.name == PROVENANCE:
        return is_noted(path)
    for digests in (folder / name for folder in path.parents for name in _DIGEST_FILES):
        if str(digests) in gone:
            return True
        if digests.is_file() and digests != path:  # written after the files that it names
            older = path.stat().st_mtime <= digests.stat().st_mtime
            return older and made_here(digests, gone, since)
    return any(
        record_of("incomplete", str(output)).exists() or _as_recorded(output, path, since)
        for output in (path, *path.parents)
    )


def _as_recorded(output: Path, path: Path, since: float) -> bool:
    """Whether an output was last changed when its job ended, after `since`, and the file at `path`,
    which is the output or in its folder, not later."""
    with suppress(DiagvibError, FileNotFoundError):
        changed = (output / _MARK if output.is_dir() else output).stat().st_mtime
        ended = read_json(record_of("metadata", str(output))).get("endtime")
        return since < changed == ended and path.stat().st_mtime <= changed
    return False


def record_of(kind: str, path: str) -> Path:
    """The record of an output, `metadata` or `incomplete`."""
    name = base64.urlsafe_b64encode(path.encode()).decode()
    *folders, file_name = (
        name[start : start + _LONGEST_NAME] for start in range(0, len(name), _LONGEST_NAME)
    )
    return RECORDS.joinpath(kind, *(f"@{folder}" for folder in folders), file_name)


def pack(root: str) -> None:
    """Write the records of a root's data/ and results/ to its file."""
    path = Path(root) / PROVENANCE
    write_json(path, dict(sorted(_records_of(root))))
    write_text(_note(path), file_sha256(path))


def unpack(root: str) -> None:
    """Replace Snakemake's records of a root by those in its file, if this is not the one that was
    last packed or unpacked here: it came with a pull or a checkout. DiagvibError for a damaged
    file."""
    path = Path(root) / PROVENANCE
    if not path.exists() or is_noted(path):
        return
    for output, content in read_json(path).items():
        if _is_of(output, root):  # a root that was moved has records under its old name
            _write(output, content)
    write_text(_note(path), file_sha256(path))


def copy_records(root: str, copy: str) -> None:
    """Give the copy of a complete root the root's records, without commands, which may name folders
    of this machine, and with the checksums of all inputs."""
    inside = re.compile(rf"(?<![\w./-]){re.escape(root)}/")
    for output, content in [*_records_of(root)]:
        content |= {"shellcmd": None, "input_checksums": _checksums(content)}
        text = json.dumps(content, ensure_ascii=False)
        _write(inside.sub(f"{copy}/", output), json.loads(inside.sub(f"{copy}/", text)))


def _checksums(record: dict) -> dict[str, str]:
    """Also of inputs that were out of reach when Snakemake wrote the record of a job. Without them,
    a clone would make the job again, since it draws its inputs later than the output was made."""
    checksums = record.get("input_checksums") or {}
    unchecked = {*record.get("input", ())} - {*checksums}
    files = sorted(path for path in unchecked if Path(path).is_file())
    return checksums | {path: f"sha256:{file_sha256(path)}" for path in files}


def _records_of(root: str) -> Iterator[tuple[str, dict]]:
    """The outputs in a root's data/ and results/ with their records."""
    for output, record in snakemake_records():
        if _is_of(output, root):
            yield output, read_json(record)


def snakemake_records(folder: Path = Path()) -> Iterator[tuple[str, Path]]:
    """The outputs of a folder's workflows, each with the file of Snakemake's record."""
    metadata = folder / _METADATA
    for record in (path for path in metadata.rglob("*") if path.is_file()):
        name = "".join(part.removeprefix("@") for part in record.relative_to(metadata).parts)
        yield base64.urlsafe_b64decode(name).decode(), record


def _write(output: str, content: dict) -> None:
    record = record_of("metadata", output)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(content))


def _is_of(output: str, root: str) -> bool:
    return any(Path(output).is_relative_to(Path(root) / top) for top in ("data", "results"))


def is_noted(path: Path) -> bool:
    """Whether this file of a root was the last to be packed or unpacked here."""
    note = _note(path)
    return note.exists() and note.read_text() == file_sha256(path)


def _note(path: Path) -> Path:
    """Holds the sha256 of the file that was last packed or unpacked here."""
    return RECORDS / "diagvib" / quote(str(path), safe="")
