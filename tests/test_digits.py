"""Digits: the prepared ones are the published generator's, and each belongs to one split."""

import numpy as np

from conftest import refused
from diagvib.scenes.digits.digits import prepare_digit, read_mnist, split_names
from diagvib.scenes.digits.embedded import embedded_digits


def test_prepared_digits_are_the_published_generators(mirror, golden):
    files = dict(zip(("train", "test"), read_mnist(mirror / "mnist"), strict=True))
    selection = zip(golden["mnist_file"], golden["mnist_index"], strict=True)
    ours = np.stack([prepare_digit(files[file].images[index]) for file, index in selection]).astype(
        int
    )
    difference = np.abs(ours - golden["prepared_digit"])
    assert (difference == 0).mean() >= 0.99
    assert difference.max() <= 2


def test_mnist_is_split_80_20_within_each_class(mirror):
    training, test = read_mnist(mirror / "mnist")
    splits, labels = split_names(training, test), np.concatenate([training.labels, test.labels])
    assert [(splits == name).sum() for name in ("train", "val", "test")] == [48_000, 12_000, 10_000]
    assert (splits[60_000:] == "test").all()
    for label in range(10):
        counts = [((labels == label) & (splits == name)).sum() for name in ("train", "val")]
        assert counts[0] == round(0.8 * sum(counts))


def test_digit_is_fitted_into_28_pixels_and_centred():
    digit = np.zeros((28, 28), np.uint8)
    digit[3:17, 20:27] = 255  # 14 x 7, off centre
    digit[25, 2] = 100  # not above the threshold, so not part of the digit
    prepared = prepare_digit(digit)
    rows, columns = np.flatnonzero(prepared.any(axis=1)), np.flatnonzero(prepared.any(axis=0))
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (6, 33, 13, 26)


def test_image_without_a_digit_is_named():
    with refused("an image without a digit: no pixel is above 100"):
        prepare_digit(np.full((28, 28), 100, np.uint8))


def test_embedded_digits_show_their_label():
    """A nearest-mean rule learnt on the training part recognises the test part."""
    training, test = embedded_digits()
    means = np.stack([training.images[training.labels == label].mean(0) for label in range(10)])
    guess = ((test.images[:, None] - means) ** 2).sum((2, 3)).argmin(1)
    assert (guess == test.labels).mean() > 0.8
