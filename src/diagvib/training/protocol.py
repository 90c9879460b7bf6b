"""Precision, seeds and threads of all training and prediction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from diagvib.foundation.devices import has_bf16
from diagvib.foundation.seeding import generators_restored, name_seed
from diagvib.settings.layout import Run


@dataclass(frozen=True)
class Protocol:
    """The `training` part of the configuration. patience None: all epochs. threads: CPU threads,
    which affect the result.

    track_test: the history also records each epoch's accuracy on the test groups, which selects
    nothing.
    """

    max_epochs: int
    patience: int | None
    seed: int
    precision: str = "bf16"
    threads: int = 1
    track_test: bool = False

    def on(self, device: torch.device) -> str:
        """The precision used: bf16 only if the device has instructions for it."""
        return self.precision if has_bf16(device) else "fp32"

    def autocast(self, device: torch.device) -> torch.autocast:
        # Without the cache: a step may update weights more than once, and a cached copy would then
        # be stale.
        enabled = self.on(device) == "bf16"
        return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def epoch_seed(run: Run, seed: int, epoch: int) -> int:
    """Seed of one epoch's order and noise; the same for every baseline on the same data."""
    return name_seed(seed, run.study, run.binding, run.sample, epoch)


@contextmanager
def deterministic(device: torch.device, threads: int) -> Iterator[None]:
    """Fix what torch would otherwise take from the machine or the process, and restore it
    afterwards.

    On the CPU the number of threads affects the order of sums, hence the last bits of every result.
    On a GPU fp32 means fp32: no TF32, which torch allows for convolutions, with 10 bits of mantissa
    where fp32 has 23.
    """
    before = (
        torch.get_num_threads(),
        torch.get_deterministic_debug_mode(),
        torch.backends.cuda.matmul.fp32_precision,
        torch.utils.deterministic.fill_uninitialized_memory,
    )
    # Deterministic algorithms would otherwise also fill every new tensor, which takes time and has
    # no effect here.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    if device.type == "cpu":
        torch.set_deterministic_debug_mode(
            "warn"
        )  # use_deterministic_algorithms would load torch's compiler
    # All batches have the same shape, so the search for the fastest convolution pays off.
    with (
        generators_restored([torch.cuda.current_device()] if device.type == "cuda" else []),
        torch.backends.cudnn.flags(
            enabled=True, benchmark=True, deterministic=False, allow_tf32=False
        ),
    ):
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            torch.set_deterministic_debug_mode(before[1])
            torch.backends.cuda.matmul.fp32_precision = before[2]
            torch.utils.deterministic.fill_uninitialized_memory = before[3]
