"""Find the photos that a table names, however it names them: without their folder or extension, by
their place on another machine, with backslashes, or with accents stored in another way."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from os.path import normpath
from pathlib import PurePosixPath

from diagvib.scenes.photos.labels import tidy
from diagvib.scenes.photos.listing import EXTENSIONS

_ABSOLUTE = re.compile(r"/|~|[A-Za-z]:/")


def locate(
    names: Sequence[str], photos: Collection[str], folders: Sequence[str] = ("",)
) -> dict[str, str]:
    """Name -> path of the photo that it means, for those that mean exactly one.

    photos: all paths. A name is looked for in the first of the folders, then among all photos and in
    the other folders; an absolute one without the first folders of its path, as many as fit most
    names; then as the end of a path, with or without its extension, regardless of case.
    """
    photos, located = {*photos}, {}
    plain = {name: name.strip(" \t'\"").replace("\\", "/") for name in dict.fromkeys(names)}
    relative = _without_root(plain, photos)
    for name, path in relative.items():
        places = [f"{folder}/{path}" for folder in (folders[0], "", *folders[1:])]
        paths = [f"{folders[0]}/{name}".lstrip("/"), *(normpath(p.lstrip("/")) for p in places)]
        if photo := next((path for path in paths if path in photos), None):
            located[name] = photo
    if unresolved := [name for name in relative if name not in located]:
        endings = _by_ending(photos)
        for name in unresolved:
            paths = _ending_with(relative[name], endings)
            if len(paths) == 1:
                located[name] = paths[0]
    return located


def _without_root(plain: dict[str, str], photos: Collection[str]) -> dict[str, str]:
    """Name -> its plain form, relative to the folder of the photos if it was absolute and that
    folder can be told."""
    parts = {name: path.split("/") for name, path in plain.items() if _ABSOLUTE.match(path)}
    hits = Counter(
        depth
        for path in parts.values()
        for depth in range(1, len(path))
        if "/".join(path[depth:]) in photos
    )
    if hits:
        depth = max(sorted(hits), key=hits.get)
    else:  # what all have in common may be the folder of the photos
        shared = set.intersection(*map(set, map(_parents, parts.values()))) if parts else ()
        depth = max((len(parents) for parents in shared), default=0)
    return plain | {name: "/".join(path[depth:]) for name, path in parts.items()}


def _parents(parts: list[str]) -> list[tuple[str, ...]]:
    return [tuple(parts[:depth]) for depth in range(1, len(parts))]


def _by_ending(photos: Collection[str]) -> dict[str, list[str]]:
    """Name of a file without its extension -> the paths that end with it."""
    endings = defaultdict(list)
    for path in sorted(photos):
        endings[_stem(_folded(path)).rpartition("/")[2]].append(path)
    return endings


def _ending_with(name: str, endings: dict[str, list[str]]) -> list[str]:
    """The photos whose paths end with a name."""
    name = _folded(str(PurePosixPath(name)))
    bare = _stem(name)
    paths = endings.get(bare.rpartition("/")[2], [])
    if bare != name:  # with its extension
        paths = [path for path in paths if _folded(path).endswith(name)]
    return [path for path in paths if f"/{_stem(_folded(path))}".endswith(f"/{bare}")]


def _folded(path: str) -> str:
    return tidy(path).casefold()


def _stem(path: str) -> str:
    return path.removesuffix(next(filter(path.endswith, EXTENSIONS), ""))
