"""Sources that need no download: scikit-learn's handwritten digits, and computed textures.

They replace MNIST and the published textures. Results made from them are not comparable to the
paper.
"""

from collections.abc import Callable

import numpy as np

from diagvib.foundation.seeding import named_generator
from diagvib.scenes.digits.digits import RAW_SIZE, TRAIN_FRACTION, RawDigits, split_by_class
from diagvib.scenes.digits.resizing import TEXTURE_SIZE
from diagvib.scenes.digits.textures import equalised

DIGITS_NAME = "sklearn.datasets.load_digits"
LICENCES = [
    (
        "CC-BY-4.0",
        "E. Alpaydin and C. Kaynak. Optical Recognition of Handwritten Digits. UCI Machine Learning "
        "Repository, 1998; as scikit-learn ships them",
    ),
    ("Apache-2.0", "textures computed by diagvib"),
]
# Strokes of 8 x 8 digits are only shades; without more contrast the renderer's threshold would
# break them apart.
STROKE_GAIN = 1.6

_Generator = np.random.Generator
_ROWS, _COLUMNS = np.mgrid[:TEXTURE_SIZE, :TEXTURE_SIZE].astype(np.float64)


def embedded_digits() -> tuple[RawDigits, RawDigits]:
    """scikit-learn's 1,797 digits (8 x 8, 0..16), enlarged to 28 x 28; 80 % of each class training,
    20 % test."""
    from skimage.transform import resize
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    large = np.stack(
        [resize(image, (RAW_SIZE, RAW_SIZE), order=3) for image in images.reshape(-1, 8, 8) / 16]
    )
    large = np.rint(255 * (STROKE_GAIN * large).clip(0, 1)).astype(np.uint8)
    is_training = split_by_class(labels, TRAIN_FRACTION, "embedded digits")
    return tuple(
        RawDigits(
            DIGITS_NAME,
            large[part],
            labels[part].astype(np.int64),
            np.flatnonzero(part).astype(np.int32),
        )
        for part in (is_training, ~is_training)
    )


def embedded_texture(name: str) -> np.ndarray:
    """One of `factors.classes("texture")`, computed: uint8[256, 256] with a flat histogram from 0
    to 255, always the same."""
    return equalised(_TEXTURES[name](named_generator("embedded textures", name)), 256)


def _noise(generator: _Generator, *sigma: float) -> np.ndarray:
    """Smooth noise of zero mean and unit deviation, without a seam at the borders."""
    from scipy.ndimage import gaussian_filter

    white = generator.standard_normal((TEXTURE_SIZE, TEXTURE_SIZE))
    smooth = gaussian_filter(white, sigma if len(sigma) == 2 else sigma[0], mode="wrap")
    return (smooth - smooth.mean()) / smooth.std()


def _cloud(generator: _Generator, coarsest: float) -> np.ndarray:
    """Noise on several scales, each half as coarse and half as strong as the one before."""
    return sum(_noise(generator, coarsest / 2**k) / 2**k for k in range(5))


def _tiles(generator: _Generator) -> np.ndarray:
    """A chequerboard of stained tiles with grey grout."""
    side = TEXTURE_SIZE / 6
    is_bright = (_ROWS // side + _COLUMNS // side) % 2
    stains = np.tanh(3 * _cloud(generator, 6)) / 4
    tiles = is_bright + stains + _noise(generator, 0.7) / 20
    from_edge = np.minimum(
        *(np.minimum(axis % side, side - axis % side) for axis in (_ROWS, _COLUMNS))
    )
    return np.where(from_edge < 1.5, 0.5 + _noise(generator, 0.7) / 20, tiles)


def _wood(generator: _Generator) -> np.ndarray:
    """A sawn board: year rings running along it, bent around knots, with fine fibres."""
    depth = _ROWS / 7 + 1.4 * _noise(generator, 14, 70) + 0.4 * _noise(generator, 5, 25)
    for row, column in ((60, 70), (180, 190)):
        distance = np.hypot((_ROWS - row) / 10, (_COLUMNS - column) / 28)
        depth += 4 * np.exp(-(distance**2) / 2)
    rings = np.sin(2 * np.pi * depth + 0.8 * np.sin(2 * np.pi * depth))
    return rings + 0.35 * _noise(generator, 0.8, 9) + 0.4 * _noise(generator, 12, 50)


def _carpet(generator: _Generator) -> np.ndarray:
    """Woven yarn: short round stitches, alternately along and across."""
    period = 8
    across = (_ROWS // period + _COLUMNS // period) % 2 == 0
    row, column = _ROWS % period / period, _COLUMNS % period / period
    along_stitch, over_stitch = np.where(across, column, row), np.where(across, row, column)
    relief = np.sin(np.pi * along_stitch) * np.sin(2 * np.pi * over_stitch) ** 2
    return relief + 0.35 * across + 0.15 * _noise(generator, 0.6) + 0.1 * _noise(generator, 10)


def _bricks(generator: _Generator) -> np.ndarray:
    """A wall in running bond: rough bricks of differing shades, bright mortar, dark shadows
    beneath."""
    height, width = 32, 64
    course = (_ROWS // height).astype(int)
    shifted = _COLUMNS + course % 2 * width // 2
    brick = (shifted // width).astype(int) % (TEXTURE_SIZE // width)
    shade = generator.uniform(0.2, 0.65, (TEXTURE_SIZE // height, TEXTURE_SIZE // width))[
        course, brick
    ]
    wall = shade + 0.1 * _cloud(generator, 8) + 0.05 * _noise(generator, 0.8)
    row, column = _ROWS % height, shifted % width
    wall = np.where(
        (row > height - 3) | (column > width - 3), -0.1 + 0.05 * _noise(generator, 0.8), wall
    )
    return np.where((row < 3) | (column < 3), 1 + 0.05 * _noise(generator, 0.8), wall)


def _lava(generator: _Generator) -> np.ndarray:
    """Molten rock: streaks of glow, curled by a flow, between dark crusts."""
    from scipy.ndimage import map_coordinates

    flow = [14 * _cloud(generator, 24) for _ in range(2)]
    glow = map_coordinates(
        -np.abs(_cloud(generator, 16)), [_ROWS + flow[0], _COLUMNS + flow[1]], order=1, mode="wrap"
    )
    return glow + 0.03 * _noise(generator, 0.7)


_TEXTURES: dict[str, Callable[[_Generator], np.ndarray]] = {
    "tiles": _tiles,
    "wood": _wood,
    "carpet": _carpet,
    "bricks": _bricks,
    "lava": _lava,
}
