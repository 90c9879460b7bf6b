"""Programs in forks of a Python that has loaded the large packages already: what takes most of the time in toy jobs.

Of diagvib nothing is loaded before: every program reads its own code, environment and folder, and ends as any other,
so that what it makes is what it would make in a new process. Tests of kills, locks and the system use new processes,
and so do those that compare the results of several: forks share one hash seed.
"""

import atexit
import contextlib
import gc
import importlib
import marshal
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
from functools import cache
from pathlib import Path

PROGRAMS = {"python": None, "diagvib": "diagvib.cli", "dvc": "dvc.cli", "snakemake": "snakemake.cli"}
PACKAGES = (
    "dvc.cli", "dvc.repo", "jinja2", "jsonschema", "matplotlib.backends.backend_agg", "matplotlib.figure", "numba",
    "pandas", "PIL.Image", "pyarrow.compute", "pyarrow.parquet", "pydantic", "rich.progress", "rich.table",
    "scipy.ndimage", "scipy.stats", "skimage.color", "skimage.exposure", "skimage.transform", "sklearn.datasets",
    "sklearn.linear_model", "snakemake.cli", "statsmodels.stats.multitest", "torch", "torchvision", "typer")
# What a program is here: it hands over its arguments, folder, environment and open files, and ends as the fork does.
CLIENT = """#!{python} -IS
import _socket, array, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
request = marshal.dumps((sys.argv, os.getcwd(), dict(os.environ), os.getpgrp()))
server.sendmsg([len(request).to_bytes(8, "little")],
               [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
server.sendall(request)
answer = server.recv(4)
status = int.from_bytes(answer, "little", signed=True) if answer else 70
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@cache
def programs() -> Path:
    """A folder with programs named `python`, `diagvib`, `dvc` and `snakemake`, to be had until this process ends."""
    if not hasattr(os, "pidfd_open"):  # new processes, then
        return Path(sys.executable).parent
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        # Lives while its standard input is open, so that it ends, and cleans up, also where this process is killed.
        server = subprocess.Popen([sys.executable, __file__, str(listener.fileno()), str(folder)],
                                  pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    atexit.register(server.communicate)
    for name in PROGRAMS:
        write_program(folder / name, address)
    return folder


def write_program(path: Path, address: str) -> None:
    path.write_text(CLIENT.format(python=sys.executable, address=address))
    path.chmod(0o755)


def serve(listener: socket.socket) -> tuple:
    """Fork for every request; returns in the forks alone, with the request and its open files."""
    running: dict[int, tuple[int, socket.socket]] = {}
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:  # whoever started this has ended
                for process, _ in running.values():
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
                    for each in (listener, connection, *(open_one for _, open_one in running.values())):
                        each.close()
                    selector.close()
                    for ended in running:
                        os.close(ended)
                    return request, files
                for file in files:
                    os.close(file)
                ended = os.pidfd_open(process)
                running[ended] = process, connection
                selector.register(ended, selectors.EVENT_READ)
                selector.register(connection, selectors.EVENT_READ, process)
            elif key.data:  # nobody waits for it any longer, unless it has just been answered
                with contextlib.suppress(KeyError, ValueError):
                    selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
            else:
                process, connection = running.pop(key.fileobj)
                selector.unregister(key.fileobj)
                os.close(key.fileobj)
                status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                with contextlib.suppress(KeyError):
                    selector.unregister(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(status.to_bytes(4, "little", signed=True))
                connection.close()


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
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        sys.path[0], sys.argv = str(Path(how).parent), [how, *rest]
        runpy.run_path(how, run_name="__main__")


if __name__ == "__main__":
    usual = sys.path[1:]
    for package in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as waiting:
        asked = serve(waiting)
    become(*asked, usual)
