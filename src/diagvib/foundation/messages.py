"""Messages for people, on standard error."""

import sys


def say(*lines: str) -> None:
    """Print lines on standard error at once."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)
