"""Each baseline's settings, from `config/baselines.yaml`. Free of torch, so that planning stays quick."""

from functools import cache
from pathlib import Path

from diagvib.foundation.errors import unknown_name
from diagvib.foundation.files import definition_path, read_yaml
from diagvib.foundation.schemas import validate


@cache
def _entries(path: Path) -> dict[str, dict]:
    return validate(read_yaml(path), "baselines", str(path))


def baseline_names() -> list[str]:
    """Every baseline that `config/baselines.yaml` defines."""
    return list(_entries(definition_path("baselines.yaml")))


def load_settings(name: str, path: str | Path | None = None) -> dict:
    """The settings of one baseline. path None: the repository's `config/baselines.yaml`.

    DiagvibError if the name is unknown, or any entry of the file has an unknown, missing or wrong key.
    """
    path = Path(path) if path else definition_path("baselines.yaml")
    entries = _entries(path)
    if name not in entries:
        raise unknown_name("baseline", name, entries, str(path))
    return dict(entries[name])
