"""The images of an epoch's batches, from a method's `sampling`."""

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.methods.method import Sampling


def epoch_batches(
    sampling: Sampling, n: int, size: int, generator: torch.Generator, drop_last: bool = True
) -> tuple[Tensor, ...]:
    """Indices of an epoch's batches, int64[images] each, from a method's `sampling` of n images.

    Each of several sets is used in random order, and in a new random order when it is exhausted.
    """
    images, size = epoch_shape(sampling, n, size, drop_last)
    if isinstance(sampling, list):
        share = size // len(sampling)
        parts = [
            _repeated(indices.cpu(), images // len(sampling), generator).view(-1, share)
            for indices in sampling
        ]
        order = torch.cat(parts, 1).flatten()
    elif sampling is None:
        order = torch.randperm(n, generator=generator)
    elif sampling.is_floating_point():
        order = torch.multinomial(sampling.cpu(), n, replacement=True, generator=generator)
    else:
        order = sampling.cpu()[torch.randperm(len(sampling), generator=generator)]
    return order[:images].split(size)


def check_sampling(sampling: Sampling, n: int) -> None:
    """DiagvibError for weights of another number of images than n, or negative indices, either of
    which torch would take for those of other images. Reads them; not for use in a step."""
    for part in sampling if isinstance(sampling, list) else [] if sampling is None else [sampling]:
        if len(part) != n if part.is_floating_point() else part.min() < 0:
            raise DiagvibError(
                f"method: sampling gives {one_line(part, 120)}; None, a weight for each of the {n} "
                f"training images, or indices from 0 to {n - 1} are needed"
            )


def epoch_shape(sampling: Sampling, n: int, size: int, drop_last: bool) -> tuple[int, int]:
    """Images in an epoch, and in each full batch. With fewer images than a batch, one batch has all
    of them; otherwise drop_last leaves out the last, incomplete one. With several sets there is
    none. DiagvibError if a batch is too small for an image of every set."""
    if isinstance(sampling, list):
        if size < len(sampling):
            raise DiagvibError(
                f"batch_size {size} is less than the number of sets of images, such as environments, "
                f"that every batch draws from; raise it to {len(sampling)} or more"
            )
        share = size - size % len(sampling)
        return n // size * share, share
    images = n if sampling is None else len(sampling)
    size = min(size, images)
    return images - drop_last * (images % size), size


def _repeated(indices: Tensor, images: int, generator: torch.Generator) -> Tensor:
    """This many of these indices, int64[images]: random orders of all of them, one after
    another."""
    orders = [
        torch.randperm(len(indices), generator=generator) for _ in range(-(-images // len(indices)))
    ]
    return indices[torch.cat(orders)[:images]]
