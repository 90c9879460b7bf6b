"""Services for tests: a process that ends when its starter does, and a web server in a thread."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = "127.0.0.1"
PATH = os.environ["PATH"] + os.pathsep + "/usr/sbin"


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
            message = self._process.communicate()[1].strip() or "it ended without a word"
            raise ServiceError(message.splitlines()[-1])
        vars(self).update(json.loads(line))
        return self

    def __exit__(self, *_) -> None:
        self._process.communicate()


class Quiet(BaseHTTPRequestHandler):
    """Prints no requests."""

    def log_message(self, *_) -> None:
        pass


@contextmanager
def web_server(handler: Callable) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer((ADDRESS, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def missing(packages: str, *programs: str) -> str | None:
    """Why a service's programs cannot be started here; None if they can."""
    missing = [program for program in programs if not shutil.which(program, path=PATH)]
    if not missing:
        return None
    return f"no {' and no '.join(missing)} (Debian, Ubuntu: apt install {packages})"


def serve(**facts) -> None:
    """Print how to reach the service that this process runs, then wait until it is no longer
    needed."""
    print(json.dumps(facts), flush=True)
    sys.stdin.buffer.read()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]
