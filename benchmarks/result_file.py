"""The result file of a measurement: its rows, and the conditions under which they hold."""

import os
import platform
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from diagvib.foundation.files import write_json

RESULTS = Path("benchmarks/results")
IMAGE_BYTES = 128 * 128 * 3  # of the paper's size


def machine() -> dict:
    """The machine that a figure was measured on: processor, cores, memory (GiB), GPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": len(cores()),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def save_result(
    kind: str, device: str, rows: list[dict], out: str | Path = RESULTS, **more: object
) -> Path:
    """Write `{kind}-{device}-{date}.json`: the rows, with the machine, versions, date and command;
    returns its path."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "numba", "numpy", "pyarrow", "scikit-image"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    path = Path(out) / f"{kind}-{device}-{date.today().isoformat()}.json"
    write_json(
        path,
        {
            "kind": kind,
            "device": device,
            "date": date.today().isoformat(),
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "machine": machine(),
            "versions": versions,
            **more,
            "rows": rows,
        },
    )
    print(f"written to {path}")
    return path


def result_row(
    what: str, device: str, threads: int, images: int, seconds: float, **more: object
) -> dict:
    """One figure: images of 128 x 128 x 3 bytes, uncompressed, in this many seconds."""
    return {
        "what": what,
        "device": device,
        "threads": threads,
        "images": images,
        "seconds": seconds,
        "images_per_second": images / seconds,
        "bytes_per_second": images * IMAGE_BYTES / seconds,
        "ratio_to_yardstick": None,
        **more,
    }


def cores() -> list[int]:
    """The cores that this process may use."""
    return (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )
