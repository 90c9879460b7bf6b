"""Jobs that fail, for processes of their own: without torch, which takes seconds to load in each."""

import os
import signal
import time
from pathlib import Path

from diagvib.foundation.errors import DiagvibError


def refuse(attempts: Path) -> None:
    """Find no room in the first four attempts of all, which wait for each other, and in the
    fifth and sixth, which do so, too."""
    number = next(number for number in range(100) if new_file(attempts / str(number)))
    beside = 4 if number < 4 else 6
    if number >= beside:
        return
    while not (attempts / str(beside - 1)).exists():
        time.sleep(0.02)
    raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")


def refuse_in_our_words(attempts: Path) -> None:
    try:
        refuse(attempts)
    except RuntimeError:
        raise DiagvibError("too little memory") from None


def full_gpu(_: object = None) -> None:
    raise RuntimeError("CUDA error: out of memory")


def new_file(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def stop(number: int) -> None:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        Path("/no/folder").read_text()
