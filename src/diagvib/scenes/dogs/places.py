"""Six backgrounds for dogs in stand-in photos.

They show what the prompts for the published photos asked for: rocky mountains, a desert with
cactuses, a park with puddles, bushes and dirt, a beach with a pier, snow with a cabin, and a jungle
(Lynch et al., 2023).
"""

from collections.abc import Callable

import numpy as np

from diagvib.scenes.dogs.drawing import Canvas, Colour, capsule, ellipse


def draw_place(canvas: Canvas, name: str, sky: tuple[Colour, Colour], light: np.ndarray) -> float:
    """Fill the canvas with a place; returns the horizon's y. sky: its colours above and at the
    horizon. light: where it comes from, [x, y, z]."""
    horizon = canvas.generator.uniform(0.32, 0.5)
    draw_sky(canvas, sky, horizon)
    PLACES[name](canvas, horizon, light)
    return horizon


def draw_sky(canvas: Canvas, sky: tuple[Colour, Colour], horizon: float) -> None:
    above, low = (np.asarray(colour, np.float32) for colour in sky)
    share = (canvas.y / (horizon + 0.1)).clip(0, 1)[..., None]
    canvas.pixels[:] = above + share * (low - above)
    canvas.paint((canvas.cloud(3, 4, 2.5) * 0.5 - 0.1).clip(0, 0.6), 0.6 + 0.4 * low)


def _plain(
    canvas: Canvas, horizon: float, dark: Colour, bright: Colour, bumps: float = 40
) -> np.ndarray:
    """Ground between two colours; returns its opacity."""
    edge = horizon + 0.006 * canvas.line(4)
    there = canvas.inside(edge - canvas.y)
    share = (
        0.5 + 0.22 * canvas.ground(horizon, bumps) + 0.12 * canvas.noise(canvas.size, canvas.size)
    )[..., None]
    dark, bright = np.asarray(dark, np.float32), np.asarray(bright, np.float32)
    canvas.paint(there, dark + share.clip(0, 1) * (bright - dark))
    return there


def _blobs(
    canvas: Canvas, y: float, height: float, colour: Colour, light: np.ndarray, count: int
) -> None:
    """Bushes or boulders in a row: lit lumps whose tops are about `height` above y."""
    draw, coarse, fine = canvas.generator, canvas.noise(12, 12), canvas.noise(36, 36)
    for _ in range(count):
        size = height * draw.uniform(0.5, 1)
        at = (draw.uniform(-0.05, 1.05), y - 0.45 * size + draw.normal(0, 0.01))
        distance = ellipse(canvas.x, canvas.y, at, (size * draw.uniform(0.7, 1.6), size * 0.6))
        distance = distance + float(0.08 * size) * coarse
        lump = (
            np.sqrt((distance / float(-size)).clip(0, 1)) * float(size * 0.7)
            + float(0.012 * size) * fine
        )
        lit = 0.45 + 0.75 * canvas.shade(lump, light)
        tint = np.asarray(colour, np.float32) * np.float32(draw.uniform(0.75, 1.2))
        canvas.paint(canvas.inside(distance), (lit * (1 + 0.1 * fine))[..., None] * tint)


def _ridge(
    canvas: Canvas,
    y: float,
    rise: float,
    bumps: float,
    colour: Colour,
    light: np.ndarray,
    snow: float = 0.0,
) -> None:
    """Hills or peaks along the horizon. snow: how far down from their tops they are white, in their
    rise."""
    rough = canvas.line(bumps, 5)
    top = y - rise * (0.6 + 0.45 * rough)
    there = canvas.inside(np.maximum(top[None] - canvas.y, canvas.y - y - 0.12))
    relief = np.abs(canvas.cloud(bumps * 1.5, 4)) * 0.05
    lit = 0.45 + 0.7 * canvas.shade(relief, light)
    tint = np.broadcast_to(np.asarray(colour, np.float32), canvas.pixels.shape)
    if snow:
        capped = (canvas.y - top[None]) < snow * rise * (0.6 + 0.5 * canvas.cloud(8, 3))
        tint = np.where(capped[..., None], np.float32(0.95), tint)
    canvas.paint(there, lit[..., None] * tint)


