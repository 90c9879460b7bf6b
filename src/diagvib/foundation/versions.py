"""Cache what is read from a file until the file changes."""

from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TypeVar

Content = TypeVar("Content")


def file_version(path: Path) -> tuple[Path, int, int]:
    """Cache key of a file: absolute path, modification time, size; zeros for the last two if there
    is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # a name may be impossible
        return path.absolute(), 0, 0
    return path.absolute(), status.st_mtime_ns, status.st_size


def once_per_version(read: Callable[[Path], Content]) -> Callable[[Path], Content]:
    """A function of a file, called once per version of the file and way to name it."""
    results = cache(lambda path, version: read(path))

    @wraps(read)
    def read_once(path: str | Path) -> Content:
        return results(Path(path), file_version(Path(path)))

    return read_once
