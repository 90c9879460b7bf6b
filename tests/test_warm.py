"""Programs in forks (warm.py) behave as they would in processes of their own."""

import json
import os
import signal
import subprocess

import pytest

from conftest import REPOSITORY
from warm import programs

TELL = """
import json, os, sys
ours = [name for name in sys.modules if name.partition(".")[0] == "diagvib"]
print(json.dumps({"modules": ours, "arguments": sys.argv, "folder": os.getcwd(), "path": sys.path,
                  "given": os.environ.get("GIVEN"), "home": os.environ.get("HOME"), "read": sys.stdin.read(),
                  "bytecode": sys.dont_write_bytecode}))
"""


def call(*command, **options) -> subprocess.CompletedProcess:
    program, *arguments = command
    return subprocess.run(
        [programs() / program, *arguments], capture_output=True, text=True, check=False, **options
    )


def test_a_program_has_its_own_arguments_folder_environment_and_files_and_none_of_our_code_before(
    tmp_path,
):
    own = {
        "GIVEN": "this",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    told = json.loads(
        call("python", "-c", TELL, "a", "b", cwd=tmp_path, env=own, input="words").stdout
    )
    path = told.pop("path")
    assert told == {
        "modules": [],
        "arguments": ["-c", "a", "b"],
        "folder": str(tmp_path),
        "given": "this",
        "home": None,
        "read": "words",
        "bytecode": True,
    }
    assert str(tmp_path) in path and str(REPOSITORY / "src") not in path[:2]
    (tmp_path / "mine.py").write_text("import sys; sys.exit(f'{__name__} {sys.argv[1:]}')")
    for how in (["-m", "mine"], [str(tmp_path / "mine.py")]):
        done = call("python", *how, "x", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (1, "__main__ ['x']\n")


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("1 / 0", 1, "division"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        (
            "import os, signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGXFSZ)",
            -signal.SIGXFSZ,
            "",
        ),
        ("import atexit; atexit.register(print, 'end', flush=True)", 0, ""),
    ],
)
def test_it_ends_as_it_would(code, status, says):
    done = call("python", "-c", code)
    assert done.returncode == status and says in done.stderr
    assert done.stdout == ("end\n" if "atexit" in code else "")


def test_it_clears_up_what_it_has_begun(tmp_path):
    """Its own temporary folders and worker processes; a finalizer of the packages loaded before is
    not its own."""
    code = (
        "import multiprocessing as mp, tempfile, time, torch, weakref\n"
        "worker = mp.Process(target=time.sleep, args=(600,), daemon=True)\n"
        "worker.start()\n"
        "folder = tempfile.TemporaryDirectory(dir='.')\n"
        "weakref.finalize(folder, print, 'the end')\n"
        "print(worker.pid)"
    )
    done = call("python", "-c", code, cwd=tmp_path, timeout=120)
    worker, *end = done.stdout.splitlines()
    assert (done.returncode, done.stderr, end) == (0, "", ["the end"]) and not list(
        tmp_path.iterdir()
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(worker), 0)


def test_it_ends_with_whoever_waits_for_it(tmp_path):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    running = subprocess.Popen(
        [programs() / "python", "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert int(running.stdout.readline()) != running.pid
    running.kill()
    running.communicate(timeout=120)  # not until the other end of the pipe is closed


@pytest.mark.parametrize(
    ("tell", "status"),
    [(subprocess.Popen.terminate, 3), (lambda running: os.killpg(running.pid, signal.SIGINT), 4)],
)
def test_it_gets_the_signals_of_its_group_and_sigterm(tell, status):
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(4)
"""
    with subprocess.Popen(
        [programs() / "python", "-c", code], stdout=subprocess.PIPE, text=True, process_group=0
    ) as running:
        assert running.stdout.readline() == "up\n"
        tell(running)
        assert running.wait() == status


def test_the_real_command_line_runs():
    done = call(
        "diagvib",
        "plan",
        "--set",
        "bindngs=all",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    assert (
        done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    )
