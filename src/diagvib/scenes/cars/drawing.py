"""What drawn stand-ins have in common: outlines, colours, light, and grain."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

Points = Sequence[tuple[float, float]]
Colour = Sequence[float]

# Drawn this many times larger than shown, so that edges are smooth.
OVERSAMPLING = 4


class Sketch:
    """A transparent sheet to draw on, in units of its width; y points upwards from its lower
    edge."""

    def __init__(self, width: int, height: float = 1.0):
        """width: pixels; height: in units."""
        self.unit, self.height = width, height
        self.image = Image.new("RGBA", (width, round(width * height)))
        self._pen = ImageDraw.Draw(self.image)

    def polygon(self, points: Points, colour: Colour) -> None:
        self._pen.polygon([self._at(*point) for point in points], fill=_rgba(colour))

    def line(self, points: Points, width: float, colour: Colour) -> None:
        self._pen.line(
            [self._at(*point) for point in points],
            _rgba(colour),
            max(1, round(width * self.unit)),
            "curve",
        )

    def ellipse(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        (left, top), (right, bottom) = self._at(x - rx, y + ry), self._at(x + rx, y - ry)
        self._pen.ellipse((left, top, right, bottom), fill=_rgba(colour))

    def box(self, left: float, bottom: float, right: float, top: float, colour: Colour) -> None:
        self._pen.rectangle((*self._at(left, top), *self._at(right, bottom)), fill=_rgba(colour))

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return x * self.unit, (self.height - y) * self.unit

    def pixels(self) -> np.ndarray:
        """The sheet at half its size, uint8[H / 2, W / 2, 4]."""
        return np.array(
            self.image.resize((self.image.width // 2, self.image.height // 2), Image.Resampling.BOX)
        )


def _rgba(colour: Colour) -> tuple[int, ...]:
    return (*(int(min(max(value, 0), 255)) for value in colour), 255)


def rounded(points: Points, times: int = 2, cut: float = 0.25) -> list[tuple[float, float]]:
    """A closed outline with its corners cut off by a share of the sides, repeatedly (Chaikin,
    1974)."""
    outline = np.asarray(points, dtype=float)
    for _ in range(times):
        following = np.roll(outline, -1, 0)
        parts = [(1 - cut) * outline + cut * following, cut * outline + (1 - cut) * following]
        outline = np.stack(parts, 1).reshape(-1, 2)
    return [tuple(point) for point in outline]


def jittered(
    points: Points, generator: np.random.Generator, size: float
) -> list[tuple[float, float]]:
    """Each point, slightly displaced."""
    return [
        tuple(point) for point in np.asarray(points) + generator.normal(0, size, (len(points), 2))
    ]


def shade(colour: Colour, factor: float) -> np.ndarray:
    """A colour in different light."""
    return np.asarray(colour, dtype=float) * factor


def grain(
    generator: np.random.Generator, height: int, width: int, coarse: int, fine: int = 1
) -> np.ndarray:
    """Noise of zero mean and unit deviation, float32[height, width].

    The sum of smooth patches from `coarse` down to `fine` pixels, each half as large and two thirds
    as strong as the last.
    """
    total, patch, strength = np.zeros((height, width), np.float32), coarse, 1.0
    while patch >= fine:
        grid = generator.standard_normal(
            (height // patch + 2, width // patch + 2), dtype=np.float32
        )
        total += strength * np.asarray(
            Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
        )
        patch, strength = patch // 2, strength * 0.67
    return (total - total.mean()) / (total.std() + 1e-6)


def lit(
    pixels: np.ndarray,
    generator: np.random.Generator,
    roughness: float,
    coarse: int = 16,
    from_below: float = 0.75,
) -> np.ndarray:
    """A drawing as a photo would show it: darker at the bottom, warmer or cooler, grainy.

    pixels: uint8[H, W, 3 or 4]. roughness: strength of the grain, at most 1; from_below: the light
    at the lower edge.
    """
    height, width = pixels.shape[:2]
    light = np.linspace(1.08, from_below, height, dtype=np.float32)[:, None] * generator.uniform(
        0.8, 1.15
    )
    light = light * (1 + roughness * grain(generator, height, width, coarse))
    tint = 1 + generator.uniform(-0.06, 0.06) * np.array([1, 0, -1], np.float32)
    colours = (pixels[..., :3] + 4.0) * light[..., None] * tint
    lit_colours = colours.clip(0, 255).astype(np.uint8)
    return lit_colours if pixels.shape[2] == 3 else np.dstack([lit_colours, pixels[..., 3]])


def mirrored(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Half of the drawings are mirrored."""
    return pixels[:, ::-1] if generator.random() < 0.5 else pixels
