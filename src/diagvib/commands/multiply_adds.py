"""Floating-point operations of a baseline's steps, for plans of baselines that nobody has timed; and
the size of published weights.

Those of DiagViB-6's baselines are in a table (`python benchmarks/multiply_adds.py`), since counting
takes seconds for each; others are counted when a plan asks.
"""

import csv
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

from diagvib.foundation.files import text_sha256

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("baseline", "settings", "image_size", "predict", "train", "weights", "bytes")
_IMAGES, _CLASSES = 2, 10
# What a method's step raises without what `setup` gives it: attributes, or entries of its memory.
_WITHOUT_DATA = AttributeError, KeyError


def operations(settings: dict, image_size: int) -> dict[str, float]:
    """Operations for one image of this size: `predict`, and `train` with a step of every phase.

    settings: a baseline's. Of a frozen network, only `predict` with its own input size. {} for the
    user's own code, which a plan does not run, and for methods whose steps need more than a batch.
    """
    row = _table().get((settings_digest(settings), image_size))
    if row is None:
        return _counted(json.dumps(settings), image_size)
    return {step: float(row[step]) for step in ("predict", "train") if row[step]}


def weights_bytes(model: str, name: str) -> int | None:
    """The size of published weights; None if the table lacks it."""
    sizes = {row["weights"]: int(row["bytes"]) for row in _table().values() if row["weights"]}
    return sizes.get(f"{model} {name}")


def settings_digest(settings: dict) -> str:
    """Of the settings that decide how much a step computes."""
    parts = [settings["model"], settings["method"]]
    return text_sha256(json.dumps(parts, sort_keys=True))[:16]


@cache
def _table() -> dict[tuple[str, int], dict[str, str]]:
    with TABLE.open(newline="") as file:
        return {(row["settings"], int(row["image_size"])): row for row in csv.DictReader(file)}


@cache
def _counted(settings_text: str, image_size: int) -> dict[str, float]:
    return count(json.loads(settings_text), image_size)


def count(settings: dict, image_size: int) -> dict[str, float]:
    """`operations`, counted in one step: without computing it, or, where only a device can take it
    (random numbers, autocast), on black images."""
    method, model = settings["method"]["name"], settings["model"] or {}
    if ":" in method + model.get("name", ""):
        return {}
    try:
        try:
            return _count_on("meta", settings, image_size)
        except RuntimeError:
            return _count_on("cpu", settings, image_size)
    except _WITHOUT_DATA:
        return {}


def _count_on(device: str, settings: dict, image_size: int) -> dict[str, float]:
    import torch

    from diagvib.methods.registry import make_baseline

    model = settings["model"] or {}
    size = (model.get("input") or {}).get("size") or image_size
    plain = {**model, "weights": None, "frozen": False} if model else None
    with torch.device(device):
        batch = _batch(size)
        network = make_baseline({**settings, "model": plain}, _CLASSES, size, seed=0)
        counts = {"predict": _count(lambda: network.eval().predict(batch))}
        if model.get("frozen"):
            return counts
        phases = [phase.name for phase in network.phases(None)]
        train = sum(_count(_step(network.train(), phase, batch)) for phase in phases)
    return {**counts, "train": train}


def _step(method, phase: str, batch) -> Callable[[], object]:
    """A training step; what no optimiser of the phase holds learns nothing."""
    method.requires_grad_(True)
    optimised = {
        id(p) for optimiser in method.optimisers(phase).values() for p in optimiser.parameters
    }
    for parameter in method.parameters():
        parameter.requires_grad_(id(parameter) in optimised)
    return lambda: method.training_step(phase, batch, lambda name, loss: loss.backward())


class _Whole(nullcontext):
    """Counts are not told apart by module."""

    parents = ("Global",)


def _batch(size: int):
    import torch

    from diagvib.methods.method import Batch

    indices = torch.zeros(_IMAGES, dtype=torch.int64)
    pixels = torch.zeros(_IMAGES, size, size, 3, dtype=torch.uint8)
    return Batch(
        pixels, torch.zeros(_IMAGES, 3, size, size), indices, indices[:, None], indices, indices
    )


def _count(compute: Callable[[], object]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    # Its own cannot follow a step that asks for gradients of its images.
    counter.mod_tracker = _Whole()
    with counter:
        compute()
    return counter.get_total_flops() / _IMAGES