def _desert(canvas: Canvas, horizon: float, light: np.ndarray) -> None:
    draw, sand = (
        canvas.generator,
        np.array([0.86, 0.68, 0.45]) * canvas.generator.uniform(0.9, 1.08),
    )
    _ridge(canvas, horizon, draw.uniform(0.03, 0.12), 2, sand * (0.9, 0.8, 0.75), light)
    there = _plain(canvas, horizon, sand * 0.8, sand * 1.1, 14)
    near = ((canvas.y - horizon) / (1 - horizon)).clip(0.02, 1)
    ripples = np.sin(
        60 * np.log(near + 0.1) + 2.2 * canvas.cloud(3, 2, 2) + 6 * canvas.x * draw.normal()
    )
    canvas.paint(there * (ripples > 0.3) * 0.16, sand * 0.65)
    for _ in range(draw.integers(1, 4)):
        y, x = horizon + draw.uniform(0, 0.25) ** 1.3, draw.uniform(0.03, 0.97)
        _cactus(canvas, x, y, 0.12 + 0.8 * (y - horizon) + draw.uniform(0, 0.1), light)
    _blobs(canvas, horizon + 0.05, 0.05, (0.6, 0.45, 0.32), light, draw.integers(0, 4))


def _cactus(canvas: Canvas, x: float, y: float, height: float, light: np.ndarray) -> None:
    draw, thick = canvas.generator, height * 0.1
    parts = [((x, y, thick), (x, y - height, thick * 0.9))]
    for side in (-1, 1):
        if draw.random() < 0.75:
            out, low = x + side * height * 0.26, y - height * draw.uniform(0.3, 0.5)
            up = height * draw.uniform(0.2, 0.4)
            parts += [
                ((x, low, thick * 0.6), (out, low, thick * 0.6)),
                ((out, low, thick * 0.6), (out, low - up, thick * 0.55)),
            ]
    found = [capsule(canvas.x, canvas.y, *part) for part in parts]
    distance = np.minimum.reduce([one for one, _ in found])
    ribs = 1 + 0.25 * np.sin((canvas.x - x) / thick * 9)
    lit = 0.5 + 0.7 * canvas.shade(np.sqrt((-distance).clip(0) * thick * 2), light)
    canvas.paint(canvas.inside(distance), (lit * ribs)[..., None] * (0.27, 0.45, 0.22))


def _jungle(canvas: Canvas, horizon: float, light: np.ndarray) -> None:
    draw, green = (
        canvas.generator,
        np.array([0.16, 0.36, 0.12]) * canvas.generator.uniform(0.8, 1.15),
    )
    canvas.paint(0.93, green * 0.4)
    _plain(canvas, horizon + 0.12, (0.13, 0.16, 0.07), (0.34, 0.36, 0.15), 36)
    for _ in range(draw.integers(2, 5)):
        x, lean, thick = draw.uniform(0, 1), draw.normal(0, 0.06), draw.uniform(0.012, 0.05)
        distance, _ = capsule(
            canvas.x, canvas.y, (x, horizon + 0.2 + thick, thick * 1.2), (x + lean, -0.1, thick)
        )
        bark = (
            0.6
            + 0.6 * canvas.shade(np.sqrt((-distance).clip(0) * thick * 2), light)
            + 0.15 * canvas.noise(12, 48)
        )
        canvas.paint(canvas.inside(distance), bark[..., None] * (0.34, 0.25, 0.16))
    for layer in range(4):
        leaves = (
            canvas.cloud(7 + 3 * layer, 3)
            - 0.55
            + 1.5 * (canvas.y - horizon - 0.08 * layer) * (layer < 3)
        )
        lit = 0.55 + 0.8 * canvas.shade(canvas.cloud(12, 2) * 0.012, light)
        tint = green * (0.7 + 0.35 * layer) * (1 + 0.25 * draw.standard_normal(3) * (0.6, 0.3, 0.5))
        above = canvas.inside(canvas.y - horizon - 0.16 - 0.03 * canvas.line(9))
        canvas.paint(canvas.inside(-leaves * 0.04) * above, lit[..., None] * tint.clip(0, 1))
    for _ in range(draw.integers(2, 5)):
        _fern(
            canvas,
            draw.choice([draw.uniform(-0.05, 0.25), draw.uniform(0.75, 1.05)]),
            draw.uniform(horizon + 0.15, 0.98),
            draw.uniform(0.2, 0.4),
            green * draw.uniform(1.3, 2.2),
        )


def _fern(canvas: Canvas, x: float, y: float, length: float, colour: np.ndarray) -> None:
    """A plant of long leaves that bend outwards."""
    for angle in np.linspace(-1.2, 1.2, 7) + canvas.generator.normal(0, 0.1, 7):
        middle = (
            x + 0.55 * length * np.sin(angle),
            y - 0.6 * length * np.cos(angle * 0.7),
            length * 0.055,
        )
        tip = (x + length * np.sin(angle), y - 0.5 * length * np.cos(angle), 0.004)
        distance = np.minimum(
            capsule(canvas.x, canvas.y, (x, y, 0.008), middle)[0],
            capsule(canvas.x, canvas.y, middle, tip)[0],
        )
        canvas.paint(canvas.inside(distance), colour * canvas.generator.uniform(0.6, 1.15))


