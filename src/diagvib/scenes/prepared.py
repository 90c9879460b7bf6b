"""The manifest of a prepared folder, and checks against it."""

from pathlib import Path

import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, read_json, read_metadata, read_table

DESCRIPTION = "sources.json"


def read_description(folder: Path) -> dict:
    """Read the origin of a folder from its DESCRIPTION: the fields of `scene.Catalogue`.
    DiagvibError if nothing is prepared."""
    path = folder / DESCRIPTION
    if not path.is_file():
        raise DiagvibError(
            f"{path}: no such file, so nothing is prepared here; run `diagvib prepare` first"
        )
    described = read_json(path)
    return {key: described[key] for key in ("sources", "comparable", "digest")}


def read_described(folder: Path, name: str, columns: list[str]) -> tuple[dict, pa.Table]:
    """`read_description`, and a table whose metadata has its digest. DiagvibError if it has
    another, and so belongs to another preparation."""
    described, path = read_description(folder), folder / name
    if read_metadata(path).get("digest") != described["digest"]:
        raise mismatch(folder, name)
    return described, read_table(path, columns)


def is_prepared(folder: Path) -> bool:
    """Whether all prepared files still exist; a cache cleaner may have removed some."""
    try:
        return all((folder / name).exists() for name in read_json(folder / DIGESTS_FILE))
    except DiagvibError:
        return False


def mismatch(folder: Path, kind: str) -> DiagvibError:
    """The error for prepared files, called `what`, that differ from those described."""
    return DiagvibError(
        f"{folder}: the prepared {kind} are not those that {DESCRIPTION} describes; delete the folder "
        "and run `diagvib prepare` again"
    )
