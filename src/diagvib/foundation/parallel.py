"""The same function on many items at once, in separate processes: for work that threads cannot
share."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from diagvib.foundation.errors import DiagvibError

T = TypeVar("T")
R = TypeVar("R")
_PROCESS = os.getpid()


def in_processes(
    function: Callable[[T], R], things: Sequence[T], most_processes: int, min_per_process: int
) -> Iterator[R]:
    """function(thing) for each of the things, in order.

    most: processes. min_per_process: with fewer than twice as many things, this process does all
    the work. function, things and results are pickled. The first error ends the call; no process
    outlives this one. DiagvibError if a process was killed.
    """
    processes = min(most_processes, len(things) // min_per_process)
    if processes < 2:
        yield from map(function, things)
        return
    # Forks of one process that has loaded the function's module, which takes 1.3 CPU s.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([getattr(function, "func", function).__module__])
    with ProcessPoolExecutor(processes, context, _end_with_parent) as pool:
        try:
            yield from pool.map(function, things, chunksize=max(1, min_per_process // 8))
        except BrokenProcessPool:
            raise DiagvibError(
                f"one of {processes} processes was killed, perhaps for lack of memory; use fewer "
                "threads"
            ) from None


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextmanager
def one_thread_in_forks() -> Iterator[None]:
    """In a fork of the process that has imported this, torch uses one thread. Its thread pool does
    not survive a fork: with more threads, it could wait for ever."""
    import torch

    if os.getpid() == _PROCESS:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
