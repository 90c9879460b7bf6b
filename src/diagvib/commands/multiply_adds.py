"""Floating-point operations of a baseline's steps, counted in one step on two black images: for plans
of baselines that nobody has timed."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from diagvib.methods.method import Batch, Method
from diagvib.methods.registry import make_baseline

_IMAGES, _CLASSES = 2, 10


def operations(settings: dict, image_size: int) -> dict[str, float]:
    """Operations for one image of this size: `predict`, and `train` with a step of every phase.

    settings: a baseline's. Of a frozen network, only `predict` with its own input size. {} for the
    user's own code, which a plan does not run, and for methods whose steps need more than a batch.
    """
    return _operations(json.dumps(settings), image_size)


@cache
def _operations(settings_text: str, image_size: int) -> dict[str, float]:
    settings = json.loads(settings_text)
    model, method = settings["model"] or {}, settings["method"]["name"]
    if ":" in method + model.get("name", ""):
        return {}
    frozen, size = model.get("frozen"), (model.get("input") or {}).get("size") or image_size
    plain = {**model, "weights": None, "frozen": False} if model else None
    counts: dict[str, float] = {}
    with suppress(Exception):  # a method that needs its training data
        network = make_baseline({**settings, "model": plain}, _CLASSES, size, seed=0)
        batch, phases = _batch(size), _phases(network)
        counts["predict"] = _count(lambda: network.eval().predict(batch))
        if not frozen:
            counts["train"] = sum(_count(_step(network.train(), name, batch)) for name in phases)
    return counts if frozen or "train" in counts else {}


def _phases(method: Method) -> list[str]:
    return [phase.name for phase in method.phases(None)]


def _step(method: Method, phase: str, batch: Batch) -> Callable[[], object]:
    """A training step; what no optimiser of the phase holds learns nothing."""
    method.requires_grad_(True)
    optimised = {
        id(p) for optimiser in method.optimisers(phase).values() for p in optimiser.parameters
    }
    for parameter in method.parameters():
        parameter.requires_grad_(id(parameter) in optimised)
    return lambda: method.training_step(phase, batch, lambda name, loss: loss.backward())


def _batch(size: int) -> Batch:
    indices = torch.zeros(_IMAGES, dtype=torch.int64)
    pixels = torch.zeros(_IMAGES, size, size, 3, dtype=torch.uint8)
    return Batch(
        pixels, torch.zeros(_IMAGES, 3, size, size), indices, indices[:, None], indices, indices
    )


def _count(compute: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        compute()
    return counter.get_total_flops() / _IMAGES
