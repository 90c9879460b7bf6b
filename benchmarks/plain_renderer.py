"""One image at a time with scikit-image, as one would naturally write the paper's method (benchmark
section 3).

Slow on purpose: the yardstick for the batched renderer's speed, and an independent check of its
pixels.
"""

import colorsys

import numpy as np
from skimage.transform import resize

from diagvib.scenes.digits.resizing import CANVAS, MASK_THRESHOLD, OBJECT_SIDE, PAPER_SIZE


def render_plain(
    digit: np.ndarray,
    crop: np.ndarray,
    hue: float,
    lightness: tuple[float, float],
    position: tuple[float, float],
    scale: float,
    size: int = PAPER_SIZE,
) -> np.ndarray:
    """Render one image: uint8[size, size, 3].

    digit, crop: uint8[40, 40]; hue in degrees; lightness, position (row, column) and scale as in a
    recipe.
    """
    side = round(OBJECT_SIDE * size / PAPER_SIZE * scale)
    colours = [
        [int(255 * v) for v in colorsys.hls_to_rgb(hue / 360, value, 1.0)] for value in lightness
    ]
    t = crop.astype(int)[..., None]
    coloured = (np.array(colours[0]) * t + np.array(colours[1]) * (255 - t)) // 255
    mask = np.where(digit > MASK_THRESHOLD, 255, 0)
    how = {"order": 1, "anti_aliasing": True, "preserve_range": True}
    coloured = resize(coloured.astype(float), (side, side), **how).astype(int)
    mask = resize(mask.astype(float), (side, side), **how).astype(int)[..., None]
    image = np.full((size, size, 3), CANVAS, dtype=int)
    top, left = (int((size - 1) * p - (side - 1) / 2) for p in position)
    rows, columns = (slice(max(c, 0), max(min(c + side, size), 0)) for c in (top, left))
    inside = (
        slice(rows.start - top, rows.stop - top),
        slice(columns.start - left, columns.stop - left),
    )
    image[rows, columns] = (mask[inside] * coloured[inside] + (255 - mask[inside]) * CANVAS) // 255
    return image.astype(np.uint8)