def _dirt(canvas: Canvas, horizon: float, light: np.ndarray) -> None:
    draw, soil = (
        canvas.generator,
        np.array([0.47, 0.34, 0.22]) * canvas.generator.uniform(0.85, 1.15),
    )
    sky = canvas.pixels[: max(int(horizon * canvas.size) - 2, 1)].mean((0, 1))
    there = _plain(canvas, horizon, soil * 0.62, soil * 1.2, 40)
    _blobs(canvas, horizon + 0.02, 0.17, (0.26, 0.42, 0.16), light, draw.integers(7, 12))
    near = ((canvas.y - horizon) / (1 - horizon)).clip(0, 1)
    grass = (canvas.ground(horizon, 9) - 0.75 - 0.5 * near).clip(0, 0.35) * 2 * there
    canvas.paint(grass, np.array([0.35, 0.45, 0.18]) * (1 + 0.2 * canvas.noise(60, 60))[..., None])
    pebbles = canvas.ground(horizon, 70, 1)
    canvas.paint((pebbles > 1.7) * there * 0.7, (0.62, 0.56, 0.5))
    canvas.paint((pebbles < -1.7) * there * 0.5, soil * 0.4)
    for _ in range(draw.integers(1, 4)):
        y = horizon + (1 - horizon) * draw.uniform(0.12, 0.9)
        wide = draw.uniform(0.12, 0.3) * (0.4 + y - horizon)
        distance = ellipse(canvas.x, canvas.y, (draw.uniform(0, 1), y), (wide, wide * 0.28))
        distance = distance + 0.012 * canvas.cloud(6, 3)
        canvas.paint(canvas.inside(distance - 0.012) * 0.6, soil * 0.45)
        shine = 0.75 + 0.06 * canvas.noise(40, 4)
        canvas.paint(canvas.inside(distance) * 0.85, sky * shine[..., None])


def _mountain(canvas: Canvas, horizon: float, light: np.ndarray) -> None:
    draw, rock = canvas.generator, np.array([0.47, 0.45, 0.44]) * canvas.generator.uniform(0.8, 1.1)
    rock = rock * (1 + 0.05 * draw.standard_normal(3))
    _ridge(
        canvas,
        horizon,
        draw.uniform(0.22, 0.34),
        3,
        rock * (0.9, 1.0, 1.15),
        light,
        snow=draw.uniform(0.2, 0.6),
    )
    _ridge(canvas, horizon + 0.03, draw.uniform(0.1, 0.18), 5, rock * 0.75, light)
    there = _plain(canvas, horizon, rock * 0.65, rock * 1.2, 22)
    stones = canvas.ground(horizon, 24, 2)
    lit = 0.35 + 0.9 * canvas.shade(np.abs(stones) * 0.014, light)
    canvas.paint(there * 0.75, lit[..., None] * rock * 1.1)
    canvas.paint((canvas.ground(horizon, 10) - 0.9).clip(0, 0.5) * there, (0.42, 0.45, 0.24))
    _blobs(canvas, horizon + 0.08, 0.1, rock * 1.05, light, draw.integers(3, 7))
    _blobs(canvas, horizon + 0.3, 0.16, rock * 1.05, light, draw.integers(0, 3))


def _snow(canvas: Canvas, horizon: float, light: np.ndarray) -> None:
    draw = canvas.generator
    _ridge(canvas, horizon, draw.uniform(0.05, 0.15), 3, (0.75, 0.8, 0.88), light)
    rough = canvas.noise(40, 40)
    for x in draw.uniform(-0.05, 1.05, draw.integers(5, 11)).tolist():
        _conifer(canvas, x, horizon + draw.uniform(0, 0.05), draw.uniform(0.14, 0.34), rough)
    if draw.random() < 0.5:
        _cabin(canvas, draw.uniform(0.05, 0.8), horizon + 0.05, draw.uniform(0.12, 0.2))
    there = _plain(canvas, horizon + 0.04, (0.78, 0.84, 0.93), (1.0, 1.0, 1.0), 12)
    drifts = canvas.shade(canvas.ground(horizon, 7, 2) * 0.03, light)
    canvas.paint(there * 0.5, 0.55 + 0.5 * drifts[..., None] * np.array([0.9, 0.95, 1.0]))
    flakes = canvas.noise(canvas.size * 0.6, canvas.size * 0.6)
    canvas.paint((flakes > draw.uniform(2.0, 3.2)) * 0.85, (1.0, 1.0, 1.0))


