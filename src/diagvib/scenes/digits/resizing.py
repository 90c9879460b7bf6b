"""The dimensions of an image, and how an object is resized."""

from functools import cache

import numpy as np

from diagvib.scenes.digits.digits import DIGIT_SIZE

OBJECT_SIDE = DIGIT_SIZE  # pixels of a prepared digit and of a texture crop
TEXTURE_SIZE = 256  # pixels per side of a texture, from which crops are taken
PAPER_SIZE = 128  # image side for which a scale of 1 means 40 pixels
CANVAS = 127  # grey level of the background
MASK_THRESHOLD = 150  # digit pixels above it belong to the object
# Added before truncation, so that float32 noise cannot push an exact integer below itself.
TRUNCATION_GUARD = 1e-4


@cache
def resize_matrix(n: int, side: int = OBJECT_SIDE) -> np.ndarray:
    """The operator A_n, float64[n, side], that resizes a column of `side` pixels to n.

    Linear interpolation on the pixel-area grid, preceded, when shrinking, by a Gaussian of sigma
    (side/n - 1)/2 cut at 4 sigma; borders mirrored without repeating the edge pixel.
    """
    blur = np.eye(side)
    if n < side:
        sigma = (side / n - 1) / 2
        offsets = np.arange(-int(4 * sigma + 0.5), int(4 * sigma + 0.5) + 1)
        weights = np.exp(-0.5 * (offsets / sigma) ** 2)
        blur = sum(
            w * np.eye(side)[_mirror(np.arange(side) + o, side)]
            for o, w in zip(offsets, weights / weights.sum(), strict=True)
        )
    centres = (np.arange(n) + 0.5) * side / n - 0.5
    low = np.floor(centres).astype(int)
    interpolate = np.zeros((n, side))
    np.add.at(interpolate, (np.arange(n), _mirror(low, side)), 1 - (centres - low))
    np.add.at(interpolate, (np.arange(n), _mirror(low + 1, side)), centres - low)
    matrix = interpolate @ blur
    # Rows whose weights sum to just below one in double precision turn 255 into 254.999..., which
    # the published generator truncates to 254. float32 would lose this; one part in a million keeps
    # it and changes nothing else.
    return np.where(matrix.sum(1, keepdims=True) < 1, matrix * (1 - 1e-6), matrix)


def _mirror(index: np.ndarray, side: int) -> np.ndarray:
    index = np.abs(index) % (2 * (side - 1))
    return np.where(index >= side, 2 * (side - 1) - index, index)
