"""Stand-ins for photos at half the size: shapes for cars and the objects next to them, patterns for
backgrounds."""

import numpy as np

from diagvib.foundation.seeding import named_generator
from diagvib.scenes.cars.geometry import tile_side
from diagvib.scenes.cars.tiles import cut_out_tile, layers
from diagvib.scenes.shapes import ground, shape

CANVAS = 128
# For each factor and class.
COUNT = 300

# Factor -> class -> its shapes or patterns.
_KINDS = {
    "car": {"urban": ("square", "star"), "country": ("hexagon", "flower")},
    "background": {"urban": ("checks", "grid"), "country": ("waves", "dots")},
    "object": {"urban": ("disc", "bar"), "country": ("arrow", "corner")},
}


def names(factor: str, name: str) -> list[str]:
    """The names of the drawings of a factor's class: `urban/square-000`; its kinds alternate."""
    kinds = _KINDS[factor][name]
    return [
        f"{name}/{kinds[number % len(kinds)]}-{number // len(kinds):03d}" for number in range(COUNT)
    ]


def draw(factor: str, drawing: str) -> np.ndarray:
    """The drawing with a name, always the same, as in its pack."""
    kind = drawing.partition("/")[2].rpartition("-")[0]
    side, generator = tile_side(factor, CANVAS), named_generator("stand-ins", factor, drawing)
    if factor == "background":
        return ground(kind, side, generator)
    return layers(cut_out_tile(shape(kind, side, generator), None, side))
