"""The scenes, by name. To add one, add a line here; a study names a user's own scene as
`package.module:Class`."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.own_scenes import CheckedScene
from diagvib.foundation.plug_ins import imported, reason
from diagvib.scenes.scene import RESERVED, Scene

SCENES = {
    "digits": "diagvib.scenes.digits.scene:Digits",
    "cars": "diagvib.scenes.cars.scene:Cars",
    "dogs": "diagvib.scenes.dogs.scene:Dogs",
}

_METHODS = sorted(name for name in vars(Scene) if not name.startswith("_"))
_INTERFACE = {*Scene.__annotations__, *_METHODS}


@cache
def load_scene(name: str) -> Scene:
    """A scene by name. DiagvibError for an unknown one, and for a user's own that cannot be
    imported or lacks a part of the interface."""
    if name not in SCENES and ":" not in name:
        raise unknown_name("scene", name, [*SCENES, "package.module:Class"])
    try:
        scene = imported(SCENES.get(name, name), "scene")()
    except DiagvibError:
        raise
    except Exception as error:  # the class is not ours
        raise DiagvibError(
            f"scene: {name} cannot be created ({reason(error)}); its class is called without "
            "arguments"
        ) from None
    _check(scene, name)
    return scene if name in SCENES else CheckedScene(scene, f"scene: {name}")


def scene_entries(name: str) -> list[str | Path]:
    """The module of a scene, and the files that the scene `depends` on, for `foundation.code`."""
    module = SCENES.get(name, name).partition(":")[0]
    return [module, *map(Path, getattr(load_scene(name), "depends", ()))]


def source_state(name: str, mirror: str | None) -> str:
    """A digest of the source folder of a scene that uses the user's own files; empty for other
    scenes."""
    state = getattr(load_scene(name), "state", None)
    return state(mirror and Path(mirror)) if state else ""


def _check(scene: Scene, name: str) -> None:
    lacking = sorted(part for part in _INTERFACE if not hasattr(scene, part))
    if lacking:
        raise DiagvibError(
            f"scene: {name} lacks {', '.join(lacking)}; the interface is diagvib.scenes.scene.Scene"
        )
    absent = next(
        (file for file in getattr(scene, "depends", ()) if not Path(file).is_file()), None
    )
    if absent is not None:
        raise DiagvibError(f"scene: {name}: depends: {absent}: no such file")
    odd = next((part for part in _METHODS if not callable(getattr(scene, part))), None)
    if odd:
        raise DiagvibError(
            f"scene: {name}: {odd} is not a method; the interface is diagvib.scenes.scene.Scene"
        )
    for part, kind in (
        ("factors", Mapping),
        ("columns", pa.Schema),
        ("published_samples", Sequence),
    ):
        if not isinstance(getattr(scene, part), kind):
            raise DiagvibError(
                f"scene: {name}: {part} must be a {kind.__name__}, not {getattr(scene, part)!r}"
            )
    reserved = next((column for column in scene.columns.names if column in RESERVED), None)
    if reserved:
        raise DiagvibError(
            f"scene: {name}: a column cannot be named {reserved!r}, which every recipe has"
        )
    for factor, classes in scene.factors.items():
        if not isinstance(classes, list | tuple) or not all(
            isinstance(one, str) for one in (factor, *classes)
        ):
            raise DiagvibError(
                f"scene: {name}: the classes of {factor} must be a tuple of names, not {classes!r}"
            )
        if not factor.isidentifier() or factor in RESERVED or factor in scene.columns.names:
            raise DiagvibError(
                f"scene: {name}: a factor cannot be named {factor!r}; choose a word other than "
                f"{', '.join((*RESERVED, *scene.columns.names))}"
            )
        if len(classes) < 2 or len(set(classes)) < len(classes):
            raise DiagvibError(
                f"scene: {name}: {factor} needs at least two classes, each named once, not {classes}"
            )
    if name not in SCENES:
        for number, sample in enumerate(scene.published_samples):
            _check_sample(sample, scene.factors, f"scene: {name}: published_samples[{number}]")


def _check_sample(sample: object, factors: Mapping, where: str) -> None:
    if not isinstance(sample, Mapping):
        raise DiagvibError(
            f"{where} must be a mapping of each factor to its classes, and of added_cue, not {sample!r}"
        )
    for factor, known in factors.items():
        chosen = sample.get(factor)
        if (
            not isinstance(chosen, list | tuple)
            or any(one not in known for one in chosen)
            or len(chosen) not in (min(3, len(known)), len(known))
            or len(set(chosen)) < len(chosen)
        ):
            raise DiagvibError(
                f"{where}: {factor} must be three of its classes, or all of them, not {chosen!r}"
            )
    added = sample.get("added_cue")
    if (
        not isinstance(added, list | tuple)
        or len(added) != 3
        or any(
            type(cue) is not int or cue not in range(3) or cue == target
            for target, cue in enumerate(added)
        )
    ):
        raise DiagvibError(
            f"{where}: added_cue must be a cue class from 0 to 2 for each of three target classes, and "
            f"another one than the target's, not {added!r}"
        )
