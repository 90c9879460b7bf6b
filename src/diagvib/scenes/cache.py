"""Prepared sources for use without a workflow, kept in the user's cache."""

from pathlib import Path
from tempfile import TemporaryFile

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import alone, cache_folder, text_sha256
from diagvib.foundation.imports import code_of
from diagvib.scenes.prepared import is_prepared
from diagvib.scenes.scene import Scene

# Digests of the scene code already imported by this process.
loaded_code: dict[str, str] = {}
# Letters of a folder's name, of up to four bytes each; disks have at most 255.
_LONGEST = 60


def cached(scene: Scene, sources: str, mirror: Path | None) -> Path:
    """The folder of prepared data that a scene renders from, made if missing: one for each version
    of the scene's code and of the user's photos."""
    module, mirror = type(scene).__module__, mirror and mirror.absolute()
    code = code_of([module]).digest
    if loaded_code.setdefault(module, code) != code:
        raise DiagvibError(
            f"scene {scene.name}: its code, or diagvib's, has changed since it was first used here; "
            "restart Python to use the new code"
        )
    photos = scene.state(mirror) if scene.raw_files(sources) else ""
    made_from = repr([scene.name, photos, code_of(scene.entries).digest])
    folder = cache_folder() / sources / text_sha256(made_from)
    # Of a scene with the paths of textures or photos, without folders, which `..` would leave.
    name = scene.name.replace("/", "_")[-_LONGEST:]
    raw, prepared = (folder / "data" / kind / name for kind in ("raw", "prepared"))
    if not is_prepared(prepared):
        _check_writable(folder)
        with alone(prepared):
            if not is_prepared(prepared):
                scene.fetched(raw, sources, mirror)
                scene.make(raw, prepared, sources)
    return prepared


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise DiagvibError(
            f"{folder}: cannot be written ({error.strerror}), but prepared sources are kept there; set "
            "DIAGVIB_CACHE to a folder that you can write to"
        ) from None
