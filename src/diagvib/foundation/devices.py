"""Choose the device to compute on, and say what this machine is."""

import os
import platform
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, unknown_name


def resolve_device(name: str):
    """`auto`, `cpu` or `cuda` as a torch device. DiagvibError if CUDA is requested but not
    available."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", name, ["auto", "cpu", "cuda"])
    if name == "cuda" and not torch.cuda.is_available():
        raise DiagvibError(
            f"device: cuda is not available to torch {torch.__version__} on this machine; set "
            "`device: auto` or `cpu`, or install a CUDA build of torch and its driver"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def likely_gpu(name: str) -> bool:
    """Whether `resolve_device(name)` will probably give a GPU, without the seconds needed to import
    torch."""
    return name == "cuda" or (name == "auto" and Path("/proc/driver/nvidia/version").exists())


def has_bf16(device) -> bool:
    """Whether a torch device computes faster in bfloat16: GPUs since NVIDIA's Ampere, and CPUs with
    AVX512-BF16 or AMX."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def machine() -> str:
    """This machine: its processor, and how many cores of it this process may use."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {core_count()} {'core' if core_count() == 1 else 'cores'}"


def core_count() -> int:
    """How many cores this process may use."""
    return len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))
