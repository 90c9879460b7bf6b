"""Stand-ins for photos: coloured shapes on patterned grounds, drawn from a generator alone.

They need no download. A class is a shape or a pattern. Colour, size, position, light and noise have
the same distributions for all of them, so that nothing else tells classes apart.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

# Drawn this many times larger than shown, so that edges are smooth.
_FINER = 4


def _star(corners: int, inner: float = 1.0, turn: float = 0.25) -> np.ndarray:
    """A closed outline around 0 with radius at most 1, float[points, 2]: a regular polygon or, with
    an inner radius, a star; turn: of its first corner, in circles."""
    count = corners if inner == 1 else 2 * corners
    angles = 2 * np.pi * (np.arange(count) / count + turn)
    radii = np.where(np.arange(count) % 2, inner, 1.0)
    return np.stack([radii * np.cos(angles), -radii * np.sin(angles)], 1)


# Name -> outline, x to the right and y down.
SHAPES = {
    "disc": _star(40),
    "triangle": _star(3),
    "square": _star(4, turn=0.125),
    "hexagon": _star(6),
    "star": _star(5, 0.42),
    "cross": [
        *[(-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3)],
        *[(0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3)],
    ],
    "bar": [(-1, -0.3), (1, -0.3), (1, 0.3), (-1, 0.3)],
    "arrow": [(0, -1), (0.8, 0), (0.3, 0), (0.3, 1), (-0.3, 1), (-0.3, 0), (-0.8, 0)],
    "corner": [(-1, -1), (-0.3, -1), (-0.3, 0.3), (1, 0.3), (1, 1), (-1, 1)],
    "flower": _star(8, 0.6),
}

# Name -> function(u, v): 0 or 1 at points of a plane with period 1 in both directions.
PATTERNS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "rows": lambda u, v: v % 1 < 0.5,
    "columns": lambda u, v: u % 1 < 0.5,
    "checks": lambda u, v: (u % 1 < 0.5) ^ (v % 1 < 0.5),
    "dots": lambda u, v: (u % 1 - 0.5) ** 2 + (v % 1 - 0.5) ** 2 < 0.1,
    "waves": lambda u, v: (v + 0.3 * np.sin(2 * np.pi * u)) % 1 < 0.5,
    "grid": lambda u, v: (u % 1 < 0.2) | (v % 1 < 0.2),
}


def ground(pattern: str, size: int, generator: np.random.Generator) -> np.ndarray:
    """One of PATTERNS in a dark and a light shade of grey, slightly tinted, uint8[size, size, 3]:
    shifted, slightly turned, about five periods wide."""
    periods, turn = 5 * generator.uniform(0.8, 1.2), generator.uniform(-0.15, 0.15)
    coordinates = (np.arange(size * _FINER) + 0.5) / (size * _FINER)
    x, y = np.meshgrid(coordinates, coordinates)
    shift = generator.random(2)
    u = periods * (x * np.cos(turn) - y * np.sin(turn)) + shift[0]
    v = periods * (x * np.sin(turn) + y * np.cos(turn)) + shift[1]
    blocks = PATTERNS[pattern](u, v).reshape(size, _FINER, size, _FINER)
    share = blocks.mean((1, 3))[..., None]
    dark, light = generator.uniform([[30], [130]], [[80], [190]]) + generator.normal(0, 10, (2, 3))
    return _lit(share * light + (1 - share) * dark, generator)


def shape(name: str, size: int, generator: np.random.Generator) -> np.ndarray:
    """One of SHAPES on a transparent ground, uint8[size, size, 4]: slightly turned, as large as
    fits, in any colour."""
    turn = generator.uniform(-0.3, 0.3)
    turned = np.array(SHAPES[name]) @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    fine = size * _FINER
    sheet = Image.new("L", (fine, fine))
    corners = (turned / np.abs(turned).max() * 0.96 + 1) * fine / 2
    ImageDraw.Draw(sheet).polygon([tuple(corner) for corner in corners], fill=255)
    alpha = np.asarray(sheet.resize((size, size), Image.Resampling.BOX))
    colour = generator.uniform(90, 250, 3)
    return np.dstack([_lit(np.broadcast_to(colour, (size, size, 3)), generator), alpha])


def photo(name: str, pattern: str, size: int, generator: np.random.Generator) -> np.ndarray:
    """A shape somewhere on a ground, uint8[size, size, 3]; its side is 50 to 70 % of the image."""
    below = ground(pattern, size, generator)
    side = int(size * generator.uniform(0.5, 0.7))
    above = shape(name, side, generator)
    top, left = generator.integers(0, size - side + 1, 2)
    part = below[top : top + side, left : left + side]
    alpha = above[..., 3:] / 255
    part[:] = np.rint(alpha * above[..., :3] + (1 - alpha) * part)
    return below


def _lit(colours: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Colours float[H, W, 3] lit from a side, with noise, as uint8."""
    height, width = colours.shape[:2]
    slope = generator.uniform(-0.25, 0.25, 2)
    light = (
        1 + slope[0] * np.linspace(-1, 1, height)[:, None] + slope[1] * np.linspace(-1, 1, width)
    )
    noisy = colours * light[..., None] + generator.normal(0, 6, (height, width, 1))
    return np.rint(noisy.clip(0, 255)).astype(np.uint8)
