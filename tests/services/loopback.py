"""Shared by the services here: a process that ends when its starter does, and a connection that can
be cut."""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

ADDRESS = "127.0.0.1"
PATH = os.environ["PATH"] + os.pathsep + "/usr/sbin"
_SECONDS = 60
_PIECE = 1 << 14


class ServiceError(Exception):
    """A service did not start; the message contains its output."""


class Service:
    """A script here, in a separate process that lives while its standard input is open; a context
    manager.

    So it ends, and cleans up, even if this process is killed. The first line that it prints says
    how to reach it: a JSON object, whose keys become attributes here.
    """

    def __init__(self, script: str):
        self._command = [sys.executable, script]

    def __enter__(self) -> "Service":
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        line = self._process.stdout.readline()
        if not line:
            said = self._process.communicate()[1].strip() or "it ended without a word"
            raise ServiceError(said.splitlines()[-1])
        vars(self).update(json.loads(line))
        return self

    def __exit__(self, *_) -> None:
        self._process.communicate()


def missing(packages: str, *programs: str) -> str | None:
    """Why a service's programs cannot be started here; None if they can."""
    absent = [program for program in programs if not shutil.which(program, path=PATH)]
    if not absent:
        return None
    return f"no {' and no '.join(absent)} (Debian, Ubuntu: apt install {packages})"


def serve(**facts) -> None:
    """Print how to reach the service that this process runs, then wait until it is no longer
    needed."""
    print(json.dumps(facts), flush=True)
    sys.stdin.buffer.read()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]


def wait_for_port(port: int, alive: Callable[[], bool]) -> bool:
    """Wait until something listens there; returns False if `alive` ends first."""
    until = time.monotonic() + _SECONDS
    while alive() and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), timeout=1):
            return True
        time.sleep(0.02)
    return False


class Line:
    """A relay in front of a service; it can be cut, also after a number of bytes in both directions.
    Then it drops its connections and refuses new ones, like a server that went down."""

    def __init__(self, port: int):
        self.port, self._to = free_port(), port
        self._passed, self._cut_at = 0, float("inf")
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listen()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_) -> None:
        self.cut()

    def cut_after(self, count: int) -> None:
        self._cut_at = self._passed + count

    def cut(self) -> None:
        """Close the listening socket and every connection."""
        with self._lock:
            sockets, self._open = self._open, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def mend(self) -> None:
        """Back to normal, on the same port; earlier connections are gone."""
        self.cut()
        self._cut_at = float("inf")
        self._listen()

    def _listen(self) -> None:
        listening = socket.create_server((ADDRESS, self.port))
        self._open.append(listening)
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection((ADDRESS, self._to))
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    there = listening in self._open
                    if there:
                        self._open += [near, far]
                if not there:
                    near.close()
                    far.close()
                    return
                threading.Thread(target=self._relay, args=(near, far), daemon=True).start()

    def _relay(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                for source in select.select([near, far], [], [])[0]:
                    data = source.recv(_PIECE)
                    if not data:
                        near.close()
                        far.close()
                        return
                    self._pass_on(data, far if source is near else near)

    def _pass_on(self, data: bytes, to: socket.socket) -> None:
        with self._lock:
            self._passed += len(data)
        if self._passed > self._cut_at:
            self.cut()
        else:
            to.sendall(data)
