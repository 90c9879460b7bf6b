"""The GPUs that this process may use, without the seconds needed to import torch.

A GPU is called by its address, which CUDA_VISIBLE_DEVICES understands; a slice of one (MIG) is a
GPU, too.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from itertools import chain, takewhile
from pathlib import Path

from diagvib.foundation.devices import VISIBLE, likely_gpu, names_gpu

# A file of the driver for each GPU, in the order of `nvidia-smi`; and what a process opens to use it.
_FILES = Path("/proc/driver/nvidia/gpus")
_NODES = Path("/dev")
_ADDRESS = re.compile(r"^GPU UUID:\s+(GPU-[\da-f-]+)$", re.M)
_MINOR = re.compile(r"^Device Minor:\s+(\d+)$", re.M)
_GPU = re.compile(r"^GPU \d+: .*\(UUID: (\S+)\)", re.M)
# Such as `MIG 3g.20gb`, whose name says how much memory it has.
_SLICE = re.compile(r"^ +MIG (?:\d+c\.)?\d+g\.(\d+)gb\S* .*\(UUID: (\S+)\)", re.M)


def visible_gpus() -> list[str]:
    """In order, each once: those that CUDA_VISIBLE_DEVICES names, otherwise all that the driver
    lists, a GPU that is cut into slices as these. Numbers count as `nvidia-smi` does."""
    driver_list, selection = _driver_list(), os.environ.get(VISIBLE)
    if selection is None:
        return ["0"] * likely_gpu("auto") if driver_list is None else [*chain(*driver_list)]
    gpus = (_address(entry.strip(), driver_list) for entry in selection.split(","))
    return [*dict.fromkeys(takewhile(bool, gpus))]  # CUDA, too, ignores what follows


def _address(entry: str, driver_list: list[list[str]] | None) -> str | None:
    """The GPU that an entry of CUDA_VISIBLE_DEVICES names; of a cut one, the first slice. A name that
    the driver's list lacks stands for itself: the list may know no slices."""
    if not names_gpu(entry):
        return None
    if driver_list is None:
        return entry
    if entry.isdecimal():
        return driver_list[int(entry)][0] if int(entry) < len(driver_list) else None
    return next((gpu for gpu in chain(*driver_list) if gpu.startswith(entry)), entry)


def _driver_list() -> list[list[str]] | None:
    """The slices of each GPU, or the GPU itself; None if the driver does not say. Its files, read
    where its program is missing, know of no slices, and perhaps no address."""
    _, *parts = _GPU.split(_nvidia_smi("-L"))
    if not parts:
        texts = [path.read_text() for path in sorted(_FILES.glob("*/information"))]
        usable = [text for text in texts if not _forbidden(text)]
        gpus = [_ADDRESS.findall(text) or [str(number)] for number, text in enumerate(usable)]
        return gpus if texts else None
    return [
        [slice_address for _, slice_address in _SLICE.findall(slices)] or [address]
        for address, slices in zip(parts[::2], parts[1::2], strict=True)
    ]


def _forbidden(text: str) -> bool:
    """Whether a scheduler keeps the GPU of a driver's file from this process; the file is there all
    the same."""
    minor = _MINOR.search(text)
    node = _NODES / f"nvidia{minor[1]}" if minor else None
    return node is not None and node.exists() and not os.access(node, os.R_OK | os.W_OK)


def smallest_memory(gpus: Sequence[str]) -> float | None:
    """GiB of the smallest of these GPUs; None if the driver's program does not say."""
    sizes = {gpu: float(gib) for gib, gpu in _SLICE.findall(_nvidia_smi("-L"))}
    columns = "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"
    for line in _nvidia_smi(*columns).splitlines():
        gpu, _, mib = line.partition(", ")
        if mib.isdecimal():
            sizes[gpu] = int(mib) / 1024
    return min((sizes[gpu] for gpu in gpus if gpu in sizes), default=None)


def _nvidia_smi(*arguments: str) -> str:
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
