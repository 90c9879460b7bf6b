"""The GPUs that this process may use, without the seconds needed to import torch.

A GPU is called by its address, which CUDA_VISIBLE_DEVICES understands; a slice of one (MIG) is a
GPU, too.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from itertools import chain

from diagvib.foundation.devices import likely_gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"^GPU \d+: .*\(UUID: (\S+)\)", re.M)
# Such as `MIG 3g.20gb`, whose name says how much memory it has.
_SLICE = re.compile(r"^ +MIG (?:\d+c\.)?\d+g\.(\d+)gb\S* .*\(UUID: (\S+)\)", re.M)


def visible_gpus() -> list[str]:
    """In order: those that CUDA_VISIBLE_DEVICES names, otherwise all that the driver lists, a GPU
    that is cut into slices as these. Numbers count as `nvidia-smi` does."""
    driver_list, selection = _driver_list(), os.environ.get(VISIBLE)
    if selection is None:
        return [*chain(*driver_list)] or ["0"] * likely_gpu("auto")
    gpus: list[str] = []
    for entry in selection.split(","):
        gpu = _address(entry.strip(), driver_list)
        if gpu is None:  # CUDA, too, ignores what follows
            break
        gpus.append(gpu)
    return gpus


def _address(entry: str, driver_list: list[list[str]]) -> str | None:
    """The GPU that an entry of CUDA_VISIBLE_DEVICES names; of a cut one, the first slice."""
    is_number, is_address = entry.isdecimal(), entry.startswith(("GPU-", "MIG-"))
    if not driver_list:
        return entry if is_number or is_address else None
    if is_number:
        return driver_list[int(entry)][0] if int(entry) < len(driver_list) else None
    return next((gpu for gpu in chain(*driver_list) if is_address and gpu.startswith(entry)), None)


def _driver_list() -> list[list[str]]:
    """The slices of each GPU, or the GPU itself; empty if the driver's program does not say."""
    _, *parts = _GPU.split(_nvidia_smi("-L"))
    return [
        [slice_address for _, slice_address in _SLICE.findall(slices)] or [address]
        for address, slices in zip(parts[::2], parts[1::2], strict=True)
    ]


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
