"""Reads the rates for a plan from the result files of benchmarks/render.py and train.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, PositiveFloat

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import checkout_path, read_json
from diagvib.foundation.validation import validated

Kind = Literal["render", "train"]


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


class Machine(BaseModel):
    """Where it was measured."""

    cpu: str
    cores: int
    gpu: str | None = None


class ResultFile(BaseModel):
    """A result file with images per second of a stage; others measure something else."""

    kind: Kind
    device: str
    date: str = ""
    machine: Machine
    rows: list[Row]


@dataclass(frozen=True)
class Rates:
    """Rows of result files for one kind of device. On CUDA a rate is for one GPU, on a CPU for the
    whole machine.

    files, machines: where they come from.
    """

    rows: list[Row]
    files: list[str]
    machines: list[str]

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
        """The measurements of a baseline's training: of the whole, or of each of its phases."""
        names = {row.what for row in self.rows if row.what.startswith(f"train {baseline} ")}
        return sorted(names) or [f"train {baseline}"]


def measured_rates(device: str, folder: Path | None = None) -> Rates:
    """The rates of the newest result file of each kind that has some for the device; empty if there
    is none.

    folder: default `benchmarks/results` of the checkout.
    """
    paths = sorted((folder or checkout_path("benchmarks/results")).glob("*.json"))
    found = [(path, _result(path)) for path in paths if read_json(path)["kind"] in get_args(Kind)]
    newest = {
        result.kind: path
        for path, result in sorted(found, key=lambda each: each[1].date)
        if any(row.device == device for row in result.rows)
    }
    return read_rates(device, [*newest.values()])


def read_rates(device: str, paths: list[Path]) -> Rates:
    """The rates for a device in these result files. DiagvibError for an invalid file, or one
    without rates for it."""
    rates = Rates([], [path.name for path in paths], [])
    for path in paths:
        result = _result(path)
        found = [row for row in result.rows if row.device == device and row.images_per_second]
        if not found:
            others = ", ".join(sorted({row.device for row in result.rows}))
            raise DiagvibError(f"{path}: no rates for {device}; its rows are for {others}")
        rates.rows.extend(found)
        machine = result.machine
        name = machine.gpu if device == "cuda" else f"{machine.cores} cores of {machine.cpu}"
        rates.machines.append(str(name))
    return rates


def file_device(path: Path) -> str:
    """The device of a result file: cpu or cuda."""
    return _result(path).device


def _result(path: Path) -> ResultFile:
    return validated(ResultFile, read_json(path), str(path))
