"""Snakemake's records of a root's files, in one file that DVC keeps with them.

Snakemake has the records of all roots in one folder. For the root `.`, DVC tracks them in place.
For any other root, they are zipped into that root, and unpacked after `dvc pull`.
"""

import zipfile
from pathlib import Path
from urllib.parse import quote

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, whole_file, write_text
from diagvib.operations.records import RECORDS, all_records, recorded_path

PROVENANCE = "provenance.zip"
_METADATA = RECORDS / "metadata"


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
            content = {_METADATA / name: file.read(name) for name in file.namelist()}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise DiagvibError(
            f"{path}: damaged ({error}); `rm {path}`, then `dvc checkout {path}` restores it"
        ) from None
    if not all(
        record.is_relative_to(_METADATA)
        and ".." not in record.parts
        and _is_of(recorded_path(record), root)
        for record in content
    ):
        raise DiagvibError(
            f"{path}: holds records of files outside {root}; write root as it was when they were made "
            "(relative to the current folder), or, if you have moved it, delete this file"
        )
    for record in _records(root):
        record.unlink()
    for record, text in content.items():
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_bytes(text)
    write_text(_noted(root), digest)


def _records(root: str) -> list[Path]:
    return [record for record, output in all_records() if _is_of(output, root)]


def _is_of(output: Path | None, root: str) -> bool:
    folders = [Path(root) / folder for folder in ("data", "results")]
    return (
        output is not None
        and any(output.is_relative_to(folder) for folder in folders)
        and not output.is_relative_to(Path(root) / "results/tuning")
    )


def _noted(root: str) -> Path:
    return RECORDS / "diagvib" / quote(root, safe="")
