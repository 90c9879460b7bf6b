"""The same function on many items at once, in separate processes: for work that threads cannot share."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from diagvib.foundation.errors import DiagvibError

T = TypeVar("T")
R = TypeVar("R")


def in_processes(function: Callable[[T], R], things: Sequence[T], most: int, worth: int) -> Iterator[R]:
    """function(thing) for each of the things, in order.

    most: processes. worth: the fewest things for which starting a process pays off; with fewer than twice that many,
    this process does all the work. function, things and results are pickled. The first error ends the call; no process
    outlives this one. DiagvibError if a process was killed.
    """
    processes = min(most, len(things) // worth)
    if processes < 2:
        yield from map(function, things)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _end_with_parent) as pool:
        try:
            yield from pool.map(function, things, chunksize=max(1, worth // 8))
        except BrokenProcessPool:
            raise DiagvibError(f"one of {processes} processes was killed, perhaps for lack of memory; use fewer "
                               "threads") from None


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
