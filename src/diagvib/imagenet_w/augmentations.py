"""How methods for last layers change training photos before their features are computed: each batch
once, seeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from diagvib.foundation.seeding import name_digest, named_generator
from diagvib.imagenet_w.photos import Preprocessing
from diagvib.imagenet_w.watermark import Font, blend, random_watermark
from diagvib.methods.method import Batch, Method
from diagvib.methods.registry import make_baseline

# Number of photos augmented together; it affects the result, since mixup and cutmix mix within
# them.
TOGETHER = 256
CLEAN, WATERMARK = "clean", "watermark"
# The options of the authors' code for ImageNet; cutout erases in every photo here, and a tenth of
# them is drawn later.
_OPTIONS = {"mixup": {"alpha": 0.2}, "cutmix": {"alpha": 1.0}, "cutout": {"p": 1.0}, "augmix": {}}


@dataclass(frozen=True)
class Augmented:
    """inputs float32[B, 3, S, S]; share: the weight of each photo's own label, float32[B]; the rest
    belongs to the previous photo in the batch."""

    inputs: Tensor
    share: Tensor


@dataclass(frozen=True)
class Context:
    """What augmentations need in addition to the photos. number: of the batch."""

    preprocessing: Preprocessing
    font: Font
    number: int


def augmented(variant: str, pixels: Tensor, context: Context) -> Augmented:
    """A batch of photos uint8[B, 3, S, S] as one of VARIANTS; independent of which other variants
    are made."""
    family, _, view = variant.partition(".")
    seed = int.from_bytes(name_digest("imagenet_w", family, context.number)[:7], "big")
    with torch.random.fork_rng([pixels.device] if pixels.device.type == "cuda" else []):
        torch.manual_seed(seed)
        return VARIANTS[variant](family, int(view or 0), pixels, context)


def _clean(family: str, view: int, pixels: Tensor, context: Context) -> Augmented:
    return Augmented(context.preprocessing.inputs(pixels), torch.ones(len(pixels)))


def _watermarked(family: str, view: int, pixels: Tensor, context: Context) -> Augmented:
    """Every photo with a random watermark."""
    generator = named_generator("imagenet_w", family, context.number)
    shown = [
        blend(each, random_watermark(each.shape[-1], context.font, generator)) for each in pixels
    ]
    return _clean(family, view, torch.stack(shown), context)


def _by_method(family: str, view: int, pixels: Tensor, context: Context) -> Augmented:
    """By a method's own `augment`. Labels that number the photos reveal the weight that it leaves
    to each of them."""
    numbers = torch.arange(len(pixels), device=pixels.device)
    nothing = torch.zeros_like(numbers)
    batch = _method(family, TOGETHER).augment(
        Batch(
            pixels.permute(0, 2, 3, 1),
            context.preprocessing.inputs(pixels),
            numbers,
            nothing[:, None],
            nothing,
            numbers,
        )
    )
    share = (
        batch.labels.diagonal().cpu()
        if batch.labels.is_floating_point()
        else torch.ones(len(pixels))
    )
    return Augmented(batch.inputs, share.float())


def _augmix(family: str, view: int, pixels: Tensor, context: Context) -> Augmented:
    method = _method(family, TOGETHER)
    method.data = SimpleNamespace(
        inputs=lambda shown: context.preprocessing.inputs(shown.permute(0, 3, 1, 2))
    )
    return Augmented(method.views(pixels.permute(0, 2, 3, 1))[view], torch.ones(len(pixels)))


@cache
def _method(name: str, numbers: int) -> Method:
    # Its network is not used, only its changes to images.
    settings = {
        "model": {"name": "linear", "options": {"features": 1}},
        "method": {"name": name, **_OPTIONS[name]},
    }
    return make_baseline(settings, numbers, 0, seed=0)


VARIANTS: dict[str, Callable[[str, int, Tensor, Context], Augmented]] = {
    CLEAN: _clean,
    WATERMARK: _watermarked,
    "mixup": _by_method,
    "cutmix": _by_method,
    "cutout": _by_method,
    "augmix.1": _augmix,
    "augmix.2": _augmix,
}
