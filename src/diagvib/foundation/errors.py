"""The one exception that is meant for users."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class DiagvibError(Exception):
    """A mistake that the user can correct. Its text is the whole message: what was wrong, where,
    what would be right.

    The command line prints it on one line, without a traceback, and exits with 1.
    """


class Diverged(DiagvibError):
    """A training run whose loss is no longer a number."""


@contextmanager
def within(where: str) -> Iterator[None]:
    """A DiagvibError raised inside begins with `where`, such as a file and a key."""
    try:
        yield
    except DiagvibError as error:
        raise type(error)(f"{where}: {error}") from None


# The number of known names that a message shows of a long list.
_SHOWN, _FEW = 20, 4


def one_line(error: object, length: int = 300) -> str:
    """The text of an exception on one line, shortened in the middle if longer than `length`
    characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= length else f"{text[: length - 105]} ... {text[-100:]}"


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> DiagvibError:
    """The error for a name that does not exist, with the most similar names that do."""
    known = [str(k) for k in known]
    name = one_line(name, 120)
    folded = {k.casefold(): k for k in known}
    near = [folded[k] for k in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    rest = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    hint = (
        f"did you mean {' or '.join(near)}?"
        + (f" known: {', '.join(known)}" if len(near) < len(known) <= _FEW else "")
        if near
        else f"known: {', '.join(known[:_SHOWN])}{rest}"
        if known
        else "none is known here"
    )
    return DiagvibError(f"{where + ': ' if where else ''}unknown {kind} '{name}'; {hint}")
