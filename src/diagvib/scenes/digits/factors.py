"""The six factors, their classes, and the regions from which values are drawn (paper, Table A1)."""

import numpy as np

FACTORS = ("position", "hue", "lightness", "scale", "shape", "texture")

Interval = tuple[float, float]

_ROWS = {"top": (1 / 7, 2 / 7), "center": (3 / 7, 4 / 7), "bottom": (5 / 7, 6 / 7)}
_COLUMNS = {"left": (1 / 7, 2 / 7), "center": (3 / 7, 4 / 7), "right": (5 / 7, 6 / 7)}

# factor -> class -> one interval per drawn value. The order of the classes is that of class indices
# everywhere.
REGIONS: dict[str, dict[str, tuple[Interval, ...]]] = {
    # (row, column), relative to the image
    "position": {f"{r}-{c}": (_ROWS[r], _COLUMNS[c]) for r in _ROWS for c in _COLUMNS},
    # degrees; red crosses 0, so it runs to 375
    "hue": {
        "red": ((345, 375),),
        "yellow": ((45, 75),),
        "green": ((105, 135),),
        "cyan": ((165, 195),),
        "blue": ((225, 255),),
        "magenta": ((285, 315),),
    },
    # HLS lightness of the texture's two colours
    "lightness": {
        "dark": ((0, 1 / 11), (4 / 11, 5 / 11)),
        "darker": ((2 / 11, 3 / 11), (6 / 11, 7 / 11)),
        "brighter": ((4 / 11, 5 / 11), (8 / 11, 9 / 11)),
        "bright": ((6 / 11, 7 / 11), (10 / 11, 1)),
    },
    # relative to 40 pixels in a 128-pixel image
    "scale": {
        "small": ((1 / 1.45, 1 / 1.35),),
        "smaller": ((1 / 1.25, 1 / 1.15),),
        "normal": ((1 / 1.05, 1.05),),
        "larger": ((1.15, 1.25),),
        "large": ((1.35, 1.45),),
    },
    # realised by a digit instance and by a crop, not by numbers
    "shape": {str(d): () for d in range(10)},
    "texture": dict.fromkeys(("tiles", "wood", "carpet", "bricks", "lava"), ()),
}

# The recipe columns with a factor's values, in the order of its intervals.
REALIZATION_COLUMNS = {
    "position": ("position_row", "position_column"),
    "hue": ("hue_degrees",),
    "lightness": ("lightness_1", "lightness_2"),
    "scale": ("scale_factor",),
    "shape": ("digit",),
    "texture": ("crop_row", "crop_column"),
}


def classes(factor: str) -> tuple[str, ...]:
    """All classes of a factor, in class-index order."""
    return tuple(REGIONS[factor])


def draw_realizations(
    factor: str, class_index: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Uniformly drawn values within each image's class.

    class_index: int[N], indices into `classes(factor)`. Returns float64[N, K], K intervals per
    class (hue in [0, 360)). Only for factors that are realised by numbers: position, hue,
    lightness, scale.
    """
    bounds = np.array([*REGIONS[factor].values()], dtype=np.float64)  # [classes, K, 2]
    low, high = np.moveaxis(bounds[class_index], -1, 0)
    values = generator.uniform(low, high)
    return values % 360 if factor == "hue" else values
