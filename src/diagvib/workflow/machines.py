"""Jobs on machines that share no disk with this one.

A device of the configuration may be a command that runs a line of shell on another machine, such as
`ssh gpu1`. A job that gets it sends what it reads to a store that both can reach, starts itself
there, in the same folder, and brings back what that made, so that everything stays in this machine's
root. A store keeps files under their sha256; each travels once.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diagvib.foundation.devices import SLOT
from diagvib.foundation.errors import DeviceFailed, DiagvibError, one_line
from diagvib.foundation.files import DIGESTS_FILE, file_sha256, whole_file
from diagvib.foundation.messages import say
from diagvib.foundation.slots import WORKFLOW
from diagvib.images import FEATURES_FILE
from diagvib.provenance.code import job_code
from diagvib.settings.jobs import Encode, Train, Tune, read_settings
from diagvib.settings.layout import Layout
from diagvib.settings.model_settings import published_weights

# The variable with the address of the store, as fsspec takes it.
STORE = "DIAGVIB_STORE"
Job = Encode | Train | Tune


class Store:
    """Files by their sha256, at an address that fsspec opens. DiagvibError if it does not."""

    def __init__(self, address: str):
        import fsspec

        try:
            self.files, self.folder = fsspec.url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise DiagvibError(
                f"{STORE}: {address}: {one_line(error)}; of s3:// and ssh://, "
                "`pip install -e '.[remotes]'` has the packages"
            ) from None
        with self._reached(""):
            self.files.makedirs(self.folder, exist_ok=True)

    def put(self, path: Path, digest: str) -> None:
        """Copy a file here, unless it is here."""
        with self._reached(digest) as target:
            with suppress(FileNotFoundError):
                if self.files.info(target)["size"] == path.stat().st_size:
                    return  # otherwise its copy was stopped
            temporary = f"{target}.{uuid.uuid4().hex}"
            self.files.put_file(str(path), temporary)
            self.files.mv(temporary, target)

    def put_all(self, paths: Iterable[Path]) -> dict[str, str]:
        """Copy the files that are at or below these paths here; returns the sha256 of each."""
        digests = {str(path): file_sha256(path) for path in _files(paths)}
        for path, digest in digests.items():
            self.put(Path(path), digest)
        return digests

    def get(self, digest: str, path: Path) -> None:
        """Copy a file from here to `path`, unless it is there. DiagvibError for a damaged one."""
        if path.is_file() and file_sha256(path) == digest:
            return
        with self._reached(digest) as source, whole_file(path) as temporary:
            self.files.get_file(source, str(temporary))
            if file_sha256(temporary) != digest:
                raise DiagvibError(f"{source}: damaged; delete it in the store")

    def answer(self, name: str, outputs: dict[str, str]) -> None:
        """Leave a message about what a job has made."""
        with self._reached(name) as target:
            self.files.pipe_file(target, json.dumps(outputs).encode())

    def answered(self, name: str) -> dict[str, str] | None:
        """Take that message; None without one."""
        with self._reached(name) as source:
            if not self.files.exists(source):
                return None
            outputs = json.loads(self.files.cat_file(source))
            self.files.rm_file(source)
            return outputs

    @contextmanager
    def _reached(self, name: str) -> Iterator[str]:
        """The path of a file here. DiagvibError if the store cannot be used."""
        try:
            yield f"{self.folder}/{name}"
        except DiagvibError:
            raise
        except Exception as error:  # each kind of store has its own
            raise DiagvibError(
                f"{STORE}: {self.folder}/{name}: {type(error).__name__}: {one_line(error)}"
            ) from None


class JobFiles:
    """What a job reads; the folders where it leaves what it makes, and what a later try of it
    continues; and the files that say it is finished."""

    def __init__(self, layout: Layout, job: Job, names: dict[str, str]):
        model = job.settings["model"]
        network = job.network if isinstance(job, (Train, Tune)) else None
        self.reads = [layout.prepared(job.scene), layout.tuning]
        if weights := published_weights(model):
            self.reads.append(layout.weights(*weights).parent)
        for study, binding in _datasets(job, names):
            self.reads.append(layout.recipes(study, binding))
            if job.images == "parquet":
                self.reads.append(layout.images(study, binding))
            if network:
                self.reads.append(layout.features(network, study, binding))
        if isinstance(job, Tune):
            baseline = names["baseline"]
            self.folders = [layout.tuned(baseline)]
            self.finished = [layout.tuning / f"{baseline}.{kind}" for kind in ("csv", "yaml")]
        elif isinstance(job, Train):
            of_job = names["baseline"], names["study"], names["binding"]
            self.folders = [layout.runs(*of_job), layout.checkpoints(*of_job)]
            self.finished = [self.folders[0] / DIGESTS_FILE]
        else:
            self.folders = [layout.features(job.network, names["study"], names["binding"])]
            self.finished = [self.folders[0] / FEATURES_FILE]


def _datasets(job: Job, names: dict[str, str]) -> list[tuple[str, str]]:
    if isinstance(job, Tune):
        return [(job.tuning.study, binding) for binding in job.tuning.bindings]
    return [(names["study"], names["binding"])]


def _files(paths: Iterable[Path]) -> list[Path]:
    """The files that are at or below these paths, without those that are being written."""
    below = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    return [file for file in below if file.is_file() and file.suffix != ".tmp"]


def run_on(
    machine: str, layout: Layout, job: Job, names: dict[str, str], settings: Path, line: list[str]
) -> None:
    """Run a job on another machine: the command `machine` is called with a line of shell.

    line: the job's command line, after `diagvib`. DiagvibError, after what it has left was brought
    back, if the job fails there; DeviceFailed if it never ran, or was ended with that machine.
    """
    if STORE not in os.environ:
        raise DiagvibError(
            f"devices: {machine}: set {STORE} to a store that it and this machine can reach, such as "
            "s3://bucket/folder (profiles/README.md)"
        )
    store, files = Store(os.environ[STORE]), JobFiles(layout, job, names)
    sent = store.put_all([settings, *files.reads, *files.folders])
    message = {
        "line": line,
        "settings": str(settings),
        "code": job_code(line[0], job).digest,
        "files": sent,
        "folders": [*map(str, files.folders)],
        "finished": [*map(str, files.finished)],
        "answer": (answer := f"{uuid.uuid4().hex}.json"),
    }
    words = ["cd", os.getcwd(), "&&", sys.executable, "-m", "diagvib", "receive", os.environ[STORE]]
    shell = " ".join(word if word == "&&" else shlex.quote(word) for word in words)
    say(f"runs on {machine}; {len(sent):,} files are there or sent")
    code = _told([*shlex.split(machine), shell], json.dumps(message))
    if (outputs := store.answered(answer)) is None:
        raise DeviceFailed(
            f"{machine}: the job did not run there to its end (code {code}); what was said is above"
        )
    finished = not code and {*map(str, files.finished)} <= outputs.keys()
    _bring(store, outputs, files, finished)
    if not finished:
        raise DiagvibError(
            f"{machine}: the job ended there with code {code}; what it says is above, and what it had "
            "left was brought here"
        )


def _told(command: list[str], message: str) -> int:
    """Run a command that reads a line, and stops when its input ends, as this process does. Returns
    its exit code."""
    environment = {
        key: value for key, value in os.environ.items() if key not in (SLOT, WORKFLOW, "TMPDIR")
    }
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)
    with suppress(BrokenPipeError), process:  # one that did not read says why, or its code does
        process.stdin.write(message + "\n")
        process.stdin.flush()
        process.wait()
    return process.returncode


def _bring(store: Store, outputs: dict[str, str], files: JobFiles, finished: bool) -> None:
    """Copy what a job has made to its place, the files that say it is finished last, and only if it
    is; then also remove what it has not left."""
    last = [*map(str, files.finished)]
    for path in [*(path for path in outputs if path not in last), *(last if finished else [])]:
        store.get(outputs[path], Path(path))
    if finished:
        for path in _files(files.folders):
            if str(path) not in outputs:
                path.unlink()


def receive(address: str) -> int:
    """Run the job that a line of standard input describes, in this folder, and send what it makes.
    Returns its exit code. It is stopped when standard input ends.

    DiagvibError if it describes none, or this machine's code is not the sender's."""
    if not (text := sys.stdin.readline()):
        raise DiagvibError("a workflow on another machine starts this command and says which job")
    message, store = json.loads(text), Store(address)
    for path, digest in message["files"].items():
        store.get(digest, Path(path))
    stage = message["line"][0]
    if job_code(stage, read_settings(Path(message["settings"]), stage)).digest != message["code"]:
        raise DiagvibError(
            f"{os.getcwd()} on {os.uname().nodename}: {stage} is not the same code as where the workflow "
            "runs; check out the same commit here"
        )
    for path in map(Path, message["finished"]):  # of an earlier job
        path.unlink(missing_ok=True)
    # The job ends with this process, as others do with their Snakemake, which says the cores here.
    environment = {**os.environ, "PYTHONHASHSEED": "0", WORKFLOW: str(os.getpid())}
    environment.pop("OMP_NUM_THREADS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "diagvib", *message["line"]],
        stdin=subprocess.DEVNULL,
        env=environment,
    )

    def stop_with_sender() -> None:
        sys.stdin.read()
        process.send_signal(signal.SIGTERM)

    threading.Thread(target=stop_with_sender, daemon=True).start()
    code = process.wait()
    outputs = store.put_all(map(Path, message["folders"] + message["finished"]))
    store.answer(message["answer"], outputs)
    return code
