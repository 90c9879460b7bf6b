"""Functions and classes of a user's own, named `package.module:name` in a configuration."""

import importlib
import os
import sys

from diagvib.foundation.errors import DiagvibError, one_line


def reason(error: BaseException) -> str:
    """An exception of code that is not ours, on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


def imported(where: str, what: str):
    """The function or class that `package.module:name` names, looked for as Python does, and in the current folder.

    what: scene, model or method, for messages. DiagvibError if it cannot be imported, or nothing can be called by it.
    """
    module_name, _, name = where.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (Exception, SystemExit) as error:  # importing runs the module, and that is not ours
        raise DiagvibError(f"{what}: {where} cannot be imported ({reason(error)}); it must read package.module:name, "
                           "from an installed package or from the current folder") from None
    if not callable(found):
        raise DiagvibError(f"{what}: {where} is no function or class")
    return found
