"""Whether an image's features are its own: the same in every call, whichever images come with it."""

from collections.abc import Callable

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError

_IMAGES = 16  # that are computed three times
# Distances that count as rounding: shares of the spread between images, and of the features' size.
# All batches have as many images, so that on a CPU float32 and bfloat16 give the same bits; the
# shares leave room for devices where an image's place decides its rounding. Batch norm by the
# batch's own statistics moves features by 1.6 times their size or more (three of torchvision's).
_OF_SPREAD, _OF_SIZE = 0.01, 0.001


@torch.no_grad()
def check_independent(features: Callable[[Tensor], Tensor], images: Tensor, location: str) -> None:
    """DiagvibError, beginning with `location` and naming the likely reason, if features change from
    call to call, or with the other images of a batch or the order, or if the images change.

    features: images [B, ...] to features [B, ...]. images: [N, ...], of which a few are used.
    """
    if len(images) < 2:
        return
    batch = images[torch.linspace(0, len(images) - 1, min(_IMAGES, len(images))).long()]
    half = batch[: len(batch) // 2]
    filler = batch[:1].expand(len(batch) - len(half), *batch.shape[1:])

    def computed(*parts: Tensor) -> Tensor:
        return features(torch.cat(parts)).flatten(1).double().cpu()

    copy = batch.clone()
    values = features(copy).flatten(1).double().cpu()
    if not torch.equal(copy, batch):
        raise DiagvibError(
            f"{location}: it changes the images in place, so that they are others in the next call; "
            "change a copy (`clone()`)"
        )
    spread = (values - values.mean(0)).norm(dim=1).square().mean().sqrt()
    rounding = _OF_SPREAD * spread + _OF_SIZE * values.norm(dim=1).square().mean().sqrt()

    def differ(parts: Tensor) -> bool:
        return bool((parts - values[: len(parts)]).norm(dim=1).max() > rounding)

    if differ(computed(batch)):
        raise DiagvibError(
            f"{location}: the features of the same images differ from call to call: dropout is active, "
            "or random numbers are drawn; call .eval() on the network, and draw none"
        )
    if not differ(computed(filler, half.flip(0)).flip(0)[: len(half)]):
        return
    if differ(computed(half, filler)[: len(half)]):
        raise DiagvibError(
            f"{location}: an image's features depend on which images come with it: batch norm is in "
            "training mode or lacks running statistics, or features are standardised per call; call "
            ".eval() on the network, and scale by fixed numbers"
        )
    raise DiagvibError(
        f"{location}: an image's features depend on its place among the others; compute those of each "
        "image in the same way"
    )
