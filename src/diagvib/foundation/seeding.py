"""Randomness as an argument: generators seeded by names, so that anything can be drawn again by
itself, in any order."""

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np


def named_generator(*names: object) -> np.random.Generator:
    """A random generator seeded by names alone: the same on every machine and in any order of
    calls."""
    return np.random.default_rng(int.from_bytes(name_digest(*names), "big"))


def name_digest(*names: object) -> bytes:
    """32 bytes that depend only on the names."""
    return hashlib.sha256("/".join(str(name) for name in names).encode()).digest()


def name_seed(*names: object) -> int:
    """A seed of torch that depends only on the names."""
    return int.from_bytes(name_digest(*names)[:7], "big")


@contextmanager
def generators_restored(devices: Sequence = ()) -> Iterator[None]:
    """Afterwards, the global generators of torch (the CPU's, those of all GPUs in use, and these
    devices'), NumPy and Python's `random` are as they were before."""
    import torch

    numpy, python = np.random.get_state(), random.getstate()
    if torch.cuda.is_initialized():  # a seed is set on all
        devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            np.random.set_state(numpy)
            random.setstate(python)


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python's `random`."""
    import torch  # here, because it takes long to load

    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
