"""The configuration that tables were made with, as their versions.json says, which is written last."""

from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.settings.resolve import command_for

VERSIONS = "versions.json"


def made_with(tables: Path) -> dict:
    """The configuration of tables, with the settings that tuning chose. DiagvibError if there are
    none, or not all."""
    path, again = tables / VERSIONS, command_for(tables.parents[1], "diagvib tabulate")
    if not path.exists():
        raise DiagvibError(f"{path}: no such file, so the tables are not complete; run {again}")
    settings = read_json(path, f"run {again}").get("settings")
    if not isinstance(settings, dict):
        raise DiagvibError(f"{path}: lacks the key settings; run {again}")
    return settings


def check_made_with(tables: Path, settings: dict) -> None:
    """DiagvibError unless tables were made with this configuration."""
    recorded = made_with(tables)
    changed = [key for key in {**settings, **recorded} if settings.get(key) != recorded.get(key)]
    if changed:
        again = command_for(tables.parents[1], "diagvib tabulate")
        raise DiagvibError(
            f"{tables}: made with other {', '.join(changed)} than the configuration has; make the tables "
            f"again, by {again}"
        )
