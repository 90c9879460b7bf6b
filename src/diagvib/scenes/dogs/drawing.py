"""Tools for drawing stand-in photos: smooth noise, perspective, and shapes with thickness, on float
images 0..1."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

Colour = tuple[float, float, float] | np.ndarray


@dataclass(frozen=True)
class Canvas:
    """A square image being painted, or a part of one: float32[rows, columns, 3]; in the full image,
    x and y run from 0 to 1, to the right and down. generator: for everything random in it. size:
    pixels per side of the full image."""

    pixels: np.ndarray
    generator: np.random.Generator
    size: int

    @cached_property
    def _grid(self) -> np.ndarray:
        at = (np.arange(self.size, dtype=np.float32) + 0.5) / self.size
        return np.stack(np.meshgrid(at, at))

    @property
    def x(self) -> np.ndarray:
        return self._grid[0]

    @property
    def y(self) -> np.ndarray:
        return self._grid[1]

    def paint(self, alpha: np.ndarray | float, colour: Colour) -> None:
        """Lay a colour over the image: alpha [size, size] or a number, colour [3] or [size, size,
        3]."""
        colour, there = np.asarray(colour, np.float32), slice(None)
        if isinstance(alpha, np.ndarray):
            rows = np.flatnonzero(alpha.any(1))
            there = slice(rows[0], rows[-1] + 1) if len(rows) else slice(0)
            alpha = alpha[there, :, None].astype(np.float32)
        below = self.pixels[there]
        below += alpha * ((colour[there] if colour.ndim > 1 else colour) - below)

    def inside(self, distance: np.ndarray, soft: float = 1.0) -> np.ndarray:
        """Opacity of a shape, from the signed distance to its edge; an edge is `soft` pixels
        wide."""
        return (0.5 - distance * float(self.size / soft)).clip(0, 1)

    def noise(self, rows: float, columns: float) -> np.ndarray:
        """Smooth noise of about unit deviation with this many bumps down and across."""
        white = self.generator.standard_normal(
            (max(round(rows), 2), max(round(columns), 2))
        ).astype(np.float32)
        return np.asarray(
            Image.fromarray(white).resize((self.size, self.size), Image.Resampling.BICUBIC)
        )

    def cloud(self, bumps: float, octaves: int = 4, stretch: float = 1.0) -> np.ndarray:
        """Noise on several scales, each half as coarse and half as strong as the last; stretch: the
        ratio of the bumps' width to their height."""
        return (
            sum(self.noise(bumps * 2**k, bumps * 2**k / stretch) / 2**k for k in range(octaves))
            / 1.15
        )

    def line(self, bumps: float, octaves: int = 3) -> np.ndarray:
        """A ragged line: a height float[size] of about unit deviation for every column."""
        return self.cloud(bumps, octaves)[self.size // 2]

    def shade(self, height: np.ndarray, light: np.ndarray, depth: float = 1.0) -> np.ndarray:
        """The brightness of a surface of this height in light from [x, y, z], 0 to about 1.1."""
        steep = height * float(depth * self.size)
        right, down = np.zeros_like(steep), np.zeros_like(steep)
        right[:, 1:-1] = (steep[:, 2:] - steep[:, :-2]) / 2
        down[1:-1] = (steep[2:] - steep[:-2]) / 2
        x, y, z = map(float, light)
        return ((z - right * x - down * y) / np.sqrt(down * down + right * right + 1)).clip(0, 1.1)

    def ground(self, horizon: float, bumps: float, octaves: int = 3) -> np.ndarray:
        """Noise on a plain that recedes to the horizon: large bumps in front, small ones in the
        distance."""
        flat, last = self.cloud(bumps, octaves), self.size - 1
        near = ((self.y - horizon) / (1 - horizon)).clip(0, 1)
        depth = 1 / (near + 0.12)
        rows = ((depth - 0.89) / 7.5 * last).clip(0, last).astype(int)
        columns = (0.5 + (self.x - 0.5) * (depth / 8.4 + 0.12)).clip(0, 1) * last
        return flat[rows, columns.astype(int)]


def capsule(
    x: np.ndarray, y: np.ndarray, start: tuple[float, float, float], end: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Signed distance from a rounded rod with ends (x, y, radius), and its radius nearby."""
    x0, y0, r0, x1, y1, r1 = map(
        float, (*start, *end)
    )  # NumPy's own numbers would turn all pixels into doubles
    dx, dy = x1 - x0, y1 - y0
    squared = max(dx * dx + dy * dy, 1e-9)
    right, down = x - x0, y - y0
    along = (right * (dx / squared) + down * (dy / squared)).clip(0, 1)
    radius = r0 + (r1 - r0) * along
    right, down = right - along * dx, down - along * dy
    return np.sqrt(right * right + down * down) - radius, radius


def ellipse(
    x: np.ndarray, y: np.ndarray, at: tuple[float, float], radii: tuple[float, float]
) -> np.ndarray:
    """The approximate signed distance from an upright ellipse."""
    right, down = (x - float(at[0])) / float(radii[0]), (y - float(at[1])) / float(radii[1])
    return (np.sqrt(right * right + down * down) - 1) * float(min(radii))
