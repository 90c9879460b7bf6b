"""Stand-ins for photos, drawn and seeded, at half the size: cars, objects next to them, and
backgrounds.

They need no download. Colours and light are shared by both classes, so that shapes and textures
tell them apart.
"""

import numpy as np

from diagvib.foundation.seeding import named_generator
from diagvib.scenes.cars.drawn_backgrounds import BACKGROUNDS
from diagvib.scenes.cars.drawn_cars import CARS
from diagvib.scenes.cars.drawn_objects import OBJECTS
from diagvib.scenes.cars.geometry import tile_side
from diagvib.scenes.cars.tiles import cut_out_tile, layers

CANVAS = 128
# For each factor and class.
COUNT = 300

# Factor -> class -> kind -> drawing function: function(generator, side) -> uint8[side, side, 3] for
# a background, else an object on a transparent ground, uint8[H, W, 4].
_KINDS = {"car": CARS, "background": BACKGROUNDS, "object": OBJECTS}


def names(factor: str, name: str) -> list[str]:
    """The names of the drawings of a factor's class: `urban/sedan-000`; its kinds alternate."""
    kinds = list(_KINDS[factor][name])
    return [
        f"{name}/{kinds[number % len(kinds)]}-{number // len(kinds):03d}" for number in range(COUNT)
    ]


def draw(factor: str, drawing: str) -> np.ndarray:
    """The drawing with a name, always the same, as in its pack."""
    name, _, numbered = drawing.partition("/")
    side, generator = tile_side(factor, CANVAS), named_generator("stand-ins", factor, drawing)
    drawn = _KINDS[factor][name][numbered.rpartition("-")[0]](generator, side)
    return drawn if factor == "background" else layers(cut_out_tile(drawn, None, side))
