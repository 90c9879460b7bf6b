"""The one exception that is meant for users."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class DiagvibError(Exception):
    """A mistake that the user can correct. Its text is the whole message: what was wrong, where,
    what would be right.

    The command line prints it on one line, without a traceback, and exits with 1.
    """


class DeviceFailed(DiagvibError):
    """A device that other jobs, too, would fail on: a GPU without room, or one that cannot be used;
    a machine that cannot be reached, or has other code."""


class Diverged(DiagvibError):
    """A training run whose loss is no longer a number."""


@contextmanager
def within(location: str) -> Iterator[None]:
    """A DiagvibError raised inside begins with `location`, such as a file and a key."""
    try:
        yield
    except DiagvibError as error:
        raise type(error)(f"{location}: {error}") from None


# The number of known names that a message shows of a long list.
_MOST_NAMES, _FEW_NAMES = 20, 4


def one_line(error: object, length: int = 300) -> str:
    """The text of an exception on one line, or its kind if it has none, shortened in the middle if
    longer than `length` characters."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError):
        text = f"no key {text}"
    elif isinstance(error, BaseException):
        text = text or type(error).__name__
    return text if len(text) <= length else f"{text[: length - 105]} ... {text[-100:]}"


def some_names(names: Sequence[str], most: int = 5) -> str:
    """`wren, gull and 3 more`: the first names, and how many more there are."""
    remainder = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + remainder


def unknown_name(kind: str, name: str, names: Iterable[str], location: str = "") -> DiagvibError:
    """The error for a name that does not exist, with the most similar names that do."""
    names = [str(k) for k in names]
    name = one_line(name, 120)
    folded = {k.casefold(): k for k in names}
    near = [folded[k] for k in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    hint = (
        f"did you mean {' or '.join(near)}?"
        + (f" known: {', '.join(names)}" if len(near) < len(names) <= _FEW_NAMES else "")
        if near
        else f"known: {some_names(names, _MOST_NAMES)}"
        if names
        else "none is known here"
    )
    return DiagvibError(f"{location + ': ' if location else ''}unknown {kind} '{name}'; {hint}")
