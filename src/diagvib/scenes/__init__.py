"""The scenes, by name. To add one, add a line here, or a photo set to config/scenes; a study names
a user's own as `package.module:Class`, or its photo set as `path/to/photos.yaml`. A scene with
other textures than the published ones is called SCENE+TEXTURES, as by `with_textures`."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path
from diagvib.foundation.plug_ins import failures_named, imported
from diagvib.foundation.validation import InvalidField, repeated, validated
from diagvib.scenes.scene import RESERVED, Factors, Scene, check_joined

SCENES = {
    "digits": "diagvib.scenes.digits.scene:Digits",
    "cars": "diagvib.scenes.cars.scene:Cars",
}
# A name, as those above: no scene's code depends on that of another.
_PHOTOS = "diagvib.scenes.photos.scene:photo_scene"
_TEXTURED, _TEXTURES = "digits", "diagvib.scenes.digits.texture_sets:textured_digits"
PUBLISHED_TEXTURES = ("published",)
# Where the definitions of photo sets were; recorded roots name them.
_FORMER_PATH = re.compile(r"config/(\w+)/\1\.yaml")


def known_scenes() -> list[str]:
    """The names of the scenes of the program."""
    return [*SCENES, *sorted(path.stem for path in definition_path("scenes").glob("*.yaml"))]


def with_textures(scene: str, textures: Sequence[str]) -> str:
    """The name of a scene when a configuration has these `textures`; others have none."""
    if scene != _TEXTURED or tuple(textures) == PUBLISHED_TEXTURES:
        return scene
    return "+".join([scene, *textures])


def has_textures(scene: str) -> bool:
    """Whether a scene has textures other than the published ones."""
    return scene.startswith(f"{_TEXTURED}+")


def check_textures(textures: Sequence[str], scenes: Sequence[str]) -> None:
    """DiagvibError unless the textures change some scene's images."""
    if tuple(textures) != PUBLISHED_TEXTURES and not any(map(has_textures, scenes)):
        raise DiagvibError(
            f"textures: the images of {', '.join(scenes)} have none; leave this key out"
        )


def load_scene(name: str) -> Scene:
    """A scene by name. DiagvibError for an unknown one, and for a user's own that cannot be
    imported, or whose factors or columns cannot be used."""
    if has_textures(name):
        return imported(_TEXTURES, "scene")(name, name.split("+")[1:])
    is_file = name.endswith((".yaml", ".yml"))
    if name in SCENES or (":" in name and not is_file):
        return scene_of_class(name)
    if (former := _FORMER_PATH.fullmatch(name)) and not Path(name).is_file():
        name = f"config/photos/{former[1]}/scene.yaml"
    path = Path(name) if is_file else definition_path(f"scenes/{name}.yaml")
    if not is_file and not path.is_file():
        raise unknown_name(
            "scene", name, [*known_scenes(), "package.module:Class", "path/to/photos.yaml"]
        )
    return imported(_PHOTOS, "scene")(path)


@cache
def scene_of_class(name: str) -> Scene:
    kind = imported(SCENES.get(name, name), "scene")
    if not (isinstance(kind, type) and issubclass(kind, Scene)):
        raise DiagvibError(f"scene: {name} is not a subclass of diagvib.scenes.scene.Scene")
    with failures_named(f"scene: {name} cannot be made", "it must take no arguments"):
        scene = kind()
    if name not in SCENES:
        for key, needed in (("columns", pa.Schema), ("realized_by", Mapping)):
            if not isinstance(value := getattr(scene, key), needed):
                raise DiagvibError(
                    f"scene: {name}: {key}: must be a {needed.__name__}, not {type(value).__name__}"
                )
        validated(Factors, getattr(scene, "factors", None), f"scene: {name}: factors")
        try:
            check_joined(scene.factors)
        except InvalidField as error:
            raise DiagvibError(f"scene: {name}: {error.path}: {error}") from None
        reserved = {*RESERVED, *scene.factors} & {*scene.columns.names}
        if reserved:
            raise DiagvibError(
                f"scene: {name}: columns: {min(reserved)} is the name of another column; choose one "
                f"other than {', '.join((*RESERVED, *scene.factors))}"
            )
        realized = [column for columns in scene.realized_by.values() for column in columns]
        realized_factors = {*scene.realized_by} in (set(), {*scene.factors})
        if not realized_factors or {*realized} - {*scene.columns.names} or repeated(realized):
            raise DiagvibError(
                f"scene: {name}: realized_by: every factor needs columns of its own, of `columns`"
            )
    return scene
