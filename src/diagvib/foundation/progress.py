"""Progress and tables for people: a bar on a terminal and one final line in a log; tables."""

import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

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

from diagvib.foundation.messages import say

# The variable with the terminal of the workflow that started this process, if it has one.
TERMINAL = "DIAGVIB_TERMINAL"


def print_rows(
    title: str, heads: Sequence[str], rows: Iterable[Iterable], words: Container[int] = ()
) -> None:
    """Print a table; in a file or pipe it keeps its width instead of being cut at 80 columns. words:
    the numbers of the columns that are not numbers."""
    table, console = Table(title=title, title_justify="left"), Console()
    for column, head in enumerate(heads):
        table.add_column(head, justify="left" if column in words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=console.width if console.is_terminal else 140).print(table)


def print_facts(title: str, facts: Mapping[str, str]) -> None:
    """Print a table without heads: names and what is said of them."""
    table = Table(title=title, show_header=False, title_justify="left")
    for row in facts.items():
        table.add_row(*row)
    Console().print(table)


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


@contextmanager
def counting(name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Give a function that counts n more as done, and show in a `progress_bar` how much is done, of
    how much, how fast, and the remaining time. Work that succeeds ends with a line that says how much
    was done and how fast."""
    start = time.perf_counter()
    with progress_bar(MofNCompleteColumn(), TextColumn("{task.fields[speed]}")) as bar:
        task = bar.add_task(name, total=total, speed="")

        def advance(n: int) -> None:
            bar.advance(task, n)
            bar.update(task, speed=speed())

        def speed() -> str:
            seconds = max(time.perf_counter() - start, 1e-9)
            return f"{bar.tasks[0].completed / seconds:,.0f} {unit}/s"

        yield advance
    count, seconds = bar.tasks[0].completed, time.perf_counter() - start
    say(f"{name}: {count:,} {unit} in {seconds:.1f} s, {speed()}")
