"""Stand-in photos of dogs that need no download: drawn by code, each from its name alone.

They replace the published ones, 3,168 of each breed, background and copy. Results made from them
are not comparable to the paper.
"""

from itertools import product

import numpy as np

from diagvib.foundation.seeding import named_generator
from diagvib.scenes.dogs.dog import BREEDS, COATS, Dog
from diagvib.scenes.dogs.drawing import Canvas
from diagvib.scenes.dogs.places import PLACES as BACKGROUNDS
from diagvib.scenes.dogs.places import draw_place

# Pixels per side, and photos of each breed, background and copy. With this many, every published
# share is a whole number or close to it: 97 and 3, 87 and 13.
SIZE, PHOTOS = 96, 100
PLACES = tuple(product(("0", "1"), BACKGROUNDS, BREEDS))  # copy, background, breed

# As in the published prompts, where a bright day is listed twice. For the sky: its colours above
# and at the horizon; for the light: its colour, its height, and how much of a picture is lost in
# haze.
_HOURS = {
    "sunrise": (((0.55, 0.62, 0.75), (0.95, 0.82, 0.72)), (1.02, 0.94, 0.9), 0.35, 0.12),
    "sunset": (((0.32, 0.33, 0.5), (0.96, 0.6, 0.36)), (1.06, 0.84, 0.68), 0.2, 0.05),
    "rain": (((0.45, 0.48, 0.52), (0.66, 0.68, 0.7)), (0.78, 0.82, 0.86), 0.9, 0.1),
    "fog": (((0.72, 0.74, 0.76), (0.84, 0.85, 0.86)), (0.92, 0.94, 0.96), 0.9, 0.45),
    "day": (((0.25, 0.5, 0.82), (0.72, 0.84, 0.94)), (1.03, 1.01, 0.97), 0.7, 0.0),
    "noon": (((0.3, 0.55, 0.85), (0.75, 0.87, 0.95)), (1.05, 1.03, 0.98), 0.85, 0.0),
}


def embedded_photo(copy: str, background: str, breed: str, number: int) -> np.ndarray:
    """One stand-in photo, uint8[SIZE, SIZE, 3], always the same."""
    draw = named_generator("stand-in dogs", copy, background, breed, number)
    canvas = Canvas(np.empty((SIZE, SIZE, 3), np.float32), draw, SIZE)
    hour = list(_HOURS)[draw.integers(len(_HOURS))]
    sky, tint, height, haze = _HOURS[hour]
    aside = draw.choice([-1, 1]) * draw.uniform(0.3, 0.9)
    light = np.array([aside, -height - 0.2, 0.8])
    light /= np.linalg.norm(light)
    horizon = draw_place(canvas, background, sky, light)
    distance = (1 - ((canvas.y - horizon) / (1 - horizon)).clip(0, 1)) ** 2
    canvas.paint(haze * distance, sky[1])
    Dog(canvas, breed, list(COATS)[draw.integers(len(COATS))], horizon, light).paint()
    if hour == "rain":
        streaks = canvas.noise(14, SIZE) + 0.3 * canvas.noise(SIZE, SIZE)
        canvas.paint((streaks > 2.1) * 0.25, (0.85, 0.88, 0.92))
    canvas.paint(haze * 0.25, sky[1])
    return _developed(canvas, np.array(tint, np.float32))


def _developed(canvas: Canvas, tint: np.ndarray) -> np.ndarray:
    """As a camera would record it: tinted by the light, darker in the corners, randomly exposed,
    with noise."""
    draw = canvas.generator
    corner = 1 - 0.25 * draw.random() * ((canvas.x - 0.5) ** 2 + (canvas.y - 0.5) ** 2)
    exposure = draw.normal(1, 0.08)
    seen = canvas.pixels.clip(0, 1) * tint * (corner * exposure)[..., None]
    grain = draw.standard_normal(seen.shape, dtype=np.float32) * draw.uniform(0.004, 0.02)
    return np.rint((seen + grain).clip(0, 1) * 255).astype(np.uint8)
