"""The photos in a user's folder: listed, checked and hashed without copying them, and checked for
changes later.

`fetch` writes the list, `prepare` reads the photos in it and no others.
"""

import hashlib
import os
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import read_json, read_table, write_json, write_table

LISTING = "files.parquet"
_PLACE = "folder.json"
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")
_SCHEMA = pa.schema(
    [("place", pa.string()), ("path", pa.string()), ("bytes", pa.int64()), ("sha256", pa.string())]
)


def state(folder: Path | None) -> str:
    """A digest of the names, sizes and times of all files in a folder; of an empty list if there is
    no folder.

    No file is read. Hidden files do not count.
    """
    digest = hashlib.sha256()
    for path, status in sorted(_files(folder)) if folder and Path(folder).is_dir() else ():
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape")
        )
    return digest.hexdigest()


def list_photos(
    folder: Path, places: Sequence[str], extensions: Sequence[str] = EXTENSIONS
) -> pa.Table:
    """The photos in any of some subfolders of a folder, sorted by path.

    places: subfolders, such as `cars/urban`. Columns place, path (relative to the folder), bytes,
    sha256. Unusable files are left out, with a line on standard error that names the file and says
    why: empty or damaged ones, ones that are not images or not named like images, ones in another
    folder. Hidden files (`.DS_Store`) are ignored. DiagvibError if there is no such folder, or no
    photo in one of the places.
    """
    from diagvib.scenes.photos.decoding import in_threads

    folder = Path(folder)
    if not folder.is_dir():
        raise DiagvibError(
            f"{folder}: no such folder; it should hold the photos, in {_some(places)}"
        )
    named, found = [], []
    for path in sorted(path for path, _ in _files(folder)):
        if why := _misplaced(path, places, extensions):
            leave_out(folder / path, why)
        else:
            named.append(path)
    for path, facts in zip(
        named, in_threads(lambda path: _facts(folder / path), named), strict=True
    ):
        if isinstance(facts, str):
            leave_out(folder / path, facts)
        else:
            found.append({"place": path.rpartition("/")[0], "path": path, **facts})
    check_places(folder, places, {one["place"] for one in found}, extensions)
    return pa.Table.from_pylist(found, _SCHEMA)


def check_places(
    folder: Path,
    places: Sequence[str],
    found: Container[str],
    extensions: Sequence[str] = EXTENSIONS,
) -> None:
    """DiagvibError, naming the first, if places have no photo. found: those that have one."""
    empty = [place for place in places if place not in found]
    if empty:
        raise DiagvibError(
            f"{folder / empty[0]}: no photo that can be used ({', '.join(extensions)})"
            + (f", nor in {len(empty) - 1} more of the folders" if empty[1:] else "")
        )


def write_listing(
    raw: Path, photos: pa.Table, folder: Path, subfolders: Sequence[str] = ("",)
) -> None:
    """Write what `list_photos` found in a folder to the folder `raw`; an identical list is left
    unchanged.

    The location of the photos and the number of files left out are stored next to the list, so that
    moving the photos, or a file among them, does not change the list. The number is printed.
    subfolders: those whose files count.
    """
    if (
        not (raw / LISTING).exists()
        or read_table(raw / LISTING).replace_schema_metadata(None) != photos
    ):
        write_table(raw / LISTING, photos, {})
    every = sum(len(list(_files(folder / part))) for part in subfolders)
    missing = every - len(photos)
    left_out = f"{missing:,} of {every:,} files left out" if missing else ""
    write_json(
        raw / _PLACE,
        {"folder": str(Path(folder).absolute()), "left out": left_out},
    )
    if left_out:
        print(f"{folder}: {left_out}", file=sys.stderr)


def read_listing(raw: Path) -> tuple[pa.Table, Path]:
    """The photos listed in the folder `raw`, and the folder that their paths are relative to.

    DiagvibError if nothing is listed there.
    """
    for name in (LISTING, _PLACE):
        if not (raw / name).exists():
            raise DiagvibError(f"{raw / name}: no such file; run `diagvib fetch` first")
    table, place = (
        read_table(raw / LISTING).replace_schema_metadata(None),
        read_json(raw / _PLACE).get("folder"),
    )
    if table.schema != _SCHEMA or not isinstance(place, str):
        raise DiagvibError(
            f"{raw / LISTING}: not a list of photos, or without its {_PLACE}; run `diagvib fetch` again"
        )
    return table, Path(place)


def listed_sources(raw: Path) -> str:
    """What a catalogue says of its sources: `official`, and how many files were left out."""
    left_out = read_json(raw / _PLACE).get("left out")
    return f"official ({left_out})" if left_out else "official"


def read_listed(path: Path, sha256: str) -> bytes:
    """The bytes of a listed photo. DiagvibError, naming it, if it is missing or has changed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DiagvibError(
            f"{path}: {error.strerror}, though the photo is listed; run `diagvib fetch` again"
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DiagvibError(
            f"{path}: changed since the photos were listed; run `diagvib fetch` again"
        )
    return data


def leave_out(path: Path, why: str) -> None:
    """Report on standard error that a file is left out, and why."""
    print(f"{path}: left out, {why}", file=sys.stderr, flush=True)


def _files(folder: Path | str, within: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Path, relative to the folder, and status of every file in it that is not hidden. DiagvibError
    for a link to itself or to a folder above, or a folder that must not be read."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    yield from _files(entry.path, f"{within}{entry.name}/")
                elif entry.is_file() or entry.is_symlink():
                    yield f"{within}{entry.name}", entry.stat(follow_symlinks=entry.is_file())
    except OSError as error:
        raise DiagvibError(
            f"{one_line(error.filename, 200)}: {error.strerror}; remove it from the photos"
        ) from None


def _misplaced(path: str, places: Sequence[str], extensions: Sequence[str]) -> str | None:
    """Why a file cannot be a photo, judging by its name; None if it can."""
    place, _, name = path.rpartition("/")
    if place not in places:
        return f"because it is in none of the folders {_some(places)}"
    if not name.lower().endswith(tuple(extensions)):
        return f"because its name is not that of a photo ({', '.join(extensions)})"
    return None if name.isprintable() else "because its name cannot be printed"


def _facts(path: Path) -> dict | str:
    """Size and hash of a photo, or what is wrong with it."""
    from diagvib.scenes.photos.decoding import check_photo

    try:
        data = path.read_bytes()
        if data:
            check_photo(data, path)
    except DiagvibError as error:
        return str(error).removeprefix(f"{path}: ")
    except OSError as error:
        return str(error.strerror)
    return (
        {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if data
        else "the file is empty"
    )


def _some(places: Sequence[str]) -> str:
    return ", ".join([*places[:6], *(["..."] if len(places) > 6 else [])])
