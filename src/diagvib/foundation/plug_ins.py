"""A user's own functions and classes, named `package.module:name` in a configuration."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from diagvib.foundation.errors import DiagvibError, one_line

# Packages whose lines say nothing about a mistake in a user's code.
_OTHERS = {"diagvib", "torch", "torchvision", "timm", "numpy", *sys.stdlib_module_names}


def reason(error: BaseException, called: object = None) -> str:
    """An exception from code that is not ours, on one line; with the user's line that raised it or,
    if there is none, the first of the function that was `called`."""
    code = getattr(called, "__code__", None)
    places = [
        (code, code and code.co_firstlineno),
        *(
            (frame.f_code, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_globals.get("__name__", "").partition(".")[0] not in _OTHERS
        ),
    ]
    code, line = places[-1]
    place = code and f" ({os.path.relpath(code.co_filename)}:{line}, in {code.co_qualname})"
    return f"{type(error).__name__}: {one_line(error)}{place or ''}"


@contextmanager
def own_code(where: str, called: object = None) -> Iterator[None]:
    """What code that may be a user's raises in here, also SystemExit, becomes one line that begins
    with `where`, a DiagvibError; the traceback goes to standard error. called: the function."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, DiagvibError) or out_of_memory(error):
            raise
        traceback.print_exception(error)
        raise DiagvibError(f"{where}: {reason(error, called)}") from error


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception of torch says, in any way, that the device ran out of memory."""
    return isinstance(error, RuntimeError) and any(
        text in str(error)
        for text in ("out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation")
    )


def look_here() -> None:
    """Let Python find modules in the current folder, too, after all others."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def imported(where: str, what: str):
    """The function or class named by `package.module:name`, looked up as Python does and in the
    current folder.

    what: scene, model or method, for messages. DiagvibError if it cannot be imported, or is not
    callable.
    """
    module_name, _, name = where.partition(":")
    look_here()
    try:
        found = getattr(importlib.import_module(module_name), name)
    except DiagvibError:
        raise
    except (Exception, SystemExit) as error:  # importing runs the module, which is not ours
        raise DiagvibError(
            f"{what}: {where} cannot be imported ({reason(error)}); name it package.module:name, "
            "from an installed package or from the current folder"
        ) from None
    if not callable(found):
        raise DiagvibError(f"{what}: {where} is not a function or class")
    return found
