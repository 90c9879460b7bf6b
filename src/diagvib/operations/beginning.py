"""How each workflow begins: what Snakemake must find, and its configuration, read and checked."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_yaml
from diagvib.operations.locks import give_up_dead_locks
from diagvib.operations.unrecorded import make_unrecorded_again
from diagvib.settings.config import typed


def begin(workflow, config: dict, resolve: Callable[[dict, str], dict]) -> dict:
    """The configuration, as `resolve` makes it from values and the name of their file. Whatever is
    wrong with it ends the process with one line."""
    # The `diagvib` next to this Python, whether or not its environment is active.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    if workflow.is_main_process:
        give_up_dead_locks()
    try:
        for file in workflow.configfiles:
            read_yaml(file)  # Snakemake accepts a file with a duplicate key; this does not
        resolved = resolve(typed(dict(config)), str(workflow.configfiles[-1]))
    except DiagvibError as error:
        end(error)
    make_unrecorded_again(resolved)
    return resolved


def end(reason: object) -> NoReturn:
    """End the process with this line alone; Snakemake adds others to any exception."""
    sys.exit(f"error: {reason}")
