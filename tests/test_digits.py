"""Digits: the prepared ones are the published generator's, and each belongs to one split."""

import gzip

import numpy as np
import pytest

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits.digits import (
    RawDigits,
    prepare_digit,
    prepare_digits,
    read_mnist,
    split_names,
)
from diagvib.scenes.digits.embedded import embedded_digits
from synthetic_sources import write_idx, write_sources


@pytest.fixture
def raw(tmp_path):
    return write_sources(tmp_path / "raw")


def test_prepared_digits_are_the_published_generators(mirror, golden):
    files = dict(zip(("train", "test"), read_mnist(mirror / "mnist"), strict=True))
    chosen = zip(golden["mnist_file"], golden["mnist_index"], strict=True)
    ours = np.stack([prepare_digit(files[file].images[index]) for file, index in chosen]).astype(
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
    images = np.full((2, 28, 28), 100, np.uint8)
    images[0, 5:20, 5:20] = 200
    raw = RawDigits("train", images, np.array([3, 7]), np.array([11, 12], np.int32))
    with pytest.raises(
        DiagvibError, match=r"train: digit 12 \(label 7\): an image without a digit"
    ):
        prepare_digits(raw)


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda b: b[: len(b) // 2], "end-of-stream"),
        (lambda b: b"no gzip at all", "Not a gzipped file"),
        (lambda b: gzip.compress(gzip.decompress(b)[:-1]), "cannot reshape"),
        (lambda b: gzip.compress(b""), "buffer"),
        (lambda b: gzip.compress(b"\0\0\x08\x01" + gzip.decompress(b)[4:]), "begins with 2049"),
    ],
)
def test_a_damaged_mnist_file_is_named(raw, damage, part):
    path = raw / "mnist/t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DiagvibError, match=rf"{path.name}: .*{part}.*diagvib fetch"):
        read_mnist(raw / "mnist")


def test_labels_must_match_images(raw):
    path = raw / "mnist/t10k-labels-idx1-ubyte.gz"
    for labels in (np.zeros(39), np.full(40, 10)):
        write_idx(path, labels)
        with pytest.raises(DiagvibError, match="one label of 0..9 per image"):
            read_mnist(raw / "mnist")


def test_embedded_digits_show_their_label():
    """A nearest-mean rule learnt on the training part recognises the test part."""
    training, test = embedded_digits()
    means = np.stack([training.images[training.labels == label].mean(0) for label in range(10)])
    guess = ((test.images[:, None] - means) ** 2).sum((2, 3)).argmin(1)
    assert (guess == test.labels).mean() > 0.8
