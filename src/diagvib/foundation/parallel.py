"""The same function on many items at once, in separate processes: for work that threads cannot
share. No process outlives the one that has started it."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, TypeVar

from diagvib.foundation.errors import DeviceFailed, DiagvibError
from diagvib.foundation.messages import say
from diagvib.foundation.plug_ins import exits_refused, out_of_memory, reason
from diagvib.foundation.progress import TERMINAL

T = TypeVar("T")
R = TypeVar("R")
_PROCESS = os.getpid()


def in_processes(
    function: Callable[[T], R], things: Sequence[T], most_processes: int, min_per_process: int
) -> Iterator[R]:
    """function(thing) for each of the things, in order.

    most_processes: at once. min_per_process: with fewer than twice as many things, this process
    does all the work. function, things and results are pickled. The first error ends the call; no
    process outlives this one. DiagvibError if a process was killed.
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


class _Child(NamedTuple):
    """The process of one item. limit: how many there may have been at once."""

    name: str
    process: multiprocessing.Process
    limit: int


def side_by_side(function: Callable[[T], None], things: Mapping[str, T], processes: int) -> None:
    """function(thing) for each of the named things, each in a new process, so many at once.

    A failure is printed and leaves the others; when all have ended, the first is raised. What does
    not fit on the GPU is tried again with half as many at once; DeviceFailed if it does not fit
    alone. function and things are pickled.
    """
    waiting, children = deque(things), {}
    errors: dict[str, DiagvibError] = {}
    context, limit = multiprocessing.get_context("spawn"), processes
    with suppress(OSError, AttributeError):  # no terminal
        os.environ.setdefault(TERMINAL, os.ttyname(sys.stderr.fileno()))
    try:
        while waiting or children:
            while waiting and len(children) < limit:
                name, (receiver, sender) = waiting.popleft(), context.Pipe(duplex=False)
                process = context.Process(target=_call, args=(function, things[name], sender))
                process.start()
                sender.close()
                children[receiver] = _Child(name, process, limit)
            for receiver in wait([*children]):
                child = children.pop(receiver)
                error, memory = _outcome(receiver, child.process)
                if memory and child.limit > 1:
                    limit = min(limit, child.limit // 2)
                    waiting.append(child.name)
                    say(f"{child.name}: no room on the GPU; again with {limit} at once")
                elif error:
                    errors[child.name] = (DeviceFailed if memory else DiagvibError)(error)
                    say(f"{child.name}: failed: {error}")
    finally:
        for child in children.values():
            child.process.terminate()
            child.process.join()
    _raise_first(errors)


def in_turn(function: Callable[[T], None], things: Mapping[str, T]) -> None:
    """function(thing) for each of the named things, one after the other in this process. A failure,
    which is a DiagvibError, leaves the others, as in `side_by_side`; a reason that all have is said
    once."""
    errors: dict[str, DiagvibError] = {}
    for name, thing in things.items():
        try:
            function(thing)
        except DiagvibError as error:
            kind = DeviceFailed if out_of_memory(error.__context__) else DiagvibError
            errors[name] = kind(str(error))
        free_memory()
    if len(errors) < len(things):
        for name, error in errors.items():
            say(f"{name}: failed: {error}")
    elif len({*map(str, errors.values())}) == 1:
        raise next(iter(errors.values()))
    _raise_first(errors)


def free_memory() -> None:
    """Of what is no longer used: a trainer and its images refer to each other, so only the collector
    of cycles frees them, which a command calls seldom."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _raise_first(errors: Mapping[str, DiagvibError]) -> None:
    """The first error, naming all that failed, if there are any. errors: by name."""
    if errors:
        name, *names = errors
        failures = f"; {', '.join(names)} failed, too" * bool(names)
        raise type(errors[name])(f"{errors[name]}{failures}")


def _outcome(receiver: Connection, process: multiprocessing.Process) -> tuple[str, bool]:
    """How a process has ended: an error's message, and whether the GPU had no room for it."""
    try:
        result = receiver.recv()
    except EOFError:
        result = None
    process.join()
    if result:
        return result
    if process.exitcode is not None and process.exitcode < 0:
        name = signal.Signals(-process.exitcode).name
        return f"its process was ended by {name}, perhaps for lack of memory", False
    return "its process failed, see the message above", False


def _call(function: Callable[[T], None], thing: T, sender: Connection) -> None:
    """In a process of its own: send what `_outcome` returns. Lines, no bars, go to the log."""
    _end_with_parent()
    sys.stderr.isatty = lambda: False
    result = "", False
    try:
        with exits_refused():
            function(thing)
    except DiagvibError as error:
        result = str(error), out_of_memory(error.__context__)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        result = reason(error), True
    except OSError as error:
        if error.strerror is None:
            raise
        result = f"{error.filename or 'the output'}: {error.strerror}", False
    sender.send(result)


def in_a_process(function: Callable[..., R], *arguments: object) -> R:
    """What a function returns in a new process, which leaves nothing here."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _end_with_parent) as pool:
        return pool.submit(function, *arguments).result()


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
