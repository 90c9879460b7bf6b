"""Reads the rates for a plan from the result files of benchmarks/render.py and train.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, PositiveFloat

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import checkout_path, read_json
from diagvib.foundation.validation import validated


class Row(BaseModel):
    """One measurement. precision, batch_size and processes are None where they make no
    difference; conditions: of the machine, in words, if they were special."""

    what: str
    device: str
    images_per_second: PositiveFloat | None = None
    batch_size: int | None = None
    precision: str | None = None
    processes: int | None = None
    conditions: str | None = None


class Machine(BaseModel):
    """Where it was measured."""

    cpu: str
    cores: int
    gpu: str | None = None


class ResultFile(BaseModel):
    """A result file with images per second of a stage; others measure something else."""

    kind: Literal["render", "train"]
    machine: Machine
    conditions: str | None = None
    rows: list[Row]


@dataclass(frozen=True)
class PhaseRate:
    """The speed of a phase of training. epochs: at most. share: the images of its epochs, with
    copies, as a multiple of those of a plain one."""

    name: str
    epochs: int
    share: float
    images_per_second: float


@dataclass
class BaselineRates:
    """The speed of a baseline, in images/s. encoding: of a frozen network, which computes each image
    once; otherwise None. setup: in words, what was measured; scaled_from: the baseline whose rates
    were scaled, if it is another."""

    phases: list[PhaseRate] = field(default_factory=list)
    prediction: float | None = None
    encoding: float | None = None
    setup: str = ""
    scaled_from: str | None = None

    def run_seconds(self, images: Mapping[str, int], track_test: bool) -> float:
        """Of a run, without encoding. images: by split; track_test: as in a configuration."""
        evaluated = images["val"] + images["test"] * track_test
        training = sum(
            phase.epochs
            * (
                phase.share * images["train"] / phase.images_per_second
                + evaluated / self.prediction
            )
            for phase in self.phases
        )
        return training + images["test"] / self.prediction


@dataclass(frozen=True)
class Rates:
    """Rows of result files. A rate of training on CUDA is for one GPU, others are for the whole
    machine. sources: the files, each with its machine."""

    rows: list[Row]
    sources: list[str]

    def up_to(self, processes: int) -> "Rates":
        """Those of no more processes."""
        rows = [row for row in self.rows if (row.processes or 1) <= processes]
        return replace(self, rows=rows)

    def together(self, quantities: Sequence[str], **like: object) -> list[Row]:
        """A row for each measurement, with one number of processes and under the same conditions:
        those with which the first is fastest. Empty if there are none. like: as for `best`."""
        setups = {(row.processes, row.conditions) for row in self.rows}
        sets = []
        for processes, conditions in setups:
            rates = replace(self, rows=[row for row in self.rows if row.conditions == conditions])
            rows = [rates.best(name, processes=processes, **like) for name in quantities]
            if all(rows):
                sets.append(rows)
        return max(sets, key=lambda rows: rows[0].images_per_second, default=[])

    def best(self, quantity: str, **like: object) -> Row | None:
        """The fastest row for a measurement, or None. like: values (such as batch_size) that a
        row must not contradict; on a CPU the rows differ in how many cores they used."""
        rows = [
            row
            for row in self.rows
            if row.what == quantity
            and all(getattr(row, key) in (None, value) for key, value in like.items())
        ]
        return max(rows, key=lambda row: row.images_per_second, default=None)

    def phases(self, baseline: str) -> list[str]:
        """The measurements of a baseline's training: of the whole, or of each of its phases."""
        names = {row.what for row in self.rows if row.what.startswith(f"train {baseline} ")}
        return sorted(names) or [f"train {baseline}"]


def newest_files(device: str, folder: Path | None = None) -> list[Path]:
    """The newest result file of each kind for the device in a folder, by default
    `benchmarks/results` of the checkout: of drawing, always on a CPU, of training, and of training
    by several processes that share a GPU."""
    folder = folder or checkout_path("benchmarks/results")
    names = "render-cpu-*.json", f"train-{device}-*.json", f"shared-gpu-{device}-*.json"
    return [path for name in names for path in sorted(folder.glob(name))[-1:]]


def read_rates(device: str, paths: list[Path]) -> Rates:
    """The rates for a device in these result files. DiagvibError for an invalid file, or one
    without rates for it."""
    rates = Rates([], [])
    for path in paths:
        content = read_json(path, "name a result file, like those in benchmarks/results")
        result = validated(ResultFile, content, str(path))
        machine, used = result.machine, "cpu" if result.kind == "render" else device
        device_rows = [row for row in result.rows if row.device == used]
        if not device_rows:
            other_devices = ", ".join(sorted({row.device for row in result.rows}))
            raise DiagvibError(f"{path}: no rates for {used}; its rows are for {other_devices}")
        rates.rows.extend(
            row.model_copy(update={"conditions": result.conditions})
            for row in device_rows
            if row.images_per_second
        )
        cpu = f"{machine.cores} cores of {machine.cpu}"
        rates.sources.append(f"{path.name} ({machine.gpu if used == 'cuda' else cpu})")
    return rates
