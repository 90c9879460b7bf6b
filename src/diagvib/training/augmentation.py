"""Random changes to training images that keep their class: flips, colours, grey. On the training
device, per image.

Random numbers come from torch's global generator on that device, which every epoch seeds, so that
runs can be repeated and continued exactly. torchvision, which loads torch's compiler, is imported
only when colours change.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor

FLIPPED, GREY = 0.5, 0.1  # of all images
JITTER = 0.3  # brightness, contrast, saturation: times 1 - JITTER to 1 + JITTER; hue: shifted by JITTER of a circle
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)

Augmentation = Callable[[Tensor], Tensor]  # uint8[B, H, W, 3] to the same


def augmentation(names: Sequence[str]) -> Augmentation:
    """The named changes, one after another in this order."""
    return lambda pixels: reduce(lambda images, name: AUGMENTATIONS[name](images), names, pixels)


def flip(pixels: Tensor) -> Tensor:
    """Half of the images mirrored, left to right."""
    return torch.where(_chosen(pixels, FLIPPED), pixels.flip(2), pixels)


def grey(pixels: Tensor) -> Tensor:
    """One image in ten without colours."""
    from torchvision.transforms.v2 import functional as F

    images = pixels.permute(0, 3, 1, 2)
    return torch.where(
        _chosen(pixels, GREY), F.rgb_to_grayscale(images, 3).permute(0, 2, 3, 1), pixels
    )


def jitter(pixels: Tensor) -> Tensor:
    """Random brightness, contrast, saturation and hue, like torchvision's ColorJitter, in a random
    order for each image."""
    images, device = len(pixels), pixels.device
    factors = 1 + JITTER * (2 * torch.rand(images, 4, device=device) - 1)
    return jittered(pixels, factors, torch.rand(images, 4, device=device).argsort(1))


def jittered(pixels: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """factors: float[B, 4], of brightness, contrast, saturation; the last minus 1 is the shift of
    the hue, in circles. order: int64[B, 4], the order in which these are applied."""
    from torchvision.transforms.v2 import functional as F
    from torchvision.transforms.v2.functional._color import (
        _hsv_to_rgb,
        _rgb_to_hsv,
    )  # adjust_hue has one shift for all

    images = pixels.permute(0, 3, 1, 2).float() / 255
    for step in order.unbind(1):
        kind, factor = step.view(-1, 1, 1, 1), factors.gather(1, step[:, None]).view(-1, 1, 1, 1)
        grey = F.rgb_to_grayscale(images)
        # Each except the hue moves an image towards or away from another one: black, its mean grey,
        # itself in grey.
        anchor = torch.where(kind == _CONTRAST, grey.mean((1, 2, 3), keepdim=True), grey)
        anchor = anchor.masked_fill(kind == _BRIGHTNESS, 0)
        hue, *saturation_and_value = _rgb_to_hsv(images).unbind(1)
        turned = _hsv_to_rgb(
            torch.stack([(hue + factor.view(-1, 1, 1) - 1).remainder(1), *saturation_and_value], 1)
        )
        images = torch.where(
            kind == _HUE, turned, (factor * images + (1 - factor) * anchor).clamp(0, 1)
        )
    return (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _chosen(pixels: Tensor, share: float) -> Tensor:
    """Whether each image is chosen, with probability `share`: bool[B, 1, 1, 1]."""
    return (torch.rand(len(pixels), device=pixels.device) < share).view(-1, 1, 1, 1)


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "jitter": jitter, "grey": grey}
