"""Work in separate processes: order, errors, killed processes, a killed parent."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.parallel import in_processes
from diagvib.foundation.progress import counting


def square_and_process(number: int) -> tuple[int, int]:
    if number < 0:
        raise DiagvibError(f"{number} is negative")
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2, os.getpid()


@pytest.mark.parametrize(
    ("maximum", "worth", "elsewhere"), [(1, 1, False), (2, 5, False), (2, 4, True)]
)
def test_results_keep_the_order_and_few_things_stay_in_this_process(maximum, worth, elsewhere):
    result = list(in_processes(square_and_process, range(9), maximum, worth))
    assert [square for square, _ in result] == [number**2 for number in range(9)]
    processes = {process for _, process in result}
    assert (os.getpid() not in processes) if elsewhere else processes == {os.getpid()}


def test_an_error_is_raised_here_as_it_was():
    with refused("^-1 is negative$"):
        list(in_processes(square_and_process, [1, -1, 2], 2, 1))


def test_a_killed_process_is_named():
    with refused("one of 2 processes was killed, perhaps for lack of memory"):
        list(in_processes(square_and_process, [1, 13, 2], 2, 1))


def test_no_process_outlives_a_killed_parent(tmp_path):
    (tmp_path / "work.py").write_text("""
import os, time

def wait(number):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(0.2)
""")
    (tmp_path / "script.py").write_text("""
import work
from diagvib.foundation.parallel import in_processes

if __name__ == "__main__":
    list(in_processes(work.wait, range(1000), 2, 1))
""")
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        stdout=subprocess.PIPE,
        text=True,
    )
    children = {int(parent.stdout.readline())}
    while len(children) < 2:
        children.add(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while any(map(runs, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, children))


def runs(process: int) -> bool:
    """Whether a process is alive; a dead one may still be listed until its parent asks how it
    ended."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_work_is_counted_in_its_units(capsys):
    with counting("render", 10, "images") as advance:
        for n in (4, 6):
            advance(n)
    assert capsys.readouterr().err.startswith("render: 10 images in ")
