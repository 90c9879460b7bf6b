"""The command line: one command for each stage, and others such as `plan` and `compare`."""

import gc
import signal
import sys
from typing import Annotated

import typer

# Imported to register their commands.
import diagvib.cli.new_commands
import diagvib.cli.share_commands
import diagvib.cli.stage_commands
import diagvib.cli.try_commands  # noqa: F401
from diagvib.cli.application import app
from diagvib.cli.look_commands import version
from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import FULL
from diagvib.foundation.plug_ins import exits_refused
from diagvib.stages import option

# The exit code after Ctrl-C or SIGTERM.
_INTERRUPTED = 130


def _print_version(requested: bool) -> None:
    if requested:
        version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, option("Print the version.", "--version", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run a command. A user's mistake ends with one line on standard error and exit code 1; SIGTERM
    ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A class may have a name that the terminal's encoding lacks.
    sys.stdout.reconfigure(errors="backslashreplace")
    gc.set_threshold(
        100_000, 50, 100
    )  # by default, garbage collection takes a fifth of torch's import time
    try:
        with exits_refused():
            app()
    except DiagvibError as error:
        print(f"error: {one_line(error, 3000)}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # a file or folder that cannot be used as needed
        if error.strerror is None:
            raise
        remedy = "; free some space, then run the same command again" * (error.errno in FULL)
        print(f"error: {error.filename or 'the output'}: {error.strerror}{remedy}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as ending:
        # Typer makes an exit of the one that it gets.
        if isinstance(ending, SystemExit) and ending.code != _INTERRUPTED:
            raise
        print("interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(_INTERRUPTED)
