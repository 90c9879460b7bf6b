"""The six factors, their classes, and the regions from which values are drawn (paper, Table A1)."""

from collections.abc import Sequence

import numpy as np

_ROWS = {"top": (1 / 7, 2 / 7), "center": (3 / 7, 4 / 7), "bottom": (5 / 7, 6 / 7)}
_COLUMNS = {"left": (1 / 7, 2 / 7), "center": (3 / 7, 4 / 7), "right": (5 / 7, 6 / 7)}

# factor -> class -> one interval per drawn value. The order of the classes is that of class indices
# everywhere.
REGIONS: dict[str, dict[str, tuple]] = {
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

FACTORS = tuple(REGIONS)

# The recipe columns with a factor's values, in the order of its intervals.
REALIZATION_COLUMNS = {
    "position": ("position_row", "position_column"),
    "hue": ("hue_degrees",),
    "lightness": ("lightness_1", "lightness_2"),
    "scale": ("scale_factor",),
    "shape": ("digit",),
    "texture": ("crop_row", "crop_column"),
}

# Factors whose classes can be narrowed -> the recipe columns that this changes. A texture is as
# visible as its two colours differ. Nothing lies between digits of two shapes.
SPREAD_COLUMNS = {
    **{name: REALIZATION_COLUMNS[name] for name in ("position", "hue", "lightness", "scale")},
    "texture": REALIZATION_COLUMNS["lightness"],
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


def narrowed(
    factor: str, class_names: Sequence[str], values: np.ndarray, spread: float
) -> np.ndarray:
    """Values of SPREAD_COLUMNS, float64[N, K], moved towards a common centre.

    spread: what is left of the distance, 0 to 1; classes stay apart at any spread above 0. The
    centre is the mean of the centres of the chosen classes; of hues, on the shortest arc that has
    them all; of a texture, each image's own mean lightness, so that its two colours become alike.
    """
    if factor == "texture":
        centre = values.mean(axis=1, keepdims=True)
    else:
        centres = np.array([REGIONS[factor][name] for name in class_names]).mean(
            axis=-1
        )  # [chosen, K]
        centre = _hue_centre(centres[:, 0]) if factor == "hue" else centres.mean(axis=0)
    distance = values - centre
    if factor == "hue":
        return (centre + spread * ((distance + 180) % 360 - 180)) % 360
    return centre + spread * distance


def _hue_centre(hues: np.ndarray) -> float:
    """The mean of degrees on the shortest arc that has them all; of several, the first."""
    hues = np.sort(hues % 360)
    start = (np.diff(hues, append=hues[0] + 360).argmax() + 1) % len(hues)
    return hues[start] + ((hues - hues[start]) % 360).mean()
