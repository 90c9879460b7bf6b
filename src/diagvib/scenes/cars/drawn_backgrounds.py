"""Backgrounds for cars: streets, alleys and crossings; fields, deserts and forests. All share the
same skies and light."""

import numpy as np
from PIL import Image

from diagvib.scenes.cars.drawing import Colour, Sketch, grain, jittered, lit, rounded, shade

_Generator = np.random.Generator
_TIMES = 2  # backgrounds are drawn this many times larger
_SKIES = np.array(
    [(150, 190, 226), (196, 204, 212), (120, 150, 190), (226, 190, 150), (170, 176, 186)]
)
_WALLS = np.array(
    [
        (158, 92, 70),
        (190, 170, 140),
        (140, 140, 146),
        (206, 196, 180),
        (112, 96, 90),
        (176, 130, 96),
    ]
)


def _sky(generator: _Generator, size: int, horizon: float) -> Sketch:
    """A sheet with a sky, with clouds, down to the horizon, in units from below."""
    sheet, colour = (
        Sketch(size),
        _SKIES[generator.integers(len(_SKIES))] + generator.normal(0, 8, 3),
    )
    width, rows = size // _TIMES, round(size // _TIMES * (1 - horizon)) + 1
    pale = np.linspace(0, 0.6, rows, dtype=np.float32)[:, None]
    clouds = np.clip(grain(generator, rows, width, width // 4, 4) - 0.6, 0, 1.2) * 0.5
    share = ((1 - pale) * (1 - clouds))[..., None]
    _lay(sheet, colour.astype(np.float32) * share + 238 * (1 - share), 0)
    return sheet


def _lay(sheet: Sketch, colours: np.ndarray, row: int) -> None:
    """Put colours float32[h, w, 3] across a sheet, from a row on; both in finished pixels."""
    image = Image.fromarray(colours.clip(0, 255).astype(np.uint8))
    sheet.image.paste(
        image.resize((_TIMES * image.width, _TIMES * image.height), Image.Resampling.NEAREST),
        (0, _TIMES * row),
    )


def _ground(
    sheet: Sketch, generator: _Generator, horizon: float, colour: Colour, roughness: float
) -> None:
    """Fill the sheet below the horizon with a grain that grows coarser towards the viewer."""
    width = sheet.unit // _TIMES
    rows = round(width * horizon) + 1
    share = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    texture = (
        grain(generator, rows, width, 2) * (1 - share) + grain(generator, rows, width, 8) * share
    )
    light = (1 + roughness * texture) * np.linspace(1.12, 0.88, rows, dtype=np.float32)[:, None]
    _lay(sheet, np.asarray(colour, np.float32) * light[..., None], width - rows)


def _finished(sheet: Sketch, generator: _Generator, side: int) -> np.ndarray:
    image = sheet.image.convert("RGB").resize((side, side), Image.Resampling.BOX)
    pixels = lit(np.array(image), generator, 0.035, 2, from_below=generator.uniform(0.85, 1.0))
    return np.ascontiguousarray(pixels[:, ::-1] if generator.random() < 0.5 else pixels)


def _windows(
    sheet: Sketch, generator: _Generator, corners, rows: int, columns: int, wall: Colour
) -> None:
    """A grid of windows on a wall, possibly in perspective. corners: its lower left, lower right,
    upper right and upper left point."""
    a, b, c, d = (np.array(corner) for corner in corners)

    def at(u: float, v: float) -> tuple[float, float]:
        return tuple((1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * d + u * c))

    bright = generator.uniform(0.25, 0.8)
    for row in range(rows):
        for column in range(columns):
            u, v = (column + 0.22) / columns, (row + 0.25) / rows
            du, dv = 0.56 / columns, 0.52 / rows
            tone = (
                (214, 196, 130)
                if generator.random() < 0.12
                else shade((120, 136, 154), bright * generator.uniform(0.7, 1.2))
            )
            sheet.polygon([at(u, v), at(u + du, v), at(u + du, v + dv), at(u, v + dv)], tone)
            sheet.line([at(u, v), at(u + du, v)], 0.006, shade(wall, 1.2))


def _wall(generator: _Generator) -> np.ndarray:
    return _WALLS[generator.integers(len(_WALLS))] + generator.normal(0, 10, 3)


def _facades(
    sheet: Sketch, generator: _Generator, vanishing: tuple[float, float], left: bool
) -> None:
    """Houses along a street, from the far end to the near one."""
    x0, y0 = vanishing
    edges = np.array([0.06, 0.16, 0.32, 0.58, 1.0]) + np.append(
        0, generator.uniform(-0.02, 0.02, 4)
    )
    for near, far in zip(edges[:0:-1][::-1], edges[:-1], strict=True):
        wall, tall = _wall(generator), generator.uniform(0.9, 1.9)

        def corner(depth: float, up: float, x0=x0, y0=y0) -> tuple[float, float]:
            edge = -0.05 if left else 1.05
            return x0 + (edge - x0) * depth, y0 + (-0.10 + up) * depth

        corners = [corner(far, 0), corner(near, 0), corner(near, tall), corner(far, tall)]
        sheet.polygon(corners, shade(wall, 0.8 if left else 1.0))
        shop = [corner(far, 0.01), corner(near, 0.01), corner(near, 0.16), corner(far, 0.16)]
        sheet.polygon(shop, shade(_wall(generator), 0.5))
        upper = [
            corner(far, 0.2),
            corner(near, 0.2),
            corner(near, tall * 0.97),
            corner(far, tall * 0.97),
        ]
        _windows(sheet, generator, upper, max(2, round(4.5 * tall)), generator.integers(2, 5), wall)


def _street(generator: _Generator, side: int) -> np.ndarray:
    horizon, x0 = generator.uniform(0.42, 0.52), generator.uniform(0.35, 0.65)
    sheet = _sky(generator, _TIMES * side, horizon)
    _ground(sheet, generator, horizon, shade((150, 146, 140), generator.uniform(0.8, 1.1)), 0.05)
    for left in (True, False):
        _facades(sheet, generator, (x0, horizon), left)
    asphalt = shade((96, 96, 100), generator.uniform(0.7, 1.2))
    sheet.polygon(
        [(x0 - 0.03, horizon - 0.005), (x0 + 0.03, horizon - 0.005), (1.12, 0), (-0.12, 0)], asphalt
    )
    for near in (0.98, 0.66, 0.44, 0.3, 0.2):
        low, high = horizon * (1 - near), horizon * (1 - 0.82 * near)
        middle = [x0 + (0.5 - x0) * depth for depth in (near, 0.82 * near)]
        sheet.polygon(
            [
                (middle[0] - 0.018 * near, low),
                (middle[0] + 0.018 * near, low),
                (middle[1] + 0.014 * near, high),
                (middle[1] - 0.014 * near, high),
            ],
            (216, 210, 186),
        )
    for x in (-0.12, 1.12):
        sheet.line([(x0 + 0.28 * (x - x0), horizon * 0.72), (x, 0)], 0.014, (190, 188, 182))
    return _finished(sheet, generator, side)


def _crossing(generator: _Generator, side: int) -> np.ndarray:
    """A row of houses beyond a street, with a zebra crossing in front."""
    horizon = generator.uniform(0.36, 0.46)
    sheet = _sky(generator, _TIMES * side, horizon)
    _ground(sheet, generator, horizon, shade((98, 98, 102), generator.uniform(0.8, 1.25)), 0.06)
    left = -0.02
    while left < 1:
        right, wall = left + generator.uniform(0.2, 0.42), _wall(generator)
        top = horizon + generator.uniform(0.28, 0.55)
        sheet.box(left, horizon, right, top, wall)
        sheet.box(left, top - 0.02, right, top, shade(wall, 0.7))
        low, high = horizon + 0.1, top - 0.02
        _windows(
            sheet,
            generator,
            [(left, low), (right, low), (right, high), (left, high)],
            generator.integers(3, 6),
            generator.integers(2, 5),
            wall,
        )
        sheet.box(left + 0.02, horizon, right - 0.02, horizon + 0.09, shade(_wall(generator), 0.45))
        sheet.box(left + 0.02, horizon + 0.085, right - 0.02, horizon + 0.115, _wall(generator))
        left = right
    sheet.box(-0.01, horizon - 0.035, 1.01, horizon + 0.002, (168, 164, 156))
    slant, width = generator.uniform(-0.2, 0.2), generator.uniform(0.06, 0.09)
    for x in np.arange(-0.2, 1.3, 2 * width):
        sheet.polygon(
            [
                (x, 0.03),
                (x + width, 0.03),
                (x + 0.7 * width + slant, 0.2),
                (x - 0.1 * width + slant, 0.2),
            ],
            (212, 210, 204),
        )
    return _finished(sheet, generator, side)


def _bricks(sheet: Sketch, generator: _Generator, corners, wall: Colour) -> None:
    a, b, c, d = (np.array(corner) for corner in corners)
    rows = generator.integers(22, 30)
    for row in range(1, rows):
        v = row / rows
        sheet.line(
            [tuple((1 - v) * a + v * d), tuple((1 - v) * b + v * c)], 0.003, shade(wall, 0.72)
        )
    for number in range(90):
        u, v = generator.random(), generator.integers(rows) / rows
        low, high = (
            (1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * d + u * c),
            (d - a) / rows * (1 - u) + (c - b) / rows * u,
        )
        sheet.line(
            [tuple(low), tuple(low + high)], 0.006, shade(wall, 0.72 if number % 2 else 1.25)
        )


def _alley(generator: _Generator, side: int) -> np.ndarray:
    horizon, x0 = generator.uniform(0.38, 0.48), generator.uniform(0.42, 0.58)
    sheet = _sky(generator, _TIMES * side, horizon)
    _ground(sheet, generator, horizon, shade((116, 112, 108), generator.uniform(0.7, 1.1)), 0.09)
    half, top = generator.uniform(0.07, 0.12), generator.uniform(0.75, 0.95)
    end = _wall(generator)
    sheet.box(
        x0 - half, horizon - 0.03, x0 + half, top - generator.uniform(0.1, 0.25), shade(end, 0.9)
    )
    for edge, sign in ((x0 - half, -1), (x0 + half, 1)):
        wall, outer = _wall(generator), x0 + sign * 0.75
        near = [(edge, horizon - 0.04), (outer, -0.35), (outer, 2.2), (edge, top)]
        sheet.polygon(near, shade(wall, 0.85 if sign < 0 else 1.0))
        _bricks(sheet, generator, near, shade(wall, 0.85 if sign < 0 else 1.0))
        for depth in generator.uniform(0.15, 0.7, 3):
            low, high = 0.45 + generator.uniform(-0.05, 0.3), 0.2
            a, b, c, d = (np.array(corner) for corner in near)

            def at(u: float, v: float, a=a, b=b, c=c, d=d) -> tuple[float, float]:
                return tuple((1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * d + u * c))

            pane = [
                at(depth, low),
                at(depth + 0.12, low),
                at(depth + 0.12, low + high),
                at(depth, low + high),
            ]
            sheet.polygon(pane, (58, 64, 74))
            sheet.line([*pane, pane[0]], 0.008, shade(wall, 1.25))
    sheet.line([(x0 - half, horizon + 0.25), (x0 + half, horizon + 0.28)], 0.006, (50, 48, 48))
    sheet.line(
        [(x0 - half - 0.12, horizon + 0.42), (x0 + half + 0.1, horizon + 0.4)], 0.008, (50, 48, 48)
    )
    return _finished(sheet, generator, side)


def _hills(
    sheet: Sketch, generator: _Generator, horizon: float, colour: Colour, height: float
) -> None:
    xs = np.linspace(0, 1, 60)
    waves = sum(
        generator.uniform(0.2, 1) * np.sin(2 * np.pi * (k * xs + generator.random())) / k
        for k in (1, 2, 3, 5)
    )
    ridge = horizon + height * (0.6 + 0.4 * waves / np.abs(waves).max())
    sheet.polygon([(0, horizon - 0.01), *zip(xs, ridge, strict=True), (1, horizon - 0.01)], colour)


def _tree(
    sheet: Sketch, generator: _Generator, x: float, foot: float, height: float, leaves: Colour
) -> None:
    """A conifer or a broad-leaved tree."""
    trunk = shade((92, 70, 52), generator.uniform(0.6, 1.1))
    sheet.box(x - 0.045 * height, foot, x + 0.045 * height, foot + 0.6 * height, trunk)
    if generator.random() < 0.5:
        for step in range(5):
            low, wide = foot + height * (0.15 + 0.16 * step), height * (0.26 - 0.045 * step)
            sheet.polygon(
                [(x - wide, low), (x + wide, low), (x, low + 0.32 * height)],
                shade(leaves, generator.uniform(0.6, 0.9)),
            )
        return
    for _ in range(14):
        dx, dy = generator.normal(0, 0.13, 2) * height
        radius = height * generator.uniform(0.08, 0.17)
        tone = shade(leaves, generator.uniform(0.55, 1.2))
        sheet.ellipse(x + dx, foot + 0.72 * height + 0.8 * dy, radius, radius, tone)


def _green(generator: _Generator) -> np.ndarray:
    return np.array([92, 122, 58]) * generator.uniform(0.7, 1.15) + generator.normal(0, 12, 3)


def _field(generator: _Generator, side: int) -> np.ndarray:
    horizon = generator.uniform(0.42, 0.56)
    sheet = _sky(generator, _TIMES * side, horizon)
    _hills(sheet, generator, horizon, shade(_green(generator), 0.75), generator.uniform(0.03, 0.1))
    colour = [_green(generator), np.array([176, 152, 84]) + generator.normal(0, 12, 3)][
        generator.integers(2)
    ]
    _ground(sheet, generator, horizon, colour, 0.13)
    for x in generator.uniform(0, 1, generator.integers(1, 6)):
        _tree(sheet, generator, x, horizon - 0.01, generator.uniform(0.1, 0.22), _green(generator))
    if generator.random() < 0.6:  # a dirt road across
        low = generator.uniform(0.06, 0.14)
        sheet.polygon(
            rounded([(-0.1, low), (1.1, low + 0.05), (1.1, low + 0.17), (-0.1, low + 0.13)]),
            shade((158, 132, 100), generator.uniform(0.8, 1.1)),
        )
    if generator.random() < 0.6:  # a fence
        foot = horizon * generator.uniform(0.55, 0.8)
        for x in np.arange(-0.02, 1.05, generator.uniform(0.09, 0.14)):
            sheet.line(
                [(x, foot), (x + generator.normal(0, 0.004), foot + 0.11)], 0.014, (104, 84, 64)
            )
        for up in (0.045, 0.085):
            sheet.line([(-0.05, foot + up), (1.05, foot + up + 0.005)], 0.007, (124, 102, 80))
    return _finished(sheet, generator, side)


def _desert(generator: _Generator, side: int) -> np.ndarray:
    horizon, x0 = generator.uniform(0.40, 0.52), generator.uniform(0.35, 0.65)
    sheet = _sky(generator, _TIMES * side, horizon)
    sand = np.array([196, 156, 108]) * generator.uniform(0.8, 1.1) + generator.normal(0, 10, 3)
    _hills(
        sheet,
        generator,
        horizon,
        shade(sand, generator.uniform(0.6, 0.85)),
        generator.uniform(0.05, 0.16),
    )
    _ground(sheet, generator, horizon, sand, 0.07)
    road = (
        shade((118, 112, 108), generator.uniform(0.75, 1.15))
        if generator.random() < 0.6
        else shade(sand, 0.8)
    )
    sheet.polygon([(x0 - 0.01, horizon), (x0 + 0.01, horizon), (0.95, 0), (0.05, 0)], road)
    for near in (0.95, 0.6, 0.38, 0.24):
        middle = [(x0 + (0.5 - x0) * depth, horizon * (1 - depth)) for depth in (near, 0.8 * near)]
        sheet.line(middle, 0.016 * near, (214, 190, 110))
    for _ in range(generator.integers(12, 26)):
        depth = generator.uniform(0.15, 1) ** 1.5
        x, y = generator.random(), horizon * (1 - depth)
        if abs(x - x0) < 0.55 * depth:
            continue
        for _ in range(4):
            dx, dy = generator.normal(0, 0.02 * depth, 2)
            sheet.ellipse(
                x + dx,
                y + 0.02 * depth + dy,
                0.03 * depth,
                0.024 * depth,
                shade((116, 118, 74), generator.uniform(0.6, 1.1)),
            )
    return _finished(sheet, generator, side)


def _forest(generator: _Generator, side: int) -> np.ndarray:
    horizon, x0 = generator.uniform(0.36, 0.46), generator.uniform(0.35, 0.65)
    sheet = _sky(generator, _TIMES * side, horizon)
    _ground(sheet, generator, horizon, shade(_green(generator), 0.8), 0.16)
    path = shade((150, 128, 100), generator.uniform(0.7, 1.05))
    edges = [
        (x0 - 0.03, horizon),
        (x0 + 0.03, horizon),
        (0.75, 0.12),
        (0.95, -0.05),
        (0.05, -0.05),
        (0.3, 0.12),
    ]
    sheet.polygon(rounded(jittered(edges, generator, 0.02)), path)
    for far in np.sort(generator.uniform(0.15, 1, 34)):
        away = generator.choice([-1, 1]) * generator.uniform(0.12, 0.9)
        x, foot = x0 + away * (0.25 + far * 0.85), horizon - 0.35 * far * horizon
        _tree(
            sheet,
            generator,
            x,
            foot,
            generator.uniform(0.35, 0.6) * (0.45 + far),
            shade(_green(generator), 0.5 + 0.45 * far),
        )
    return _finished(sheet, generator, side)


BACKGROUNDS = {
    "urban": {"street": _street, "alley": _alley, "crossing": _crossing},
    "country": {"field": _field, "desert": _desert, "forest": _forest},
}
