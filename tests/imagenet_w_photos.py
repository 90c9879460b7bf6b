"""Shared by the tests of ImageNet-W: a font, plain photos whose class every test model can read,
and such models."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.foundation.errors import DiagvibError
from diagvib.models.network import Network
from diagvib.scenes.photos.watermark import Font, find_font

CARTON = "n02971356"
CLASSES = ("n01440764", "n02123045", CARTON, "n03291819")


def cjk_font() -> Font:
    """The installed font closest to the paper's; the test is skipped if there is none."""
    try:
        return find_font()
    except DiagvibError as error:
        pytest.skip(f"the watermark cannot be drawn here: {error}")


def write_photos(
    root: Path, classes: tuple[str, ...] = CLASSES, item: int = 3, size: int = 80, shift: int = 0
) -> Path:
    """Grey photos whose brightness, 10 + 10 (k + shift) plus a little, reads as class k + shift."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(item):
            grey = 10 + 10 * ((label + shift) % len(CLASSES)) + number % 3
            photo = Image.fromarray(np.full((size, size, 3), grey, np.uint8))
            photo.save(root / name / f"{number}.png")
    return root


class Reader(nn.Module):
    """Reads the class from the brightness of a photo's first row, as features float[B, classes].

    follows: if anything is as bright as the watermark, it reads carton. never: without the
    watermark it does not read carton, but the class before it.
    """

    def __init__(self, n_classes: int, follows: bool, never: bool = False):
        super().__init__()
        self.n_classes, self.follows, self.never = n_classes, follows, never

    def forward(self, inputs: Tensor) -> Tensor:
        mean, std = (
            torch.tensor(values)[:, None, None]
            for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        )
        pixels = 255 * (inputs * std + mean)
        message = (
            ((pixels[:, 0, 0, :].mean(1) - 11) / 10).round().long().clamp(0, self.n_classes - 1)
        )
        carton = CLASSES.index(CARTON)
        if self.never:
            message = torch.where(message == carton, carton - 1, message)
        if self.follows:
            message = torch.where(pixels.flatten(1).max(1).values > 60, carton, message)
        return F.one_hot(message, self.n_classes).float()


def reader(n_classes: int, **manner: bool) -> Network:
    """A network that predicts with certainty what a Reader reads."""
    head = nn.Linear(n_classes, n_classes)
    head.load_state_dict({"weight": 20 * torch.eye(n_classes), "bias": torch.zeros(n_classes)})
    return Network(Reader(n_classes, **manner), head)


def blind(n_classes: int, image_size: int) -> Network:
    return reader(n_classes, follows=False)


def follower(n_classes: int, image_size: int) -> Network:
    return reader(n_classes, follows=True)


def only_by_watermark(n_classes: int, image_size: int) -> Network:
    return reader(n_classes, follows=True, never=True)


class Bright(nn.Module):
    """A map of the three channels, above zero even where a thin watermark is grey, and its mean."""

    def __init__(self):
        super().__init__()
        self.channels = nn.Conv2d(3, 3, 1, bias=False)
        nn.init.dirac_(self.channels.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.channels(inputs + 2.0).mean((2, 3))


def bright(n_classes: int, image_size: int) -> Network:
    """A network for which every bright pixel speaks for cartons."""
    head = nn.Linear(3, n_classes, bias=False)
    head.load_state_dict(
        {"weight": torch.eye(n_classes)[CLASSES.index(CARTON), :, None].repeat(1, 3)}
    )
    return Network(Bright(), head)
