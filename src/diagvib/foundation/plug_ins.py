"""A user's own functions and classes, named `package.module:name` in a configuration."""

import dis
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from diagvib.foundation.errors import DeviceFailed, DiagvibError, one_line


def reason(error: BaseException) -> str:
    """An exception from code that is not ours, on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception of torch says, in any way, that the device ran out of memory, or is for
    one process alone and has one."""
    return isinstance(error, RuntimeError) and any(
        text in str(error)
        for text in (
            "out of memory",
            "ALLOC_FAILED",
            "CUBLAS_STATUS_NOT_INITIALIZED",
            "unable to find an engine",
            "cudaErrorMemoryAllocation",
            "busy or unavailable",
        )
    )


@contextmanager
def small_memory_refused(name: str) -> Iterator[None]:
    """DeviceFailed, beginning with the name of a job, if the GPU's memory is too small for the
    block; DiagvibError if the machine's is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            raise DeviceFailed(
                f"{name}: the GPU's memory is too small; let fewer programs use the GPU at once, or "
                "set device: cpu"
            ) from None
        # The second is torch's.
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            raise DiagvibError(
                f"{name}: this machine's memory is too small ({one_line(error, 160)}); run fewer "
                "jobs or programs at once"
            ) from None
        raise


@contextmanager
def exits_refused() -> Iterator[None]:
    """DiagvibError, naming class and function, for code of a user's own that ends the process, as
    by sys.exit(0) or a KeyboardInterrupt that it raises: what it was called for would be missing
    without a word."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        error = _interrupt(error) or error
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        pressed = isinstance(error, KeyboardInterrupt) and not _is_raised(error.__traceback__)
        if pressed or package_of(frames[-1]) in _ENDING:
            raise
        foreign = _foreign(error)
        frame = foreign[-1][0] if foreign else frames[-1]
        code = frame.f_code
        raise DiagvibError(
            f"{frame.f_globals.get('__name__')}:{code.co_qualname} ({code.co_filename}, line "
            f"{frame.f_lineno}) ends the process by {type(error).__name__}, so nothing is made; raise an "
            "exception instead, or leave it out"
        ) from None


def _interrupt(error: BaseException | None) -> BaseException | None:
    """The KeyboardInterrupt behind an exception: Typer makes an exit of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _is_raised(trace: TracebackType) -> bool:
    """Whether an exception is from a statement `raise`; Ctrl-C interrupts any other instruction."""
    while trace.tb_next:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


# Packages that end a command when it is done, or when nobody reads what it prints; those and others
# that are not the user's.
_ENDING = {"click", "typer", "rich", "diagvib"}
_PROVIDED = {*_ENDING, *sys.stdlib_module_names} - {"__main__"}


def _foreign(error: BaseException) -> list[tuple[FrameType, int]]:
    """Where an exception passed through code that is not of Python or ours, with the lines; the
    innermost comes last."""
    trace = traceback.walk_tb(error.__traceback__)
    return [(frame, line) for frame, line in trace if package_of(frame) not in _PROVIDED]


def package_of(frame: FrameType) -> str:
    """The topmost package whose code a frame runs."""
    return frame.f_globals.get("__name__", "").partition(".")[0]


def packaged_files(package: str, pattern: str) -> list[Path] | None:
    """The files of an installed package whose names fit a pattern, without importing it; None if it
    is not installed."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    files = [path for folder in folders for path in sorted(Path(folder).rglob(pattern))]
    return files if spec else None


def imported(reference: str, kind: str):
    """The function or class named by `package.module:name`, looked up as Python does and in the
    current folder.

    kind: scene, model or method, for messages. DiagvibError if it is not there, or its module
    raises an exception, naming the line.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    with failures_named(
        f"{kind}: {reference} cannot be imported",
        "name it package.module:name, from an installed package or from the current folder",
    ):
        return pkgutil.resolve_name(reference)


@contextmanager
def failures_named(failure: str, remedy: str) -> Iterator[None]:
    """DiagvibError for an exception of a user's code, which may be any. remedy: if none of the
    user's lines ran; otherwise, the line is named."""
    try:
        yield
    except (DiagvibError, MemoryError):
        raise
    except Exception as error:
        line = _line_of_user(error)
        raise DiagvibError(
            f"{failure} ({reason(error)}); {f'correct {line}' if line else remedy}"
        ) from None


def _line_of_user(error: Exception) -> str:
    """Where an exception comes from, `FILE, line N`: the innermost line that is not of Python or of
    an installed package, if there is one, or else of such a package; empty if neither ran."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    lines = [(frame.f_code.co_filename, line) for frame, line in _foreign(error)]
    of_user = [entry for entry in lines if "site-packages" not in Path(entry[0]).parts]
    return "{}, line {}".format(*(of_user or lines)[-1]) if lines else ""
