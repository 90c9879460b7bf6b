"""A real Slurm of two nodes, on the loopback address, in a temporary folder: `python
tests/services/slurm.py`.

Needs Debian's or Ubuntu's `apt install slurm-wlm munge`; no root, no systemd, no cgroups, no
accounting, and nothing of the system's own Slurm or munge. It prints its folder, and runs until
Ctrl-D. Then its daemons and jobs are killed and its folder is removed.

Each node has a GPU in name only (jobs that ask for one see CUDA_VISIBLE_DEVICES, and wait for one
another), and eight CPUs in name only, so that on a small machine no job waits for a CPU.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from loopback import ADDRESS, PATH, Service, ServiceError, free_port, missing, serve

CPUS, MEMORY_MB = 8, 128_000
NODES = {"near": "/dev/null", "far": "/dev/zero"}  # with the device of each one's GPU
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
# In the environment of every daemon, so that they can be found when the service ends, with the
# keepers of their jobs.
MARK = "DIAGVIB_SLURM_FOLDER"

SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={controller_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=2
PartitionName=all Nodes=ALL Default=YES DefMemPerCPU=100
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs={cpus} RealMemory={memory} Gres=gpu:1\n"


def why_not() -> str | None:
    """Why Slurm cannot run here; None if it can."""
    if sys.platform != "linux":
        return "Slurm runs on Linux only"
    return missing("slurm-wlm munge", *PROGRAMS)


class Slurm(Service):
    """Munge, a controller and a node. Attribute: folder (with configuration and logs)."""

    def __init__(self):
        super().__init__(__file__)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's commands are those of this Slurm."""
        return _environment(Path(self.folder))

    def run(self, *command: str) -> str:
        """A Slurm command's standard output."""
        return subprocess.run(
            command, env=self.environment, text=True, check=True, stdout=subprocess.PIPE
        ).stdout

    def kill_slurmd(self, node: str) -> None:
        """Kill -9 of a node's slurmd; its jobs continue, as after a crash of slurmd."""
        file = Path(self.folder, f"{node}.pid")
        os.kill(int(file.read_text()), signal.SIGKILL)
        file.unlink()

    def lose_node(self, node: str) -> None:
        """Kill -9 of everything on a node, as if its power was cut."""
        self.kill_slurmd(node)
        for process in _processes(Path(self.folder)):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURMD_NODENAME") == node:
                    if (keeper := process.parent()) and keeper.name() == "slurmstepd":
                        keeper.kill()
                    process.kill()

    def start_node(self, node: str) -> None:
        """Start a node's slurmd again, and wait until the controller gives it work."""
        _start_node(Path(self.folder), node)


def serve_slurm() -> None:
    """Run Slurm until standard input ends; then kill its daemons and jobs, and remove its
    folder."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # to be ignored here, but not by the daemons
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        _configure(folder)
        _start(
            folder,
            "munged",
            "--foreground",
            f"--socket={folder}/munge.socket",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munge.seed",
            up=(folder / "munge.socket").exists,
        )
        _start(folder, "slurmctld", "-D", up=lambda: "UP" in _said(folder, "scontrol", "ping"))
        for node in NODES:
            _start_node(folder, node)
        serve(folder=str(folder))
    finally:
        _end(folder)


def _configure(folder: Path) -> None:
    folder.chmod(0o711)  # munged wants its socket to be reachable
    for name in ("state", "bin", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    facts = {"host": socket.gethostname().split(".")[0], "address": ADDRESS}
    settings = {"folder": folder, "user": os.getuid(), "controller_port": free_port()}
    nodes = [
        NODE.format(**facts, name=name, port=free_port(), cpus=CPUS, memory=MEMORY_MB)
        for name in NODES
    ]
    head, partition = SLURM_CONF.format(**facts, **settings).split("PartitionName")
    (folder / "slurm.conf").write_text("".join([head, *nodes, "PartitionName", partition]))
    # Slurm requires devices; nobody opens these.
    devices = (f"NodeName={name} Name=gpu File={path}\n" for name, path in NODES.items())
    (folder / "gres.conf").write_text("".join(devices))
    # The job steps of snakemake-executor-plugin-slurm-jobstep 0.6 drop SLURM_CONF.
    srun = folder / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SLURM_CONF": f"{folder}/slurm.conf",
        "PATH": f"{folder}/bin{os.pathsep}{PATH}",
    }


def _start_node(folder: Path, node: str) -> None:
    _start(
        folder,
        "slurmd",
        *("-D", "-N", node),
        up=lambda: (
            (folder / f"{node}.pid").exists()
            and _said(folder, "sinfo", "-h", "-n", node, "-o", "%T").strip() in ("idle", "mixed")
        ),
    )


def _start(folder: Path, program: str, *arguments: str, up: Callable[[], bool]) -> None:
    """Start a daemon and wait until it is `up`. ServiceError with the end of its output if it never
    is."""
    with (folder / f"{program}.out").open("w") as output:
        daemon = subprocess.Popen(
            [program, *arguments],
            env={**_environment(folder), MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until = time.monotonic() + 60
    while not up():
        if daemon.poll() is not None or time.monotonic() > until:
            message = (folder / f"{program}.out").read_text(errors="replace")
            raise ServiceError(f"{program} did not come up: {' '.join(message.split())[-300:]}")
        time.sleep(0.1)


def _said(folder: Path, *command: str) -> str:
    return subprocess.run(command, env=_environment(folder), text=True, capture_output=True).stdout


def _end(folder: Path) -> None:
    while processes := _processes(folder):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def _processes(folder: Path) -> list[psutil.Process]:
    """The daemons started for `folder`, and the processes of its jobs."""
    results = []
    for process in psutil.process_iter(["environ"]):
        variables = process.info["environ"] or {}  # None: ended meanwhile, or not ours
        in_job = "SLURM_JOB_ID" in variables
        if variables.get(MARK) == str(folder) or (
            in_job and variables.get("SLURM_CONF") == f"{folder}/slurm.conf"
        ):
            results.append(process)
    return results


if __name__ == "__main__":
    serve_slurm()
