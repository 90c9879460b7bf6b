"""Digits: from the MNIST files to 40 x 40 objects, each belonging to one split (paper, Sec.
3.1)."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.seeding import named_generator

RAW_SIZE = 28
DIGIT_SIZE = 40
# the larger side of a prepared digit: floor(40 / sqrt 2), so that it would fit under any rotation
FITTED_SIZE = 28
# pixels above this belong to the digit when its bounding box is computed
BOX_THRESHOLD = 100
TRAIN_FRACTION = 0.8


@dataclass(frozen=True)
class RawDigits:
    """Digits as in their source: images uint8[N, 28, 28], labels int64[N], places int32[N], their
    positions in `file`."""

    file: str
    images: np.ndarray
    labels: np.ndarray
    places: np.ndarray


def prepare_digit(digit: np.ndarray) -> np.ndarray:
    """A digit uint8[28, 28], cropped, enlarged and centred: uint8[40, 40].

    Truncation and offsets are the published generator's. DiagvibError if no pixel is above 100:
    then there is no digit.
    """
    from skimage.transform import rescale

    rows, columns = (np.flatnonzero((digit > BOX_THRESHOLD).any(axis=axis)) for axis in (1, 0))
    if rows.size == 0:
        raise DiagvibError(f"an image without a digit: no pixel is above {BOX_THRESHOLD}")
    crop = digit[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    factor = min(FITTED_SIZE / crop.shape[0], FITTED_SIZE / crop.shape[1])
    fitted = (
        rescale(crop, factor, order=3, anti_aliasing=True, preserve_range=True)
        .clip(0, 255)
        .astype(np.uint8)
    )
    canvas = np.zeros((DIGIT_SIZE, DIGIT_SIZE), dtype=np.uint8)
    row, column = (int((DIGIT_SIZE - 1) / 2 - (side - 1) / 2) for side in fitted.shape)
    canvas[row : row + fitted.shape[0], column : column + fitted.shape[1]] = fitted
    return canvas


def split_by_class(labels: np.ndarray, fraction: float, name: str) -> np.ndarray:
    """Choose `fraction` of each class at random: bool[N]. The choice depends only on the labels and
    on `name`."""
    selected = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = named_generator(name, label).permutation(len(members))
        selected[members[order[: round(fraction * len(members))]]] = True
    return selected


def split_names(training: RawDigits, test: RawDigits) -> np.ndarray:
    """The split of every digit, training file first: str[N] of train, val, test. Each digit is in
    one split only."""
    is_train = split_by_class(training.labels, TRAIN_FRACTION, "digits")
    return np.concatenate([np.where(is_train, "train", "val"), np.full(len(test.labels), "test")])


def read_mnist(folder: Path) -> tuple[RawDigits, RawDigits]:
    """MNIST's training and test files."""
    return _read_pair(folder, "train", "train"), _read_pair(folder, "t10k", "test")


def _read_pair(folder: Path, prefix: str, file: str) -> RawDigits:
    images, labels = (
        gzip.decompress((folder / f"{prefix}-{kind}-ubyte.gz").read_bytes())
        for kind in ("images-idx3", "labels-idx1")
    )
    # Before the bytes, there are a magic number and the shape: four bytes for each number.
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, RAW_SIZE, RAW_SIZE)
    classes = np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    return RawDigits(file, pixels, classes, np.arange(len(pixels), dtype=np.int32))
