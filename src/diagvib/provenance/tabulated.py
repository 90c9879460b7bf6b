"""The configuration that tables were made with, as their versions.json says, which is written last."""

from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.settings.resolve import command_for

_VERSIONS = "versions.json"


def forget(tables: Path) -> None:
    """Before tables are made: if that is stopped, none of them may be taken for finished."""
    (tables / _VERSIONS).unlink(missing_ok=True)


def made_with(tables: Path) -> dict:
    """The configuration of tables, with the settings that tuning chose. DiagvibError if there are
    none, or not all."""
    path = tables / _VERSIONS
    if not path.exists():
        raise DiagvibError(
            f"{path}: no such file, so the tables are not complete; run {_again(tables)}"
        )
    return read_json(path)["settings"]


def check_made_with(tables: Path, settings: dict) -> None:
    """DiagvibError unless tables were made with this configuration."""
    recorded = made_with(tables)
    changed = [key for key in {**settings, **recorded} if settings.get(key) != recorded.get(key)]
    if changed:
        raise DiagvibError(
            f"{tables}: made with other {', '.join(changed)} than the configuration has; make the tables "
            f"again, by {_again(tables)}"
        )


def _again(tables: Path) -> str:
    return command_for(tables.parents[1], "diagvib tabulate")
