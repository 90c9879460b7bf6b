"""Snakemake's locks after it was killed: they are removed if it is certain that none of its jobs is
still running.

Snakemake lists the files that it is about to make in .snakemake/locks. After a `kill -9` the lists
remain, and the next call is refused. Here each list is signed by its process, and so is the
environment of the jobs; the next call on the same machine removes the lists of a process that is
dead along with all its jobs. If in doubt, the lock stays: another machine, another container, jobs
on a cluster, a list without a signature. `snakemake --unlock` removes those.
"""

import fcntl
import os
import time
from pathlib import Path

_VARIABLE = "DIAGVIB_RUN"
# Time for the jobs of a killed Snakemake to end.
_SECONDS_TO_END = 5


def give_up_dead_locks() -> None:
    """Make this Snakemake sign its locks, and remove those of dead ones before it takes them.

    To be called while the Snakefile is read, in the main process. No effect without /proc, or on a
    Snakemake that handles its locks differently.
    """
    try:
        from snakemake.persistence.file import FilePersistence as Persistence

        write, lock = Persistence._write_locks, Persistence.lock
        signature = f"{_VARIABLE}={_machine()} {os.getpid()} {_started(os.getpid())}"
    except (ImportError, AttributeError, OSError):
        return

    def signed(self, kind, files):
        # Jobs on other machines cannot be checked.
        write(self, kind, [*files, *[signature] * self.dag.workflow.local_exec])

    def checked(self):
        jobs = _remove_dead(Path(self._lockdir))
        if jobs and self.locked:
            raise SystemExit(_refusal(jobs))  # the only exception to which Snakemake adds no lines
        return lock(self)

    os.environ.update([signature.split("=", 1)])
    Persistence._write_locks, Persistence.lock = signed, checked


def _remove_dead(folder: Path) -> list[int]:
    """Remove the locks of dead processes whose jobs are dead, too; returns the jobs that still
    run."""
    left = []
    for path in folder.glob("*.lock"):
        try:
            with path.open("r+") as file:
                # Whoever holds this lock may remove the file of this name, if it is still the same
                # file.
                fcntl.flock(file, fcntl.LOCK_EX)
                status = os.fstat(file.fileno())
                signature = file.read().rstrip("\n").rpartition("\n")[2]
                if status.st_uid != os.getuid() or not _dead(signature):
                    continue
                if jobs := _jobs(signature):
                    left += jobs
                elif os.path.samestat(status, path.stat()):
                    path.unlink()
        except (
            OSError
        ):  # removed meanwhile, owned by another user, or on a file system without such locks
            continue
    return sorted(set(left))


def _dead(signature: str) -> bool:
    """Whether the process that signed ran on this machine and has ended. False for anything that is
    not a signature."""
    name, _, value = signature.partition("=")
    words = value.split()
    if name != _VARIABLE or len(words) != 3 or words[0] != _machine():
        return False
    try:
        return _started(int(words[1])) != words[2]
    except FileNotFoundError:
        return True


def _jobs(signature: str) -> list[int]:
    """The processes that still run with this signature in their environment, after some seconds to
    end."""
    until = time.monotonic() + _SECONDS_TO_END
    while (
        jobs := [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/environ")
            if signature.encode() in _environment(path)
        ]
    ) and time.monotonic() < until:
        time.sleep(0.1)
    return jobs


def _environment(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def _machine() -> str:
    """Identifies this boot of this machine and, in a container, which processes can be seen from
    here."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink(
        "/proc/self/ns/pid"
    )


def _started(process: int) -> str | None:
    """When a process started, in the kernel's own count; None if it has ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _refusal(jobs: list[int]) -> str:
    return (
        f"error: the last Snakemake here was killed, but its jobs still run (process {', '.join(map(str, jobs))}); "
        "wait for them or end them, then run the same command again"
    )
