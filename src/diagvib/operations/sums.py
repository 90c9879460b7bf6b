"""SHA256SUMS: the ledger of a root that DVC does not track. One line per file, as `sha256sum
--check` reads it."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, write_text

SUMS = "SHA256SUMS"
# Names of temporary files, and Snakemake's mark in folders that it made.
_PASSING = ("data/checkpoints/", "data/tuning/")
MARK = ".snakemake_timestamp"


def finished_files(root: Path) -> list[str]:
    """Every file under the root's data/ and results/ that is not temporary, relative to the root,
    sorted."""
    paths = (
        path.relative_to(root).as_posix()
        for folder in ("data", "results")
        for path in (root / folder).rglob("*")
        if path.is_file() and path.name != MARK and path.suffix != ".tmp"
    )
    return sorted(path for path in paths if not path.startswith(_PASSING))


def digests(root: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of files, by their names relative to the root."""
    names = list(names)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(lambda name: file_sha256(root / name), names), strict=True))


def read_sums(root: Path) -> dict[str, str]:
    """The recorded digests by name; empty without such a file. DiagvibError, with the line, for a
    malformed one."""
    path, noted = root / SUMS, {}
    if not path.exists():
        return noted
    for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise DiagvibError(
                f"{path}: line {number}: not a sha256, two spaces and a name; delete the file and "
                f"run `diagvib record --root {root}` to write it again"
            )
        noted[name] = digest
    return noted


def write_sums(root: Path, noted: dict[str, str]) -> None:
    write_text(root / SUMS, "".join(f"{noted[name]}  {name}\n" for name in sorted(noted)))
