"""The result file of a measurement: its rows, and the conditions under which they hold.

Importing this first makes scripts use the checkout's package, which need not be installed.
"""

import os
import platform
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

from diagvib.foundation.files import write_json  # noqa: E402

RESULTS = Path("benchmarks/results")
Out = Annotated[Path, typer.Option(help="Folder of the JSON result.")]
IMAGE_BYTES = 128 * 128 * 3  # of the paper's size
PACKAGES = ("torch", "numba", "numpy", "pyarrow", "scikit-image", "snakemake", "dvc")


def machine() -> dict:
    """The machine that a figure was measured on: processor, cores, memory (GiB), GPU."""
    import torch  # a child's peak memory is at least its parent's when it starts: not before

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
    versions = {"python": platform.python_version(), **dict(map(_version, PACKAGES))}
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


def _version(package: str) -> tuple[str, str | None]:
    try:
        return package, version(package)
    except PackageNotFoundError:
        return package, None


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


def print_rows(rows: list[dict], **columns: str) -> None:
    """Print rows as a table. columns: a row's key -> the format of its values; None is blank."""
    table = Table(*(key.replace("_", " ") for key in columns))
    for row in rows:
        values = ((row.get(key), form) for key, form in columns.items())
        table.add_row(*("" if value is None else format(value, form) for value, form in values))
    Console(width=140).print(table)


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
