"""Which device a job gets: it takes a share of the least used one, by file locks that the kernel
frees when the process ends, however it ends.

Each device has a file in a folder of the machine, shared by all users and checkouts. A percent of
the device is a byte that is locked; whoever holds a lock of all files decides next.
"""

import fcntl
import os
import re
import select
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diagvib.foundation.devices import SLOT, VISIBLE, core_count
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.gpus import visible_gpus
from diagvib.foundation.messages import say
from diagvib.foundation.parallel import in_a_process
from diagvib.foundation.plug_ins import reason

# The variable that names another folder for locks.
FOLDER = "DIAGVIB_SLOTS"
# The variable with the process of the Snakemake that has started this one.
WORKFLOW = "DIAGVIB_WORKFLOW"
_WHOLE, _SECONDS, _GIB = 100, 0.5, 2**30
# Bytes of a training run on a GPU beside its images: CUDA's, weights and activations. The paper's
# networks at its size take less; a run that does not fit is tried again with fewer beside it.
BESIDE_IMAGES = 4 * _GIB
# More processes on one GPU were not measured.
MOST_PROCESSES = 15


@dataclass(frozen=True)
class Device:
    """A device of which jobs take shares. name: as in a configuration; address: of a GPU, for
    CUDA_VISIBLE_DEVICES, or empty; machine: the command that runs a job elsewhere, or empty."""

    name: str
    address: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.address})" if self.address else self.name

    @property
    def file(self) -> str:
        """The file of its locks: the same wherever on the machine it has another number."""
        number = f"gpu {self.address}" if self.address.isdecimal() else self.address
        return re.sub(r"[^\w-]", "-", number or self.name)


def slot_devices(names: Sequence[str] | None) -> list[Device]:
    """The devices of these names: cuda:N; or cpu or the command of another machine, which may be
    there several times. None: all GPUs. DiagvibError for a GPU that is not there."""
    of_gpu = names is None or any(name.startswith("cuda:") for name in names)
    gpus = visible_gpus() if of_gpu else []
    if names is None:
        names = [f"cuda:{number}" for number in range(len(gpus))]
    devices = []
    for position, name in enumerate(names):
        number = name.partition(":")[2]
        if not name.startswith("cuda:"):
            machine = name if name != "cpu" else ""
            count = [*names[:position]].count(name)
            devices.append(Device(f"{name}:{count}", machine=machine))
        elif int(number) < len(gpus):
            devices.append(Device(name, gpus[int(number)]))
        else:
            raise DiagvibError(
                f"devices: there is no {name}; this process may use {len(gpus)} GPUs, counted from "
                "cuda:0 (nvidia-smi -L, CUDA_VISIBLE_DEVICES)"
            )
    return devices


def take_slot(share: int, devices: Sequence[Device]) -> Device:
    """Take so many percent of the least used device for the rest of this process, and let torch see
    no other; to be called before torch is loaded. Waits until a device has room, and until those
    have one that already wait for the same devices."""
    _end_with_workflow()
    files = " ".join(sorted(device.file for device in devices))
    queue = _open(f"queue-{zlib.crc32(files.encode()):08x}")
    waits = False
    while not (device := _taken(share, devices, queue)):
        if not waits:
            say(f"waits until {share} % of {' or '.join(map(str, devices))} is free")
        waits = True
        time.sleep(_SECONDS)
    os.close(queue)
    if not device.machine:
        os.environ[VISIBLE] = device.address
        # So that a number means what the driver lists.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ[SLOT] = f"{share} % of {device}"
    say(f"takes {os.environ[SLOT]}")
    return device


def _end_with_workflow() -> None:
    """A job that outlives a killed Snakemake would keep its device from others."""
    workflow = os.environ.get(WORKFLOW)
    if workflow is None or not hasattr(os, "pidfd_open"):
        return
    try:
        process = os.pidfd_open(int(workflow))
    except ProcessLookupError:
        os._exit(1)
    except OSError:  # not before Linux 5.3, nor in some containers
        return
    wait = lambda: (select.select([process], [], []), os._exit(1))  # noqa: E731
    threading.Thread(target=wait, daemon=True).start()