def _conifer(canvas: Canvas, x: float, y: float, height: float, rough: np.ndarray) -> None:
    level = ((y - canvas.y) / height).clip(-0.2, 1)
    tier = (level * 5) % 1
    width = (0.3 * height) * (1 - level) * (1.1 - 0.35 * tier) * (1 + 0.2 * rough)
    there = canvas.inside(
        np.maximum(np.abs(canvas.x - x) - width, np.maximum(canvas.y - y, y - height - canvas.y))
    )
    canvas.paint(there, (0.12, 0.24, 0.17))
    canvas.paint(there * (tier < 0.45) * (rough > -0.4), (0.88, 0.91, 0.95))


def _cabin(canvas: Canvas, x: float, y: float, side: float) -> None:
    walls = np.maximum(
        np.abs(canvas.x - x - side / 2) - side / 2,
        np.maximum(canvas.y - y, y - 0.55 * side - canvas.y),
    )
    logs = 0.75 + 0.25 * np.sin((y - canvas.y) / side * 60)
    canvas.paint(canvas.inside(walls), logs[..., None] * (0.4, 0.25, 0.15))
    window = (
        np.maximum(np.abs(canvas.x - x - side * 0.3), np.abs(canvas.y - y + side * 0.28))
        - side * 0.09
    )
    canvas.paint(canvas.inside(window), (0.95, 0.8, 0.4))
    roof = np.maximum(
        np.abs(canvas.x - x - side / 2) - (canvas.y - y + 1.05 * side) * 1.15,
        np.maximum(canvas.y - y + 0.5 * side, y - 1.05 * side - canvas.y),
    )
    canvas.paint(canvas.inside(roof), (0.93, 0.95, 0.98))


def _beach(canvas: Canvas, horizon: float, light: np.ndarray) -> None:
    draw, sand = (
        canvas.generator,
        np.array([0.87, 0.78, 0.6]) * canvas.generator.uniform(0.88, 1.08),
    )
    shore = (
        horizon
        + draw.uniform(0.1, 0.24)
        + 0.02 * canvas.line(2)
        + draw.normal(0, 0.08) * (canvas.x[0] - 0.5)
    )
    far = ((canvas.y - horizon) / 0.2).clip(0, 1)[..., None]
    water = np.array([0.1, 0.32, 0.5]) + far * (
        np.array([0.28, 0.62, 0.66]) - np.array([0.1, 0.32, 0.5])
    )
    waves = canvas.noise(canvas.size * 0.5, 7) * (0.4 + far[..., 0])
    canvas.paint(canvas.inside(horizon - canvas.y), water * (1 + 0.14 * waves)[..., None])
    canvas.paint((waves > 1.1) * canvas.inside(horizon + 0.02 - canvas.y) * 0.6, (0.95, 0.97, 1.0))
    if draw.random() < 0.5:
        _pier(canvas, horizon, draw.uniform(0.3, 0.7), draw.choice([-1, 1]))
    _plain_below(canvas, shore, sand)


def _plain_below(canvas: Canvas, shore: np.ndarray, sand: np.ndarray) -> None:
    """Foam, wet sand and dry sand, from a shore line float[size] on."""
    behind = canvas.y - shore[None]
    canvas.paint(canvas.inside(-behind), sand * 0.62)
    wet = (behind / 0.1).clip(0, 1) * canvas.inside(-behind)
    grain = (
        1
        + 0.09 * canvas.ground(float(shore.mean()), 40)
        + 0.05 * canvas.noise(canvas.size, canvas.size)
    )
    canvas.paint(wet, sand * grain[..., None])
    foam = canvas.inside(np.abs(behind + 0.01 * canvas.cloud(10, 3)) - 0.012, 2)
    canvas.paint(foam * 0.9, (0.97, 0.98, 1.0))


def _pier(canvas: Canvas, horizon: float, x: float, side: int) -> None:
    out = (canvas.x - x) * side
    deck = np.maximum(-out, np.abs(canvas.y - horizon + 0.035) - 0.012)
    posts = np.maximum(
        np.abs((out * 12) % 1 - 0.5) / 12 - 0.007, np.abs(canvas.y - horizon - 0.02) - 0.05
    )
    canvas.paint(canvas.inside(np.maximum(posts, -out)), (0.25, 0.19, 0.15))
    canvas.paint(canvas.inside(deck), (0.36, 0.28, 0.21))


PLACES: dict[str, Callable[[Canvas, float, np.ndarray], None]] = {
    "desert": _desert,
    "jungle": _jungle,
    "dirt": _dirt,
    "mountain": _mountain,
    "snow": _snow,
    "beach": _beach,
}
