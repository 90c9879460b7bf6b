"""Progress and tables for people: a bar on a terminal and one final line in a log; tables."""

import sys
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

# The variable with the terminal of the workflow that started this process, if it has one.
TERMINAL = "DIAGVIB_TERMINAL"


def print_wide(shown: Table) -> None:
    """Print a table; in a file or pipe it keeps its width instead of being cut at 80 columns."""
    console = Console()
    Console(width=console.width if console.is_terminal else 140).print(shown)


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on stderr, if that is a terminal; it vanishes when it stops."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


class Counter:
    """A `progress_bar`: how much is done, of how much, how fast, and the remaining time.

    Work that succeeds ends with a line that says how much was done and how fast.
    """

    def __init__(self, name: str, total: int, unit: str):
        self._name, self._unit, self._done = name, unit, 0
        self._bar = progress_bar(MofNCompleteColumn(), TextColumn("{task.fields[speed]}"))
        self._task = self._bar.add_task(name, total=total, speed="")

    def __enter__(self) -> "Counter":
        self._start = time.perf_counter()
        self._bar.start()
        return self

    def advance(self, n: int) -> None:
        """Count n more as done."""
        self._done += n
        self._bar.update(self._task, advance=n, speed=self._speed())

    def __exit__(self, error: type | None, *_) -> None:
        self._bar.stop()
        if error is None:
            seconds = time.perf_counter() - self._start
            print(
                f"{self._name}: {self._done:,} {self._unit} in {seconds:.1f} s, {self._speed()}",
                file=sys.stderr,
            )

    def _speed(self) -> str:
        return f"{self._done / max(time.perf_counter() - self._start, 1e-9):,.0f} {self._unit}/s"
