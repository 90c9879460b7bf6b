"""The manifest of a prepared folder, and checks against it."""

from collections.abc import Sequence
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json

DESCRIPTION = "sources.json"


def check_prepared(path: Path) -> None:
    """DiagvibError if a file made by `prepare` is missing."""
    if not path.is_file():
        raise DiagvibError(
            f"{path}: no such file, so nothing is prepared here; run `diagvib prepare` first"
        )


def read_description(folder: Path, keys: Sequence[str]) -> dict:
    """The content of a folder's DESCRIPTION. DiagvibError if nothing is prepared, or if it lacks
    one of the keys."""
    path = Path(folder) / DESCRIPTION
    check_prepared(path)
    described = read_json(path)
    missing = [key for key in keys if key not in described]
    if missing:
        raise DiagvibError(
            f"{path}: lacks the key {missing[0]}; delete {folder} and run `diagvib prepare` again"
        )
    return described


def mismatch(folder: Path, what: str, described_in: str = DESCRIPTION) -> DiagvibError:
    """The error for prepared files, called `what`, that differ from those described."""
    return DiagvibError(
        f"{folder}: the prepared {what} are not those that {described_in} describes; delete the folder "
        "and run `diagvib prepare` again"
    )
