"""What `rules/imagenet_w.smk` needs besides its rules: the code of a stage, the state of
folders."""

import hashlib
import os
from collections.abc import Mapping
from functools import cache

from diagvib.foundation.code import Code, code_of, imported_in
from diagvib.imagenet_w.last_layer_methods import METHODS
from diagvib.methods.registry import METHODS as ALL_METHODS
from diagvib.models.registry import MODELS


@cache
def stage_code(stage: str) -> Code:
    """The code that a stage's jobs depend on."""
    return code_of([*_named(stage), *imported_in("diagvib.imagenet_w.stages", stage)])


def _named(stage: str) -> list[str]:
    """The modules that a stage uses by name, not by import: networks, and training methods."""
    wheres = {
        "evaluate": [*MODELS.values()],
        "stand_ins": [MODELS["own"], ALL_METHODS["erm"]],
        "last_layer": [
            MODELS["linear"],
            *(
                ALL_METHODS.get(entry.settings["name"], entry.settings["name"])
                for entry in METHODS.values()
            ),
        ],
        "features": [
            *MODELS.values(),
            *(ALL_METHODS[name] for name in ("mixup", "cutmix", "cutout", "augmix")),
        ],
    }
    return sorted({where.partition(":")[0] for where in wheres.get(stage, [])})


def photo_state(photos: Mapping[str, str | None]) -> str:
    """A digest of the class folders' names and modification times, to notice at once that photos
    were added or removed; a missing folder is part of it."""
    return hashlib.sha256(
        repr([(name, _entries(folder)) for name, folder in sorted(photos.items())]).encode()
    ).hexdigest()


def _entries(folder: str | None) -> list[tuple[str, int]] | None:
    try:
        with os.scandir(folder) as entries:
            return (
                sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries)
                if folder
                else None
            )
    except OSError:
        return None
