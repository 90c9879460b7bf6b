"""Which device a job gets: it takes a share of the least used one, by file locks that the kernel
frees when the process ends, however it ends.

Each device has a file in a folder of the machine, shared by all users and checkouts. A percent of
the device is a byte that is locked; another byte belongs to the job that waits for it and gets it
next.
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
_NEXT = _WHOLE
# For so long, a device that has failed gets no job while there are others.
_SECONDS_OF_REST = 600
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
        name = f"{self.name} {zlib.crc32(self.machine.encode()):08x}" if self.machine else self.name
        return re.sub(r"[^\w-]", "-", number or name)


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
    no other; to be called before torch is loaded. Waits until a device has room; of several jobs
    that wait for a device, one is the next, however little others need."""
    files = {device: _open(name) for name, device in {each.file: each for each in devices}.items()}
    waits = False
    while not (device := _taken(share, files)):
        if not waits:
            say(f"waits until {share} % of {' or '.join(map(str, files))} is free")
        waits = True
        time.sleep(_SECONDS)
    if not device.machine:
        os.environ[VISIBLE] = device.address
        # So that a number means what the driver lists.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ[SLOT] = f"{share} % of {device}"
    say(f"takes {os.environ[SLOT]}")
    return device


def note_failure(device: Device) -> None:
    """Give other devices precedence for some minutes. One that fails its jobs at once would
    otherwise be the least used, and get all that are left."""
    os.utime(file := _open(_failures(device)))
    os.close(file)
    say(f"{device}: jobs go to other devices for {_SECONDS_OF_REST // 60} minutes")


def _failed_lately(device: Device) -> bool:
    with suppress(FileNotFoundError):
        return (_folder() / _failures(device)).stat().st_mtime > time.time() - _SECONDS_OF_REST
    return False


def _failures(device: Device) -> str:
    return f"{device.file}.failed"


def end_with_workflow() -> None:
    """End this process when the Snakemake that has started it is killed: it would keep its device
    from others, and write files beside the job that makes them again."""
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


def _taken(share: int, files: dict[Device, int]) -> Device | None:
    """The device with the most room, with the share locked, and nothing of others. None if none of
    those that this process gets next has room; it then stays the next of these."""
    guard = _open("guard")
    fcntl.flock(guard, fcntl.LOCK_EX)  # until it is closed
    try:
        sound = [device for device in files if not _failed_lately(device)]
        free = {
            device: [byte for byte in range(_WHOLE) if _locked(files[device], byte)]
            for device in sound or files
            if _locked(files[device], _NEXT)
        }
        best = max(free, key=lambda device: len(free[device]), default=None)
        if best and len(free[best]) < share:
            best = None
        for device, unlocked in free.items():
            for byte in unlocked[share:] if device == best else unlocked:
                fcntl.lockf(files[device], fcntl.LOCK_UN, 1, byte)
        if best:
            fcntl.lockf(file := files.pop(best), fcntl.LOCK_UN, 1, _NEXT)
            os.utime(file)  # lest it be tidied away as old
            _keep_folder()
            for other in files.values():
                os.close(other)
        return best
    finally:
        os.close(guard)


def _locked(file: int, byte: int) -> bool:
    """Whether this process now holds the lock of a byte. DiagvibError where files cannot be locked."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise DiagvibError(
            f"{_folder()}: its file system has no locks ({error.strerror}); set {FOLDER} to a folder "
            "on a disk of this machine"
        ) from None
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