def share_taken() -> float | None:
    """The part of its device that this process has taken; None without a slot."""
    slot = os.environ.get(SLOT)
    return slot and int(slot.partition(" ")[0]) / _WHOLE


def slot_record() -> dict[str, str]:
    """The slot, for the record of a run; empty without one."""
    return {"slot": os.environ[SLOT]} if SLOT in os.environ else {}


def runs_at_once(count: int, image_bytes: int, threads: int) -> int:
    """How many of `count` runs, each with so many bytes of images and CPU threads, to train at once
    on this process's GPU: as many as its memory and the cores allow. 1 on a CPU."""
    if count == 1:
        return 1
    try:
        memory = in_a_process(_gpu_memory)
    except RuntimeError as error:  # other programs have filled it, or have it to themselves
        say(
            f"1 of {count} runs at once: the GPU does not say how much memory is free ({reason(error)})"
        )
        return 1
    if not memory:
        return 1
    free, total = memory
    free = min(free, total * (share_taken() or 1))
    need = image_bytes + BESIDE_IMAGES
    processes = max(1, min(count, MOST_PROCESSES, int(free // need), _cores() // threads))
    say(
        f"{processes} of {count} runs at once: {free / _GIB:.1f} GiB of the GPU's memory are free for "
        f"them, and each is given {need / _GIB:.1f}"
    )
    return processes


def _cores() -> int:
    """How many cores this process may use: in a job of Snakemake, which says it as to OpenMP, those
    that the job reserves."""
    reserved = os.environ.get("OMP_NUM_THREADS") if WORKFLOW in os.environ else None
    return min(core_count(), int(reserved or core_count()))


def _gpu_memory() -> tuple[int, int] | None:
    """Bytes that are free and in all on the GPU that torch sees first; None without one. In a
    process of its own, since asking takes some of them."""
    import torch

    return torch.cuda.mem_get_info() if torch.cuda.is_available() else None


def _taken(share: int, devices: Sequence[Device], queue: int) -> Device | None:
    """The device with the most room, with the share locked; None if none has room, which makes this
    process the first in the queue, or if another one is."""
    guard = _open("guard")
    fcntl.flock(guard, fcntl.LOCK_EX)  # until it is closed
    room: dict[Device, tuple[int, list[int]]] = {}
    try:
        fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for device in devices:
            file = _open(device.file)
            room[device] = file, [byte for byte in range(_WHOLE) if _locked(file, byte)]
        best = max(room, key=lambda device: len(room[device][1]))
        file, free = room[best]
        if len(free) < share:
            return None
        for byte in free[share:]:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
        fcntl.flock(queue, fcntl.LOCK_UN)
        os.utime(file)  # lest it be tidied away as old
        del room[best]  # stays open, hence locked
        _keep_folder()
        return best
    except BlockingIOError:
        return None
    finally:
        for file, _ in room.values():
            os.close(file)
        os.close(guard)


def _locked(file: int, byte: int) -> bool:
    """Whether this process now holds the lock of a byte."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except OSError:
        return False
    return True


def _keep_folder() -> None:
    """Lock the folder of locks, together with others that hold a slot, for the rest of this
    process: systemd-tmpfiles, which tidies /tmp, passes over a locked folder and its files."""
    with suppress(OSError):  # some network file systems lock no folders
        fcntl.flock(os.open(_folder(), os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)


def _folder() -> Path:
    return Path(os.environ.get(FOLDER) or "/tmp/diagvib-slots")


def _open(name: str) -> int:
    """A file of locks, which every user of the machine may open."""
    folder = _folder()
    path, flags = folder / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    mask = os.umask(0)
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o1777)
        with suppress(FileExistsError):
            os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666))
        return os.open(path, flags)
    except OSError as error:
        raise DiagvibError(
            f"{path}: {error.strerror}; every user of this machine must be able to write it, or set "
            f"{FOLDER} to a folder of your own"
        ) from None
    finally:
        os.umask(mask)
