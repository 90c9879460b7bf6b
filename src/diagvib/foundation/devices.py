"""Choose the device to compute on, and say what this machine is."""

import os
import platform
import shutil
from pathlib import Path

from diagvib.foundation.errors import DeviceFailed, DiagvibError, unknown_name

VISIBLE = "CUDA_VISIBLE_DEVICES"
# The variable with the slot of this process and of those that it starts (`foundation.slots`).
SLOT = "DIAGVIB_SLOT"
# A GPU for this process; and a driver whose GPUs it may not see, as in a container, and WSL2's.
_GPUS = Path("/dev/nvidiactl")
_DRIVERS = Path("/proc/driver/nvidia/version"), Path("/dev/dxg")


def resolve_device(name: str):
    """`auto`, `cpu` or `cuda` as a torch device. DiagvibError if CUDA is requested, or a GPU was
    reserved for this process, but torch sees none."""
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
        if name == "cpu" and (gpu := _reserved_gpu()):
            raise DeviceFailed(
                f"device: torch {torch.__version__} does not see the GPU {gpu}: it is "
                "built for CPUs, or the driver is too old for it (nvidia-smi) or missing in this container; "
                "install another one, or set `device: cpu`"
            )
    return torch.device(name)


def _reserved_gpu() -> str:
    """Which GPU this process was given, by its slot or by a scheduler; empty without one."""
    slot, visible = os.environ.get(SLOT, ""), os.environ.get(VISIBLE, "")
    if "cuda" in slot:
        return f"of which {slot} is taken"
    driver = any(path.exists() for path in (_GPUS, *_DRIVERS))
    if driver and _begins_with_gpu(visible):
        return f"that {VISIBLE}={visible} gives to this process"
    return ""


def likely_gpu(name: str) -> bool:
    """Whether `resolve_device(name)` will probably give a GPU, without the seconds needed to import
    torch."""
    if name != "auto":
        return name == "cuda"
    if not _begins_with_gpu(os.environ.get(VISIBLE, "0")):
        return False
    drivers = any(path.exists() for path in _DRIVERS)
    return _GPUS.exists() or (drivers and shutil.which("nvidia-smi") is not None)


def _begins_with_gpu(entries: str) -> bool:
    return names_gpu(entries.partition(",")[0].strip())


def names_gpu(entry: str) -> bool:
    """Whether an entry of CUDA_VISIBLE_DEVICES may be a GPU; CUDA ignores others and what follows."""
    return entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))


def has_bf16(device) -> bool:
    """Whether a torch device computes faster in bfloat16: GPUs since NVIDIA's Ampere, and CPUs with
    AVX512-BF16 or AMX."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def device_name(device) -> str:
    """The GPU's name; `cpu` for a torch device that is none."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


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
