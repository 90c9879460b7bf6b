"""What the last bits of a run depend on besides its settings, images and code, as its run.json says
it: where it was trained, in which precision, with how many threads and which packages."""

from collections.abc import Mapping


def trained_on(record: Mapping) -> str:
    """The GPU; of a run on a CPU, the processor without its number of cores, which changes nothing;
    `A then B` if the run was continued elsewhere."""
    device = record.get("device") or "cpu"
    machines = (record.get("machine") or "").split(" then ")
    processors = dict.fromkeys(name.rpartition(", ")[0] or "a CPU" for name in machines)
    return " then ".join(processors) if device == "cpu" else device


def other_conditions(record: Mapping, other: Mapping, letters: tuple[str, str]) -> str:
    """What differs between those of two runs, which are of the folders with these letters."""
    both = _conditions(record), _conditions(other)
    pairs = {name: [part.get(name, "none") for part in both] for name in {**both[0], **both[1]}}
    return ", ".join(
        f"{name} {' and '.join(f'{v} ({x})' for v, x in zip(values, letters, strict=True))}"
        for name, values in pairs.items()
        if values[0] != values[1]
    )


def _conditions(record: Mapping) -> dict[str, object]:
    return {
        "on": trained_on(record),
        "in": record.get("precision"),
        "with threads": record.get("threads"),
        **{f"with {name}": number for name, number in (record.get("versions") or {}).items()},
    }
