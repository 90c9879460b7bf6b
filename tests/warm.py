"""Programs in forks of a Python that has loaded the large packages already: what takes most of the
time in toy jobs.

Of diagvib nothing is loaded before: every program reads its own code, environment and folder, and
ends as any other, so that what it makes is what it would make in a new process. It gets the signals
that are sent to its process group, or SIGTERM; and is killed with whoever waits for it. Tests of
locks and of the system use new processes. Forks share one hash seed, so where results of several
are compared, some come from new processes.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import logging
import marshal
import multiprocessing.util
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from functools import cache
from pathlib import Path

PROGRAMS = {
    "python": None,
    "diagvib": "diagvib.cli",
    "dvc": "dvc.cli",
    "snakemake": "snakemake.cli",
}
PACKAGES = (
    "dvc.cli.parser",
    "dvc.repo.datasets",
    "dvc.repo.index",
    "dvc.repo.plots",
    "jinja2",
    "jsonschema",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "numba",
    "pandas",
    "docutils.parsers.rst.states",
    "dulwich.porcelain",
    "PIL.Image",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "pygit2",
    "requests",
    "rich.progress",
    "rich.table",
    "s3fs",
    "scipy.ndimage",
    "scipy.stats",
    "scmrepo.git",
    "scmrepo.git.backend.dulwich",
    "scmrepo.git.backend.pygit2",
    "skimage.color",
    "skimage.exposure",
    "skimage.transform",
    "sklearn.datasets",
    "sklearn.linear_model",
    "snakemake.cli",
    "snakemake.report.html_reporter",
    "sshfs",
    "torch",
    "torchvision",
    "typer",
)
# What a program is here: it hands over its arguments, folder, environment and open files, and ends
# as the fork does.
CLIENT = """#!{python} -IS
import _signal, _socket, array, marshal, os, sys
told = _signal.SIGINT, _signal.SIGTERM
_signal.pthread_sigmask(_signal.SIG_BLOCK, told)
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
request = marshal.dumps((sys.argv, os.getcwd(), dict(os.environ), os.getpgrp()))
server.sendmsg([len(request).to_bytes(8, "little")],
               [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
server.sendall(request)
_signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the program itself gets it, if the group does
_signal.signal(_signal.SIGTERM, lambda *_: server.send(b"t"))
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, told)
answer = server.recv(4)
status = int.from_bytes(answer, "little", signed=True) if answer else 70
if status < 0:
    if -status not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@cache
def programs() -> Path:
    """A folder with programs named `python`, `diagvib`, `dvc` and `snakemake`, to be had until this
    process ends.

    WARM_PROGRAMS: that of another process, which outlives this one.
    """
    if "WARM_PROGRAMS" in os.environ:
        return Path(os.environ["WARM_PROGRAMS"])
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        # Lives while its standard input is open, so that it ends, and cleans up, also where this
        # process is killed.
        server = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno()), str(folder)],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
    atexit.register(server.communicate)
    for name in PROGRAMS:
        write_program(folder / name, address)
    return folder


def write_program(path: Path, address: str) -> None:
    path.write_text(CLIENT.format(python=sys.executable, address=address))
    path.chmod(0o755)


def serve(listener: socket.socket) -> tuple:
    """Fork for every request; returns in the forks alone, with the request and its open files."""
    running: dict[int, socket.socket] = {}  # by process
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake)
    selector = selectors.DefaultSelector()
    for source in (0, listener, ended):
        selector.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:  # whoever started this has ended
                for process in running:
                    os.kill(process, signal.SIGKILL)
                shutil.rmtree(sys.argv[2])
                os._exit(0)
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                length, files, *_ = socket.recv_fds(connection, 8, 3)
                with connection.makefile("rb") as stream:
                    request = marshal.loads(stream.read(int.from_bytes(length, "little")))
                process = os.fork()
                if process == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    selector.close()
                    for file in (
                        ended,
                        wake,
                        *(each.detach() for each in (connection, *running.values())),
                    ):
                        os.close(file)
                    return request, files
                for file in files:
                    os.close(file)
                running[process] = connection
                selector.register(connection, selectors.EVENT_READ, process)
            elif key.fileobj == ended:
                os.read(ended, 1 << 10)
                answer_ended(running, selector)
            elif key.data in running:
                if key.fileobj.recv(1):
                    os.kill(key.data, signal.SIGTERM)
                else:  # nobody waits for it any longer
                    selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)


def answer_ended(running: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell those who wait for a process that it has ended, and how."""
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        connection = running.pop(process)
        with contextlib.suppress(KeyError):
            selector.unregister(connection)
        with contextlib.suppress(OSError):
            connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
        connection.close()


def prepare_for_forks() -> None:
    """Keep forks from writing to what this process has loaded: each page that they write to is
    copied for them."""
    # When a fork ends, it clears up what it has begun itself, and not what was loaded before.
    atexit._clear()
    for each in (logging.shutdown, multiprocessing.util._exit_function, weakref.finalize._exitfunc):
        atexit.register(each)
    for each in list(weakref.finalize._registry):
        each.atexit = False
    # pydantic asks for the signature of `list`, for which Python counts a use of every module.
    with contextlib.suppress(AttributeError):
        inspect._signature_fromstr = cache(inspect._signature_fromstr)
        inspect.signature(list)
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError):  # with Linux 6.1
        put_into_large_pages()


def put_into_large_pages() -> None:
    """A fork copies a table of all pages, and clears it up: with pages of 2 MiB in half of the
    time."""
    collapse, size = 25, 1 << 21  # MADV_COLLAPSE
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, _, *name = line.split(maxsplit=5)
        if "w" in rights and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            start, end = -(-start // size) * size, end // size * size
            if start < end:
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), collapse)


def become(request: tuple, files: list[int], usual_path: list[str]) -> None:
    """In a fork: the program that was called, as if it had just been started."""
    (program, *arguments), folder, environment, group = request
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    with contextlib.suppress(OSError):
        os.setpgid(0, group)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = str(Path(program).with_name("python"))
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = environment.get("PYTHONPYCACHEPREFIX") or None
    further = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = [program, *arguments]
    sys.path[:] = [str(Path(program).parent), *further, *usual_path]
    importlib.invalidate_caches()
    status = 0
    try:
        run(Path(program).name, *arguments)
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    # As Python ends, but for taking all packages apart.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 255)


def run(program: str, how: str = "", *rest: str) -> None:
    if program != "python":
        sys.exit(importlib.import_module(PROGRAMS[program]).main())
    if how in ("-m", "-c"):
        what, sys.argv = rest[0], [how, *rest[1:]]
        sys.path[0] = os.getcwd() if how == "-m" else ""
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif how == "-c":
        exec(
            compile(what, "<string>", "exec"),
            {"__name__": "__main__", "__builtins__": __builtins__},
        )
    else:
        sys.path[0], sys.argv = str(Path(how).parent), [how, *rest]
        runpy.run_path(how, run_name="__main__")


if __name__ == "__main__":
    usual = sys.path[1:]
    for package in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    # What these packages look up once per process: all that a compiled function needs, plug-ins,
    # their own commands.
    for package, first in (
        ("numba", lambda numba: numba.njit(lambda: None)()),
        ("snakemake.cli", lambda cli: cli.get_argument_parser()),
        ("dvc.cli.parser", lambda parser: parser.get_main_parser()),
    ):
        with contextlib.suppress(ImportError):
            first(importlib.import_module(package))
    prepare_for_forks()
    with socket.socket(fileno=int(sys.argv[1])) as waiting:
        asked = serve(waiting)
    become(*asked, usual)
