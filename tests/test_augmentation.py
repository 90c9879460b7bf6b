"""Random changes to training images: what they do to each image, and that they affect nothing else
in training."""

from itertools import permutations

import pytest
import torch
from torchvision.transforms.v2 import functional as F

from diagvib.settings.baselines import AUGMENTS
from diagvib.training.augmentation import (
    AUGMENTATIONS,
    augmentation,
    flip,
    grey,
    jitter,
    jittered,
)
from diagvib.training.batches import Batches
from diagvib.training.protocol import Protocol
from synthetic_images import separable
from synthetic_methods import small_cnn
from test_trainer import CPU, fitted


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randint(
        0, 256, (400, 6, 9, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def changed(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    assert after.dtype == torch.uint8 and after.shape == before.shape and after.is_contiguous()
    return (before != after).flatten(1).any(1)


@pytest.mark.parametrize(
    ("change", "plain", "share", "within"),
    [
        (flip, F.horizontal_flip, 0.5, 0.1),
        (grey, lambda images: F.rgb_to_grayscale(images, 3), 0.1, 0.05),
    ],
)
def test_every_other_image_is_mirrored_and_one_in_ten_is_grey(pixels, change, plain, share, within):
    torch.manual_seed(1)
    after = change(pixels)
    position = changed(pixels, after)
    expected = plain(pixels.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    assert torch.equal(after[position], expected[position])
    assert abs(position.float().mean() - share) < within


def one_by_one(image: torch.Tensor, factors: list[float], order: tuple[int, ...]) -> torch.Tensor:
    """ColorJitter's steps for one image, by torchvision's functions."""
    steps = [
        F.adjust_brightness,
        F.adjust_contrast,
        F.adjust_saturation,
        lambda x, f: F.adjust_hue(x, f - 1),
    ]
    image = image.permute(2, 0, 1).float() / 255
    for step in order:
        image = steps[step](image, factors[step])
    return image.permute(1, 2, 0) * 255


def test_colours_are_those_of_torchvision_in_every_order(pixels):
    orders = list(permutations(range(4)))
    pixels, order = pixels[: len(orders)], torch.tensor(orders)
    factors = 0.7 + 0.6 * torch.rand(len(orders), 4, generator=torch.Generator().manual_seed(2))
    after = jittered(pixels, factors, order)
    assert changed(pixels, after).all()
    for image, mine, values, single in zip(pixels, after, factors.tolist(), orders, strict=True):
        assert (mine.float() - one_by_one(image, values, single)).abs().max() <= 0.51
    assert torch.equal(jittered(pixels, torch.ones_like(factors), order), pixels)


def test_each_image_has_colours_of_its_own(pixels):
    equal = pixels[:1].expand(200, -1, -1, -1)
    torch.manual_seed(1)
    after = jitter(equal)
    assert len({image.numpy().tobytes() for image in after}) > 150
    brightness = after.float().mean((1, 2, 3)) / equal.float().mean((1, 2, 3))
    assert 0.6 < brightness.min() < 0.8 and 1.15 < brightness.max() < 1.4


def test_the_order_is_that_of_the_list(pixels):
    torch.manual_seed(4)
    expected = grey(flip(pixels))
    torch.manual_seed(4)
    assert torch.equal(augmentation(["flip", "grey"])(pixels), expected)
    assert augmentation([])(pixels) is pixels and list(AUGMENTATIONS) == list(AUGMENTS)


def test_only_what_is_learnt_from_is_augmented():
    batches = Batches(*separable(40), CPU, augment=augmentation(AUGMENTATIONS))
    batch = batches.batch(torch.arange(40))
    assert changed(batches.pixels, batch.pixels).float().mean() > 0.9
    assert torch.equal(batch.inputs, batches.inputs(batch.pixels))
    plain = batches.training_data().in_order()
    assert torch.equal(torch.cat([batch.pixels for batch in plain]), batches.pixels)


def test_an_augmented_training_repeats():
    train = Batches(*separable(60, seed=0), CPU, augment=augmentation(AUGMENTATIONS))
    val = Batches(*separable(20, seed=1), CPU, train.scaling)
    plain, protocol = Batches(train.pixels, train.labels, CPU), Protocol(2, None, 3)
    original, again, alternative = (
        fitted(small_cnn(), (data, val), protocol=protocol) for data in (train, train, plain)
    )
    assert original == again != alternative


def test_factors_and_orders_of_jitter_are_drawn_for_each_image(monkeypatch):
    monkeypatch.setattr("diagvib.training.augmentation.jittered", lambda *arguments: arguments)
    torch.manual_seed(0)
    _, factors, order = jitter(torch.zeros(2000, 2, 2, 3, dtype=torch.uint8))
    assert torch.equal(order.sort(1).values, torch.arange(4).expand(2000, 4))
    assert len(order.unique(dim=0)) == 24, "every order"
    assert 0.7 <= factors.min() < 0.71 and 1.29 < factors.max() <= 1.3
