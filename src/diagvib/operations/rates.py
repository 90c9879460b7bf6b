"""Reads the rates for a plan from the result files of benchmarks/render.py and train.py."""

from dataclasses import dataclass
from pathlib import Path

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import checkout_path, read_json

# The kinds of result file with images per second of a stage; others measure something else.
_KINDS = ("render", "train")


@dataclass(frozen=True)
class Rates:
    """Rows of result files for one kind of device. On CUDA a rate is for one GPU, on a CPU for the
    whole machine.

    files, machines: where they come from.
    """

    rows: tuple[dict, ...] = ()
    files: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    def best(self, what: str, **like: object) -> dict | None:
        """The fastest row for a measurement, or None. like: values (batch_size, precision) that a
        row must not contradict; on a CPU the rows differ in how many cores they used."""
        found = [
            row
            for row in self.rows
            if row["what"] == what
            and all(row.get(key) in (None, value) for key, value in like.items())
        ]
        return max(found, key=lambda row: row["images_per_second"], default=None)

    def phases(self, baseline: str) -> list[str]:
        """The phases of a baseline whose training was measured phase by phase; empty for others."""
        start = f"train {baseline} "
        return sorted(
            {row["what"].removeprefix(start) for row in self.rows if row["what"].startswith(start)}
        )


def measured_rates(device: str, folder: Path | None = None) -> Rates:
    """The rates of the newest result file of each kind that has some for the device; empty if there
    is none.

    folder: default `benchmarks/results` of the checkout.
    """
    folder = folder or checkout_path("benchmarks/results")
    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        result = read_json(path)
        if result.get("kind") in _KINDS and any(
            row.get("device") == device for row in result["rows"]
        ):
            newest[result["kind"]] = max(
                newest.get(result["kind"], ("",)),
                (result["date"], path),
                key=lambda entry: entry[0],
            )
    return read_rates(device, [path for _, path in newest.values()])


def read_rates(device: str, paths: list[Path]) -> Rates:
    """The rates for a device in these result files. DiagvibError for an invalid file, or one
    without rates for it."""
    rows, machines = [], []
    for path in paths:
        result = _result(path)
        found = [
            row
            for row in result["rows"]
            if row.get("device") == device and "images_per_second" in row
        ]
        if not found:
            raise DiagvibError(
                f"{path}: no rates for {device}; its rows are for "
                f"{', '.join(sorted({str(row.get('device')) for row in result['rows']}))}"
            )
        rows += found
        machines.append(_machine(result.get("machine", {}), device))
    return Rates(
        tuple(rows),
        tuple(path.name for path in paths),
        tuple(dict.fromkeys(filter(None, machines))),
    )


def file_device(path: Path) -> str:
    """The device of a result file: cpu or cuda."""
    return _result(path)["device"]


def _result(path: Path) -> dict:
    result = read_json(path)
    if (
        not isinstance(result, dict)
        or result.get("kind") not in _KINDS
        or not {"device", "rows"} <= result.keys()
    ):
        raise DiagvibError(
            f"{path}: not a result file of benchmarks/render.py or benchmarks/train.py; those have "
            "the keys kind, device and rows"
        )
    rows = result["rows"] if isinstance(result["rows"], list) else [result["rows"]]
    for number, row in enumerate(rows):
        rate = row.get("images_per_second", 1) if isinstance(row, dict) else None
        if (
            not isinstance(rate, int | float)
            or not rate > 0
            or not isinstance(row.get("what"), str)
        ):
            raise DiagvibError(
                f"{path}: rows.{number}: {one_line(row, 120)} is not a measurement; it needs `what`, a "
                "text, and `images_per_second`, a positive number"
            )
    return result


def _machine(machine: dict, device: str) -> str:
    if device == "cuda":
        return str(machine.get("gpu") or "")
    return (
        f"{machine['cores']} cores of {machine['cpu']}"
        if "cores" in machine and "cpu" in machine
        else ""
    )
