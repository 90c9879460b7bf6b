"""The photos in a user's folder: listed, checked and hashed without copying them, and checked for
changes later.

`fetch` writes the list; what follows uses the photos in it and no others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from unicodedata import normalize

import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, one_line, some_names
from diagvib.foundation.files import read_json, read_table, write_json, write_table
from diagvib.foundation.messages import say
from diagvib.scenes.photos.decoding import Glance, check_photo, in_threads, photo_bytes

LISTING = "files.parquet"
# Where the photos are, apart from the list, so that moving them does not change it.
FOLDER = "folder.json"
# In a folder of photos from a text-to-image model: what made them.
GENERATED = ".generation.json"
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")
SHOWN = 10  # files, or values of a column, that are named
_NUMBER = re.compile(r"\d[\d,.]*")


def state(folder: Path | None) -> str:
    """A digest of the names, sizes and times of all files in a folder, without reading them; empty
    if there is no such folder. Hidden files do not count."""
    if folder is None or not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path, status in sorted(_files(folder)):
        digest.update(os.fsencode(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0"))
    return digest.hexdigest()


def files_in(folder: Path) -> list[str]:
    """The paths, relative to a folder, of all files in it that are not hidden, sorted; those whose
    names cannot be printed are left out, with a line on standard error. DiagvibError if there is no
    such folder."""
    if not folder.is_dir():
        raise DiagvibError(f"{folder}: no such folder; it should hold the photos")
    paths = sorted(path for path, _ in _files(folder))
    for path in paths:
        if not path.isprintable():
            leave_out(folder / path, "because its name cannot be printed")
    return [path for path in paths if path.isprintable()]


def photo_paths(folder: Path) -> list[str]:
    """The paths, as of `files_in`, of files named like photos."""
    paths = sorted(path for path, _ in _files(folder) if path.lower().endswith(EXTENSIONS))
    return [path for path in paths if path.isprintable()]


def usable(folder: Path, paths: Sequence[str]) -> dict[str, tuple[str, Glance]]:
    """Of these files, those that are photos, each with its sha256 and `check_photo`, in their order.

    The others are left out, with a line on standard error that says why: empty or damaged ones,
    ones that are not images or not named like images, devices. Ten are named for each reason. Links
    to files outside the folder are used, and named.
    """
    real = folder.resolve()

    def look(path: str) -> tuple[str, Glance] | str:
        if not path.lower().endswith(EXTENSIONS):
            return f"because its name is not that of a photo ({', '.join(EXTENSIONS)})"
        try:
            data = photo_bytes(folder / path)
            if not data:
                return "the file is empty"
            return hashlib.sha256(data).hexdigest(), check_photo(folder / path, data)
        except DiagvibError as error:
            return str(error).removeprefix(f"{folder / path}: ")
        except FileNotFoundError:
            forms = [folder / normalize(form, path) for form in ("NFC", "NFD")]
            hint = "; one with that name has its accents in another Unicode form (NFC or NFD)"
            return "No such file" + hint * any(map(Path.exists, forms))
        except OSError as error:
            return str(error.strerror)

    looks = dict(zip(paths, in_threads(look, paths), strict=True))
    leave_out_many(
        folder, {path: reason for path, reason in looks.items() if isinstance(reason, str)}
    )
    photos = {path: look for path, look in looks.items() if not isinstance(look, str)}
    name_some(
        f"{folder}: photos that are links to files outside of it",
        [path for path in photos if not (folder / path).resolve().is_relative_to(real)],
    )
    return photos


def without_twins(folder: Path, hashes: dict[str, str]) -> dict[str, str]:
    """Path -> sha256 without photos that are there twice, which could be in two splits; the first
    stays."""
    paths: dict[str, str] = {}
    for path, sha256 in hashes.items():
        if paths.setdefault(sha256, path) != path:
            leave_out(folder / path, f"because it is the same photo as {paths[sha256]}")
    return {path: sha256 for sha256, path in paths.items()}


def write_listing(raw: Path, photos: pa.Table, folder: Path, candidates: int) -> None:
    """Write the list of the photos found in a folder to the folder `raw`; an identical list is left
    unchanged. candidates: the number of files; how many are left out is printed and noted."""
    path = raw / LISTING
    if not path.exists() or read_table(path) != photos:
        write_table(path, photos, {})
    missing = candidates - len(photos)
    left_out = f"{missing:,} of {candidates:,} files left out" if missing else ""
    write_json(raw / FOLDER, {"folder": str(folder), "left out": left_out})
    if left_out:
        say(f"{folder}: {left_out}")


def read_listing(raw: Path) -> tuple[pa.Table, Path, str]:
    """The photos listed in the folder `raw`, the folder that their paths are relative to, and what
    a catalogue says of its sources: `official`, and how many files were left out. DiagvibError if
    nothing is listed there."""
    for name in (LISTING, FOLDER):
        if not (raw / name).exists():
            raise DiagvibError(f"{raw / name}: no such file; run `diagvib fetch` first")
    description = read_json(raw / FOLDER)
    sources = f"official ({description['left out']})" if description["left out"] else "official"
    return (
        read_table(raw / LISTING).replace_schema_metadata(None),
        Path(description["folder"]),
        sources,
    )


def read_listed(path: Path, sha256: str) -> bytes:
    """The bytes of a listed photo. DiagvibError, naming it, if it is missing or has changed."""
    try:
        data = photo_bytes(path)
    except OSError as error:
        raise DiagvibError(
            f"{path}: {error.strerror}, though the photo is listed; run `diagvib fetch` again"
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DiagvibError(
            f"{path}: changed since the photos were listed; run `diagvib fetch` again"
        )
    return data


def leave_out_many(folder: Path, reasons: dict[str, str]) -> None:
    """Report on standard error that files are left out: of those with the same reason, but for its
    numbers, ten, and how many more there are. reasons: path -> why."""
    paths_by_reason = defaultdict(list)
    for path, reason in reasons.items():
        paths_by_reason[_NUMBER.sub("", reason)].append(path)
    for paths in paths_by_reason.values():
        for path in paths[:SHOWN]:
            leave_out(folder / path, reasons[path])
        if remainder := len(paths[SHOWN:]):
            leave_out(folder, f"{remainder:,} more files: {reasons[paths[SHOWN]]}")


def name_some(problem: str, paths: Sequence[str]) -> None:
    """Print ten of these paths, if there are any, and how many more there are."""
    if paths:
        say(f"{problem}: {some_names(paths, SHOWN)}")


def leave_out(path: Path, reason: str) -> None:
    """Report on standard error that a file is left out, and why."""
    name = str(path) if str(path).isprintable() else ascii(str(path))[1:-1]
    say(f"{name}: left out, {reason}")


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
                else:
                    yield f"{within}{entry.name}", entry.stat(follow_symlinks=entry.is_file())
    except OSError as error:
        raise DiagvibError(
            f"{one_line(error.filename, 200)}: {error.strerror}; remove it from the photos"
        ) from None
