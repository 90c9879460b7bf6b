"""Cars seen from the side, in every colour: sedans, coupes and hatchbacks; pick-ups, SUVs and
vans."""

from functools import partial
from typing import NamedTuple

import numpy as np

from diagvib.scenes.cars.drawing import (
    OVERSAMPLING,
    Points,
    Sketch,
    grain,
    jittered,
    lit,
    mirrored,
    rounded,
    shade,
)

# Red, green, blue; the same for all bodies.
_PAINTS = np.array(
    [
        (235, 235, 232),
        (190, 193, 196),
        (120, 124, 130),
        (42, 43, 48),
        (168, 30, 32),
        (34, 66, 140),
        (30, 92, 64),
        (205, 190, 150),
        (214, 120, 32),
        (220, 190, 50),
        (96, 62, 44),
        (110, 160, 200),
    ]
)
_GLASS, _RUBBER, _METAL = (58, 70, 82), (26, 26, 28), (170, 172, 176)


class Body(NamedTuple):
    """A car facing right, in units of its length.

    body, windows: outlines from the rear to the front; wheels: their positions; radius: of a wheel;
    bed: of a pick-up, where its loading area begins and ends.
    """

    body: Points
    windows: tuple[Points, ...]
    wheels: tuple[float, float]
    radius: float
    bed: tuple[float, float] | None = None


_SEDAN = Body(
    [
        (0.02, 0.06),
        (0.0, 0.14),
        (0.02, 0.20),
        (0.16, 0.215),
        (0.30, 0.305),
        (0.46, 0.325),
        (0.58, 0.305),
        (0.71, 0.205),
        (0.92, 0.175),
        (0.99, 0.13),
        (1.0, 0.07),
    ],
    (
        [(0.22, 0.215), (0.32, 0.292), (0.44, 0.308), (0.44, 0.212)],
        [(0.455, 0.212), (0.455, 0.308), (0.565, 0.29), (0.665, 0.207)],
    ),
    (0.19, 0.80),
    0.072,
)
_COUPE = Body(
    [
        (0.02, 0.055),
        (0.0, 0.12),
        (0.03, 0.185),
        (0.18, 0.205),
        (0.38, 0.272),
        (0.50, 0.275),
        (0.60, 0.245),
        (0.70, 0.18),
        (0.92, 0.15),
        (0.99, 0.11),
        (1.0, 0.06),
    ],
    ([(0.27, 0.205), (0.39, 0.258), (0.50, 0.26), (0.585, 0.235), (0.655, 0.185)],),
    (0.19, 0.80),
    0.076,
)
_HATCHBACK = Body(
    [
        (0.03, 0.07),
        (0.01, 0.17),
        (0.04, 0.27),
        (0.13, 0.385),
        (0.32, 0.41),
        (0.52, 0.395),
        (0.70, 0.255),
        (0.91, 0.215),
        (0.99, 0.16),
        (1.0, 0.08),
    ],
    (
        [(0.10, 0.27), (0.165, 0.37), (0.36, 0.39), (0.36, 0.265)],
        [(0.385, 0.265), (0.385, 0.388), (0.51, 0.375), (0.645, 0.26)],
    ),
    (0.19, 0.80),
    0.088,
)
_PICK_UP = Body(
    [
        (0.0, 0.10),
        (0.0, 0.225),
        (0.38, 0.225),
        (0.42, 0.345),
        (0.58, 0.35),
        (0.68, 0.24),
        (0.94, 0.215),
        (0.995, 0.18),
        (1.0, 0.10),
    ],
    (
        [(0.415, 0.235), (0.44, 0.33), (0.505, 0.335), (0.505, 0.235)],
        [(0.52, 0.235), (0.52, 0.335), (0.57, 0.333), (0.645, 0.24)],
    ),
    (0.20, 0.80),
    0.088,
    (0.03, 0.36),
)
_SUV = Body(
    [
        (0.01, 0.10),
        (0.0, 0.22),
        (0.03, 0.39),
        (0.10, 0.42),
        (0.50, 0.425),
        (0.58, 0.405),
        (0.70, 0.27),
        (0.94, 0.24),
        (0.995, 0.19),
        (1.0, 0.10),
    ],
    (
        [(0.06, 0.275), (0.08, 0.39), (0.24, 0.40), (0.24, 0.275)],
        [(0.26, 0.275), (0.26, 0.40), (0.42, 0.405), (0.42, 0.275)],
        [(0.44, 0.275), (0.44, 0.405), (0.555, 0.392), (0.655, 0.272)],
    ),
    (0.20, 0.80),
    0.094,
)
_VAN = Body(
    [
        (0.01, 0.08),
        (0.0, 0.20),
        (0.01, 0.44),
        (0.05, 0.465),
        (0.68, 0.47),
        (0.78, 0.44),
        (0.90, 0.27),
        (0.985, 0.22),
        (1.0, 0.09),
    ],
    (
        [(0.05, 0.30), (0.06, 0.43), (0.28, 0.435), (0.28, 0.30)],
        [(0.31, 0.30), (0.31, 0.435), (0.53, 0.437), (0.53, 0.30)],
        [(0.57, 0.29), (0.57, 0.437), (0.74, 0.42), (0.845, 0.285)],
    ),
    (0.19, 0.80),
    0.082,
)


