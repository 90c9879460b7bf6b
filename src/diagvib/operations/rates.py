"""Reads the rates for a plan from the result files of benchmarks/render.py and train.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, PositiveFloat

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import checkout_path, read_json
from diagvib.foundation.validation import validated


class Row(BaseModel):
    """One measurement. processes, startup_seconds: of training; precision and batch_size are None
    where they make no difference."""

    what: str
    device: str
    images_per_second: PositiveFloat | None = None
    startup_seconds: float = 0.0
    processes: int = 1
    batch_size: int | None = None
    precision: str | None = None


class ResultFile(BaseModel):
    """A result file with images per second of a stage; others measure something else."""

    kind: Literal["render", "train"]
    device: str
    date: str = ""
    machine: dict[str, object] = {}
    rows: list[Row]


@dataclass(frozen=True)
class Rates:
    """Rows of result files for one kind of device. On CUDA a rate is for one GPU, on a CPU for the
    whole machine.

    files, machines: where they come from.
    """

    rows: tuple[Row, ...] = ()
    files: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def best(self, what: str, **like: object) -> Row | None:
        """The fastest row for a measurement, or None. like: values (batch_size, precision) that a
        row must not contradict; on a CPU the rows differ in how many cores they used."""
        found = [
            row
            for row in self.rows
            if row.what == what
            and all(getattr(row, key) in (None, value) for key, value in like.items())
        ]
        return max(found, key=lambda row: row.images_per_second, default=None)

    def phases(self, baseline: str) -> list[str]:
        """The phases of a baseline whose training was measured phase by phase; empty for others."""
        start = f"train {baseline} "
        return sorted(
            {row.what.removeprefix(start) for row in self.rows if row.what.startswith(start)}
        )


def measured_rates(device: str, folder: Path | None = None) -> Rates:
    """The rates of the newest result file of each kind that has some for the device; empty if there
    is none.

    folder: default `benchmarks/results` of the checkout.
    """
    folder = folder or checkout_path("benchmarks/results")
    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.glob("*.json")):
        if read_json(path).get("kind") in ("render", "train"):
            result = _result(path)
            if any(row.device == device for row in result.rows):
                known = newest.get(result.kind, ("", path))
                newest[result.kind] = max(known, (result.date, path))
    return read_rates(device, [path for _, path in newest.values()])


def read_rates(device: str, paths: list[Path]) -> Rates:
    """The rates for a device in these result files. DiagvibError for an invalid file, or one
    without rates for it."""
    rows, machines = [], []
    for path in paths:
        result = _result(path)
        found = [row for row in result.rows if row.device == device and row.images_per_second]
        if not found:
            others = ", ".join(sorted({row.device for row in result.rows}))
            raise DiagvibError(f"{path}: no rates for {device}; its rows are for {others}")
        rows += found
        machines.append(_machine(result.machine, device))
    names = tuple(path.name for path in paths)
    return Rates(tuple(rows), names, tuple(dict.fromkeys(filter(None, machines))))


def file_device(path: Path) -> str:
    """The device of a result file: cpu or cuda."""
    return _result(path).device


def _result(path: Path) -> ResultFile:
    return validated(ResultFile, read_json(path), str(path))


def _machine(machine: dict, device: str) -> str:
    if device == "cuda":
        return str(machine.get("gpu") or "")
    return f"{machine.get('cores', '?')} cores of {machine['cpu']}" if "cpu" in machine else ""
