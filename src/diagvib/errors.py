"""The one exception that a user is meant to read."""

import difflib
from collections.abc import Iterable


class DiagvibError(Exception):
    """A mistake that the user can mend. Its text is the whole message: what was wrong, where, what would be right.

    The command line prints it on one line, without a traceback, and exits with 1.
    """


class Diverged(DiagvibError):
    """A training whose loss is no longer a number."""


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> DiagvibError:
    """The error for a name that does not exist, with the nearest names that do."""
    known = [str(k) for k in known]
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return DiagvibError(f"{where + ': ' if where else ''}unknown {kind} '{name}'; {hint}")
