"""Snakemake's private records in .snakemake; nothing else reads or writes them.

As of Snakemake 9.27, the oldest that the Snakefile takes: metadata/ holds a JSON file for each
output, with `endtime`, the output's time of change when its job ended; incomplete/ marks outputs
whose job is under way or was stopped. A file is named by its output's path in URL-safe base64,
divided into folders `@...` where that is long.

The records of all roots are in one folder. DVC tracks those of the root `.` in place. Those of any
other root are packed into one file there, which DVC keeps, and unpacked after `dvc pull`.
"""

import base64
import zipfile
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, file_sha256, read_json, whole_file, write_text

RECORDS = Path(".snakemake")
PROVENANCE = "provenance.zip"
_METADATA = RECORDS / "metadata"
# Snakemake's mark in folders that it made.
_MARK = ".snakemake_timestamp"
# Snakemake divides longer names.
_LONGEST_NAME = 254


def made_here(path: Path, gone: Container[str], since: float = 0.0) -> bool:
    """Whether the workflow made this file after `since`, or was making it when it was stopped, or
    will make it again, as its digest file is among the files that are gone.

    If the path is itself a record of Snakemake's: whether it is of a file that was made then.
    """
    if path.is_relative_to(_METADATA):
        return _as_recorded(_output_of(path), since)
    for folder in path.parents:
        digests = folder / DIGESTS_FILE
        if str(digests) in gone:
            return True
        if digests.is_file() and digests != path:
            noted = {}
            with suppress(DiagvibError):  # damaged, too
                noted = read_json(digests)
            same = noted.get(str(path.relative_to(folder))) == file_sha256(path)
            return same and made_here(digests, gone, since)
    return any(
        record_of("incomplete", str(output)).exists() or _as_recorded(output, since)
        for output in (path, *path.parents)
    )


def _as_recorded(output: Path, since: float) -> bool:
    """Whether a file or folder was last changed when its job ended, after `since`."""
    with suppress(DiagvibError, FileNotFoundError):
        changed = (output / _MARK if output.is_dir() else output).stat().st_mtime
        return since < changed == read_json(record_of("metadata", str(output))).get("endtime")
    return False


def record_of(kind: str, path: str) -> Path:
    """The record of an output, `metadata` or `incomplete`."""
    name = base64.urlsafe_b64encode(path.encode()).decode()
    *folders, last = (name[at : at + _LONGEST_NAME] for at in range(0, len(name), _LONGEST_NAME))
    return RECORDS.joinpath(kind, *(f"@{folder}" for folder in folders), last)


def _output_of(record: Path) -> Path:
    """The output that a record is of. ValueError if the name is not that of a record."""
    parts = record.relative_to(_METADATA).parts
    return Path(base64.urlsafe_b64decode("".join(p.removeprefix("@") for p in parts)).decode())


def pack(root: str) -> None:
    """Write the records of a root's data/ and results/ to its file; the same records give the same
    bytes."""
    with whole_file(Path(root) / PROVENANCE) as temporary, zipfile.ZipFile(temporary, "w") as file:
        for record in _records(root):
            name = record.relative_to(_METADATA).as_posix()
            file.writestr(zipfile.ZipInfo(name), record.read_bytes(), zipfile.ZIP_DEFLATED)
    write_text(_noted(root), file_sha256(Path(root) / PROVENANCE))


def unpack(root: str) -> None:
    """Replace Snakemake's records of a root by those in its file, if this is not the one that was
    last packed or unpacked here: it came with a pull or a checkout. DiagvibError for a damaged
    file."""
    path = Path(root) / PROVENANCE
    if not path.exists():
        return
    digest = file_sha256(path)
    if _noted(root).exists() and _noted(root).read_text() == digest:
        return
    try:
        with zipfile.ZipFile(path) as file:
            # Those of another root are there where this one was moved or copied.
            own = [name for name in file.namelist() if _is_of(_output_of(_METADATA / name), root)]
            if damaged := file.testzip():
                raise ValueError(damaged)
            for record in _records(root):
                record.unlink()
            file.extractall(_METADATA, own)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise DiagvibError(
            f"{path}: damaged ({error}); `rm {path}`, then `dvc checkout {path}` restores it"
        ) from None
    write_text(_noted(root), digest)


def _records(root: str) -> Iterator[Path]:
    """The records of a root's data/ and results/, sorted."""
    for record in sorted(_METADATA.rglob("*")):
        if record.is_file() and _is_of(_output_of(record), root):
            yield record


def _is_of(output: Path, root: str) -> bool:
    data, results = Path(root) / "data", Path(root) / "results"
    return output.is_relative_to(data) or (
        output.is_relative_to(results) and not output.is_relative_to(results / "tuning")
    )


def _noted(root: str) -> Path:
    """Holds the sha256 of the file that was last packed or unpacked here."""
    return RECORDS / "diagvib" / quote(root, safe="")
