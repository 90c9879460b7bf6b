"""Each baseline's settings, from `config/baselines.yaml` and further files. Free of torch: planning stays quick."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.foundation.schemas import validate


@cache
def _read(path: Path, folder: Path) -> dict[str, dict]:
    return validate(read_yaml(path), "baselines", str(path))


def _entries(further: Sequence[str | Path]) -> dict[str, dict]:
    found: dict[str, dict] = {}
    for path in (definition_path("baselines.yaml"), *map(Path, further)):
        for name, entry in _read(path, Path.cwd()).items():
            if name in found:
                raise DiagvibError(f"{path}: {name}: there is another baseline of this name; choose another name")
            found[name] = entry
    return found


def baseline_names(further: Sequence[str | Path] = ()) -> list[str]:
    """Every baseline that `config/baselines.yaml` and further files, relative to the current folder, define."""
    return list(_entries(further))


def load_settings(name: str, further: Sequence[str | Path] = ()) -> dict:
    """The settings of one baseline, from `config/baselines.yaml` or a further file.

    DiagvibError if the name is unknown or occurs twice, or any entry has an unknown, missing or wrong key.
    """
    entries = _entries(further)
    if name not in entries:
        raise unknown_name("baseline", name, entries)
    return dict(entries[name])
