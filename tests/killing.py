"""Kill -9 at every change of a file."""

import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir"}


def killed_at_each_change(action: Callable[[], object], step: int = 1) -> Iterator[int]:
    """Call a function in a process that is killed before its first change of files, then in one that
    is killed before its second, and so on; ends when one was not killed. Yields after each kill.
    step: 7 for every seventh change."""
    for number in itertools.count(1, step):
        if not (child := os.fork()):
            _call(action, number)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, -signal.SIGKILL), "failed, or hung"
        if code == 0:
            return
        yield number


def _call(action: Callable[[], object], number: int) -> None:
    """In a child: call the function, and end this process, before its change of this number or
    afterwards."""
    changes = itertools.count(1)

    def kill(event: str, arguments: tuple) -> None:
        opened = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if (opened or event in _CHANGES) and next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        signal.alarm(120)
        sys.dont_write_bytecode = True
        sys.addaudithook(kill)
        action()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
