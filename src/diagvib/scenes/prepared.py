"""The manifest of a prepared folder, and checks against it."""

from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import DIGESTS_FILE, read_json

DESCRIPTION = "sources.json"


def read_description(folder: Path) -> dict:
    """The content of a folder's DESCRIPTION. DiagvibError if nothing is prepared."""
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise DiagvibError(
            f"{path}: no such file, so nothing is prepared here; run `diagvib prepare` first"
        )
    described = read_json(path)
    if not {"sources", "comparable", "digest"} <= described.keys():
        raise mismatch(folder, "sources")
    return described


def is_prepared(folder: Path) -> bool:
    """Whether all prepared files still exist; a cache cleaner may have removed some."""
    try:
        return all((folder / name).exists() for name in read_json(folder / DIGESTS_FILE))
    except DiagvibError:
        return False


def mismatch(folder: Path, what: str, described_in: str = DESCRIPTION) -> DiagvibError:
    """The error for prepared files, called `what`, that differ from those described."""
    return DiagvibError(
        f"{folder}: the prepared {what} are not those that {described_in} describes; delete the folder "
        "and run `diagvib prepare` again"
    )
