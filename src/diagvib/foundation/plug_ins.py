"""A user's own functions and classes, named `package.module:name` in a configuration."""

import importlib.util
import os
import pkgutil
import sys
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, one_line


def reason(error: BaseException) -> str:
    """An exception from code that is not ours, on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception of torch says, in any way, that the device ran out of memory."""
    return isinstance(error, RuntimeError) and any(
        text in str(error)
        for text in ("out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation")
    )


def packaged_files(package: str, pattern: str) -> list[Path] | None:
    """The files of an installed package whose names fit a pattern, without importing it; None if it
    is not installed."""
    found = importlib.util.find_spec(package)
    folders = (found and found.submodule_search_locations) or []
    files = [path for folder in folders for path in sorted(Path(folder).rglob(pattern))]
    return files if found else None


def imported(where: str, what: str):
    """The function or class named by `package.module:name`, looked up as Python does and in the
    current folder.

    what: scene, model or method, for messages. DiagvibError if it is not there.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return pkgutil.resolve_name(where)
    except (ImportError, AttributeError, ValueError) as error:
        raise DiagvibError(
            f"{what}: {where} cannot be imported ({reason(error)}); name it package.module:name, "
            "from an installed package or from the current folder"
        ) from None
