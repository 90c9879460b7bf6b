"""A user's own functions and classes, named `package.module:name` in a configuration."""

import importlib
import os
import sys

from diagvib.foundation.errors import DiagvibError, one_line


def reason(error: BaseException) -> str:
    """An exception from code that is not ours, on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


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
    except (Exception, SystemExit) as error:  # importing runs the module, which is not ours
        raise DiagvibError(
            f"{what}: {where} cannot be imported ({reason(error)}); name it package.module:name, "
            "from an installed package or from the current folder"
        ) from None
    if not callable(found):
        raise DiagvibError(f"{what}: {where} is not a function or class")
    return found
