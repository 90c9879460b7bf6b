"""Random changes to training images: what they do to each image, and that they affect nothing else
in training."""

import json
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from torchvision.transforms.v2 import functional as F

from diagvib.foundation.errors import DiagvibError
from diagvib.images.datasets import ImageFiles
from diagvib.settings.baselines import AUGMENTS, complete, load_settings
from diagvib.training.augmentation import (
    AUGMENTATIONS,
    FLIPPED,
    GREY,
    augmentation,
    flip,
    grey,
    jitter,
    jittered,
)
from diagvib.training.batches import Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol
from diagvib.training.run import Folders, Job, train_runs
from synthetic_images import separable, write_dataset
from synthetic_methods import small_cnn
from test_trainer import CPU, RUN, Interrupted, Interruption, fit, fitted

ALL = ["flip", "jitter", "grey"]


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randint(
        0, 256, (400, 6, 9, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def changed(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    assert after.dtype == torch.uint8 and after.shape == before.shape and after.is_contiguous()
    return (before != after).flatten(1).any(1)


def test_every_other_image_is_mirrored(pixels):
    torch.manual_seed(1)
    after = flip(pixels)
    at = changed(pixels, after)
    assert torch.equal(after[at], pixels[at].flip(2))
    assert abs(at.float().mean() - FLIPPED) < 0.1


def test_one_image_in_ten_is_grey(pixels):
    torch.manual_seed(1)
    after = grey(pixels)
    at = changed(pixels, after)
    plain = F.rgb_to_grayscale(pixels.permute(0, 3, 1, 2), 3).permute(0, 2, 3, 1)
    assert torch.equal(after[at], plain[at])
    assert abs(at.float().mean() - GREY) < 0.05


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
    for image, mine, its, one in zip(pixels, after, factors.tolist(), orders, strict=True):
        assert (mine.float() - one_by_one(image, its, one)).abs().max() <= 0.51
    assert torch.equal(jittered(pixels, torch.ones_like(factors), order), pixels)


def test_each_image_has_colours_of_its_own(pixels):
    same = pixels[:1].expand(200, -1, -1, -1)
    torch.manual_seed(1)
    after = jitter(same)
    assert len({image.numpy().tobytes() for image in after}) > 150
    brightness = after.float().mean((1, 2, 3)) / same.float().mean((1, 2, 3))
    assert 0.6 < brightness.min() < 0.8 and 1.15 < brightness.max() < 1.4


def test_the_order_is_that_of_the_list(pixels):
    for names in (["flip", "grey"], ["grey", "flip"], ["jitter"]):
        torch.manual_seed(4)
        expected = pixels
        for name in names:
            expected = AUGMENTATIONS[name](expected)
        torch.manual_seed(4)
        assert torch.equal(augmentation(names)(pixels), expected)
    assert augmentation(None) is None and set(AUGMENTATIONS) == set(AUGMENTS)


def test_only_what_is_learnt_from_is_augmented():
    batches = Batches(*separable(40), CPU, augment=augmentation(ALL))
    index = torch.arange(40)
    batch = batches.batch(index)
    assert changed(batches.pixels, batch.pixels).float().mean() > 0.9
    assert torch.equal(batch.inputs, batches.inputs(batch.pixels))
    assert torch.equal(torch.cat([batch.pixels for batch in batches.in_order()]), batches.pixels)
    data = batches.training_data()
    assert torch.equal(torch.cat([batch.pixels for batch in data.in_order()]), batches.pixels)
    assert changed(batches.pixels, data.batch(index).pixels).any()
    assert changed(batches.pixels, data.augment(batches.pixels)).any()


def test_without_augmentation_no_random_number_is_drawn():
    batches = Batches(*separable(40), CPU)
    before = torch.get_rng_state()
    batch = batches.batch(torch.arange(40))
    assert torch.equal(batch.pixels, batches.pixels) and torch.equal(torch.get_rng_state(), before)
    assert batches.training_data().augment(batches.pixels) is batches.pixels


@pytest.fixture(scope="module")
def data():
    train = Batches(*separable(60, seed=0), CPU, augment=augmentation(ALL))
    return train, Batches(*separable(20, seed=1), CPU, train.scaling)


def test_an_augmented_training_repeats_and_continues_bit_for_bit(data, tmp_path):
    protocol = Protocol(max_epochs=3, patience=None, seed=3)
    whole = fitted(small_cnn(), data, protocol=protocol)
    assert fitted(small_cnn(), data, protocol=protocol) == whole
    for number, where in enumerate(
        [Interruption(step=2), Interruption(epoch=1), Interruption(epoch=2)]
    ):
        checkpoint = Checkpoint(tmp_path / f"{number}.pt", "d")
        with pytest.raises(Interrupted):
            fit(small_cnn(), data, checkpoint, where, protocol=protocol)
        assert fitted(small_cnn(), data, protocol=protocol, checkpoint=checkpoint) == whole
    plain = Batches(data[0].pixels, data[0].labels, CPU), data[1]
    assert fitted(small_cnn(), plain, protocol=protocol) != whole


def test_a_run_tells_how_its_images_were_augmented(tmp_path):
    write_dataset(tmp_path / "images", "zso", "hue", 0)
    settings = {key: value for key, value in load_settings("small_cnn").items() if key != "origin"}
    assert "augment" not in settings, "a run without it records what it did before the key existed"
    job = Job(
        {**settings, "augment": ["flip"], "batch_size": 16},
        Protocol(1, None, 3),
        CPU,
        ImageFiles(tmp_path / "images"),
    )
    train_runs(
        job, [replace(RUN, study="zso")], Folders(tmp_path / "runs", tmp_path / "checkpoints")
    )
    assert json.loads((tmp_path / "runs/0/run.json").read_text())["settings"]["augment"] == ["flip"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["flop"], r"x\.augment"),
        ("flip", r"x\.augment"),
        ([], r"x\.augment"),
        (["flip", "flip"], "listed twice"),
    ],
)
def test_what_is_no_augmentation_is_refused(given, says):
    entry = {
        "model": "small_cnn",
        "method": "erm",
        "optimiser": {"name": "adam", "lr": 0.1},
        "batch_size": 8,
        "origin": "x",
    }
    assert complete({**entry, "augment": ALL}, "x")["augment"] == ALL
    with pytest.raises(DiagvibError, match=says):
        complete({**entry, "augment": given}, "x")
