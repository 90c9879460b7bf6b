"""The images of an epoch's batches, from a method's `sampling`."""

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Sampling


def epoch_batches(chosen: Sampling, n: int, size: int, generator: torch.Generator) -> Tensor:
    """Indices int64[steps, images] of an epoch's batches, from a method's `sampling` of n images.

    Full batches only; with fewer images than a batch, one with all of them. Each of several sets is
    used in random order, and again from the start when it is exhausted.
    """
    steps, size = epoch_shape(chosen, n, size)
    if isinstance(chosen, list):
        share = size // len(chosen)
        parts = [
            _repeated(indices.cpu(), steps * share, generator).view(steps, share)
            for indices in chosen
        ]
        return torch.cat(parts, 1)
    if chosen is None:
        order = torch.randperm(n, generator=generator)
    elif chosen.is_floating_point():
        order = torch.multinomial(chosen.cpu(), n, replacement=True, generator=generator)
    else:
        order = chosen.cpu()[torch.randperm(len(chosen), generator=generator)]
    return order[: steps * size].view(steps, size)


def epoch_shape(chosen: Sampling, n: int, size: int) -> tuple[int, int]:
    """Steps in an epoch, and images in each. DiagvibError if a batch is too small for an image of
    every set."""
    if isinstance(chosen, list):
        if size < len(chosen):
            raise DiagvibError(
                f"batch_size {size} is less than the number of sets of images, such as environments, "
                f"that every batch draws from; raise it to {len(chosen)} or more"
            )
        return n // size, size - size % len(chosen)
    images = n if chosen is None else len(chosen)
    size = min(size, images)
    return images // size, size


def _repeated(indices: Tensor, images: int, generator: torch.Generator) -> Tensor:
    """This many of these indices, int64[images]: random orders of all of them, one after
    another."""
    orders = [
        torch.randperm(len(indices), generator=generator) for _ in range(-(-images // len(indices)))
    ]
    return indices[torch.cat(orders)[:images]]