def draw_car(body: Body, generator: np.random.Generator, side: int) -> np.ndarray:
    """A car, uint8[H, W, 4], larger than `side` pixels."""
    sketch, stretch = Sketch(OVERSAMPLING * side, 0.55), generator.uniform(0.94, 1.06)
    paint = _PAINTS[generator.integers(len(_PAINTS))] + generator.normal(0, 12, 3)
    moved = generator.normal(0, 0.004, 2)

    def fitted(points: Points) -> list[tuple[float, float]]:
        return [(0.01 + 0.98 * x, stretch * y) for x, y in points]

    outline = fitted(rounded(jittered(body.body, generator, 0.004), cut=0.1))
    sketch.polygon(outline, paint)
    lowest = min(y for _, y in outline)
    for x in body.wheels:
        sketch.ellipse(x, body.radius, body.radius * 1.18, body.radius * 1.2, shade(paint, 0.25))
    sketch.box(0.03, lowest, 0.97, lowest + 0.018, shade(paint, 0.4))
    sketch.line(fitted([(0.03, 0.165), (0.95, 0.15)]), 0.006, shade(paint, 1.25))
    for window in body.windows:
        glass = fitted(rounded(np.asarray(window) + moved, 1, 0.06))
        sketch.polygon(glass, _GLASS)
        (left, low), (right, high) = np.min(glass, 0), np.max(glass, 0)
        sketch.line(
            [(left + 0.3 * (right - left), low + 0.01), (left + 0.6 * (right - left), high - 0.02)],
            0.012,
            (118, 136, 150),
        )
    _details(sketch, body, paint, fitted)
    for x in body.wheels:
        _wheel(sketch, x, body.radius, generator)
    pixels = sketch.pixels()
    return mirrored(lit(_reflecting(pixels, generator), generator, 0.03, 8), generator)


def _details(sketch: Sketch, body: Body, paint: np.ndarray, fitted) -> None:
    """Doors, handles, lights and bumpers; for a pick-up, the shadow in its loading area."""
    if body.bed:
        (left, right), rim = body.bed, 0.225
        inside = [(left, rim), (right, rim), (right, rim - 0.018), (left, rim - 0.018)]
        sketch.polygon(fitted(inside), shade(paint, 0.35))
    top = max(y for _, y in body.windows[0])
    for x in (0.45, 0.62):
        sketch.line(fitted([(x, 0.09), (x, top - 0.08)]), 0.004, shade(paint, 0.55))
        sketch.line(fitted([(x - 0.06, 0.19), (x - 0.03, 0.19)]), 0.006, shade(paint, 0.5))
    sketch.box(0.012, 0.155, 0.045, 0.19, (170, 28, 24))
    sketch.box(0.935, 0.135, 0.978, 0.165, (250, 244, 214))
    sketch.box(0.01, 0.085, 0.05, 0.105, _METAL)
    sketch.box(0.945, 0.085, 0.99, 0.105, _METAL)


def _wheel(sketch: Sketch, x: float, radius: float, generator: np.random.Generator) -> None:
    sketch.ellipse(x, radius, radius, radius, _RUBBER)
    sketch.ellipse(x, radius, 0.62 * radius, 0.62 * radius, _METAL)
    turn = generator.uniform(0, np.pi)
    for spoke in range(5):
        angle = turn + spoke * 2 * np.pi / 5
        tip = x + 0.5 * radius * np.cos(angle), radius + 0.5 * radius * np.sin(angle)
        sketch.line([(x, radius), tip], 0.25 * radius, shade(_METAL, 0.6))
    sketch.ellipse(x, radius, 0.16 * radius, 0.16 * radius, shade(_METAL, 0.8))


def _reflecting(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Adds the sky in the upper part of the paint, and the ground in the lower."""
    height, width = pixels.shape[:2]
    row = np.linspace(0, 1, height, dtype=np.float32)[:, None] + 0.02 * grain(
        generator, height, width, width // 4, 16
    )
    glow = 30 * np.exp(-(((row - generator.uniform(0.5, 0.6)) / 0.06) ** 2)) - 25 * (row > 0.78)
    pixels = pixels.astype(np.int16)
    pixels[..., :3] += glow[..., None].astype(np.int16)
    return pixels.clip(0, 255).astype(np.uint8)


CARS = {
    "urban": {
        "sedan": partial(draw_car, _SEDAN),
        "coupe": partial(draw_car, _COUPE),
        "hatchback": partial(draw_car, _HATCHBACK),
    },
    "country": {
        "pick_up": partial(draw_car, _PICK_UP),
        "suv": partial(draw_car, _SUV),
        "van": partial(draw_car, _VAN),
    },
}
