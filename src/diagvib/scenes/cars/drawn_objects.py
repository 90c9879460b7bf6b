"""Objects next to a car: hydrants, signs, parking meters and traffic lights; cows, horses and
sheep."""

from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from diagvib.scenes.cars.drawing import (
    OVERSAMPLING,
    Points,
    Sketch,
    jittered,
    lit,
    mirrored,
    rounded,
    shade,
)

_Generator = np.random.Generator
_STEEL, _DARK = (128, 132, 136), (30, 28, 28)


def _sheet(side: int, height: float = 1.1) -> Sketch:
    return Sketch(OVERSAMPLING * side, height)


def _hydrant(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side)
    colour = [(190, 36, 30), (214, 172, 40), (200, 90, 30)][
        generator.integers(3)
    ] + generator.normal(0, 12, 3)
    wide = generator.uniform(0.9, 1.1)
    sheet.box(0.5 - 0.24 * wide, 0.02, 0.5 + 0.24 * wide, 0.09, shade(colour, 0.7))
    sheet.box(0.5 - 0.17 * wide, 0.09, 0.5 + 0.17 * wide, 0.68, colour)
    sheet.box(0.5 + 0.06 * wide, 0.09, 0.5 + 0.17 * wide, 0.68, shade(colour, 0.75))
    sheet.box(0.5 - 0.12 * wide, 0.09, 0.5 - 0.06 * wide, 0.68, shade(colour, 1.25))
    sheet.ellipse(0.5, 0.72, 0.19 * wide, 0.16, colour)
    sheet.box(0.5 - 0.22 * wide, 0.66, 0.5 + 0.22 * wide, 0.71, shade(colour, 0.8))
    sheet.box(0.455, 0.86, 0.545, 0.95, shade(colour, 0.8))
    for left in (0.5 - 0.3 * wide, 0.5 + 0.15 * wide):
        sheet.box(left, 0.44, left + 0.15 * wide, 0.58, shade(colour, 0.85))
    sheet.ellipse(0.5, 0.42, 0.1, 0.1, shade(colour, 0.6))
    sheet.ellipse(0.5, 0.42, 0.055, 0.055, shade(colour, 1.1))
    return lit(sheet.pixels(), generator, 0.06)


@cache
def _text(words: str, height: int) -> Image.Image:
    font = ImageFont.load_default(size=height)
    left, top, right, bottom = font.getbbox(words)
    image = Image.new("L", (int(right - left) + 2, int(bottom - top) + 2))
    ImageDraw.Draw(image).text((1 - left, 1 - top), words, 255, font)
    return image


def _write(
    sheet: Sketch, words: str, x: float, y: float, height: float, colour: tuple[int, int, int]
) -> None:
    """Text centred at a point."""
    image = _text(words, round(height * sheet.unit))
    at = (
        round(x * sheet.unit - image.width / 2),
        round((sheet.height - y) * sheet.unit - image.height / 2),
    )
    sheet.image.paste(colour, at, image)


def _stop_sign(generator: _Generator, side: int) -> np.ndarray:
    sheet, turned = _sheet(side, 1.3), generator.normal(0, 0.02)
    red = np.array([186, 24, 32]) + generator.normal(0, 10, 3)
    sheet.box(0.47, 0.0, 0.53, 0.55, _STEEL)
    for radius, colour in ((0.40, (238, 236, 230)), (0.365, red)):
        angles = np.pi / 8 + turned + np.arange(8) * np.pi / 4
        sheet.polygon(
            [(0.5 + radius * np.cos(a), 0.88 + radius * np.sin(a)) for a in angles], colour
        )
    _write(sheet, "STOP", 0.5, 0.88, 0.23, (238, 236, 230))
    return lit(sheet.pixels(), generator, 0.04)


def _street_sign(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side, 1.25)
    colour = [(20, 96, 58), (28, 62, 140), (96, 60, 34)][generator.integers(3)] + generator.normal(
        0, 8, 3
    )
    sheet.box(0.475, 0.0, 0.525, 1.2, _STEEL)
    for low, shift in (
        (0.92, generator.uniform(-0.04, 0.04)),
        (0.68, generator.uniform(-0.04, 0.04)),
    ):
        sheet.box(0.06 + shift, low, 0.94 + shift, low + 0.19, (232, 232, 228))
        sheet.box(0.08 + shift, low + 0.02, 0.92 + shift, low + 0.17, colour)
        words = ["MAIN ST", "ELM AVE", "5TH ST", "PARK RD", "OAK ST", "HIGH ST"][
            generator.integers(6)
        ]
        _write(sheet, words, 0.5 + shift, low + 0.095, 0.15, (236, 236, 232))
    return lit(sheet.pixels(), generator, 0.04)


def _parking_meter(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side, 1.3)
    colour = [(118, 124, 130), (64, 70, 78), (60, 84, 120)][
        generator.integers(3)
    ] + generator.normal(0, 8, 3)
    sheet.box(0.46, 0.0, 0.54, 0.62, shade(_STEEL, 0.8))
    sheet.box(0.36, 0.55, 0.64, 0.64, shade(colour, 0.8))
    sheet.box(0.29, 0.62, 0.71, 1.02, colour)
    sheet.ellipse(0.5, 1.02, 0.21, 0.2, colour)
    sheet.ellipse(0.5, 1.03, 0.15, 0.13, (206, 218, 214))
    sheet.line([(0.5, 1.0), (0.5 + generator.uniform(-0.09, 0.09), 1.11)], 0.03, (180, 30, 26))
    sheet.box(0.42, 0.72, 0.58, 0.86, shade(colour, 0.55))
    sheet.box(0.48, 0.76, 0.52, 0.83, (210, 180, 70))
    return lit(sheet.pixels(), generator, 0.05)


def _traffic_light(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side, 1.3)
    case = [(34, 36, 36), (196, 160, 36), (40, 62, 48)][generator.integers(3)] + generator.normal(
        0, 6, 3
    )
    sheet.box(0.465, 0.0, 0.535, 0.4, shade(_STEEL, 0.7))
    sheet.polygon(rounded([(0.28, 0.36), (0.72, 0.36), (0.72, 1.28), (0.28, 1.28)], 3), case)
    sheet.box(0.28, 0.45, 0.72, 1.19, case)
    on = generator.integers(3)
    for number, lamp in enumerate([(224, 40, 30), (236, 176, 40), (50, 190, 90)]):
        y = 1.1 - 0.275 * number
        sheet.ellipse(0.5, y, 0.14, 0.14, shade(case, 0.5))
        sheet.ellipse(0.5, y, 0.115, 0.115, lamp if number == on else shade(lamp, 0.3))
        if number == on:
            sheet.ellipse(0.5, y, 0.06, 0.06, shade(lamp, 1.25))
    return lit(sheet.pixels(), generator, 0.04)


def _legs(sheet: Sketch, at: Points, width: float, colour: np.ndarray, hoof: float) -> None:
    """Legs from a point of the body down to the ground; the far ones first, darker."""
    for number, (x, top) in enumerate(at):
        tone = shade(colour, 0.7 if number < len(at) // 2 else 1.0)
        sheet.polygon(
            [(x - width, top), (x + width, top), (x + 0.6 * width, 0.02), (x - 0.6 * width, 0.02)],
            tone,
        )
        sheet.box(x - 0.7 * width, 0.0, x + 0.7 * width, hoof, _DARK)


def _steps(generator: _Generator, xs: list[float], top: float) -> list[tuple[float, float]]:
    return [(x + generator.uniform(-0.02, 0.02), top) for x in xs]


def _cow(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side, 0.8)
    coat, patch = [
        ((236, 232, 226), (36, 32, 30)),
        ((232, 222, 206), (134, 76, 40)),
        ((150, 88, 48), (232, 226, 214)),
        ((52, 46, 44), (224, 220, 214)),
    ][generator.integers(4)]
    coat, patch = coat + generator.normal(0, 6, 3), patch + generator.normal(0, 6, 3)
    _legs(sheet, _steps(generator, [0.21, 0.60, 0.14, 0.66], 0.32), 0.035, coat, 0.04)
    body = rounded(
        jittered(
            [
                (0.08, 0.30),
                (0.07, 0.55),
                (0.16, 0.61),
                (0.40, 0.60),
                (0.64, 0.63),
                (0.73, 0.56),
                (0.71, 0.32),
                (0.40, 0.25),
            ],
            generator,
            0.008,
        )
    )
    sheet.polygon(body, coat)
    skin = Sketch(sheet.unit, sheet.height)
    skin.polygon(body, coat)
    for x, y in ((0.2, 0.5), (0.42, 0.38), (0.56, 0.55), (0.33, 0.56)):
        x, y = np.array([x, y]) + generator.normal(0, 0.03, 2)
        blob = [
            (x + r * np.cos(a), y + 0.8 * r * np.sin(a))
            for a, r in zip(np.arange(7) * 0.9, generator.uniform(0.04, 0.12, 7), strict=True)
        ]
        skin.polygon(rounded(blob), patch)
    sheet.image.paste(skin.image, (0, 0), _outlined(sheet, body))
    sheet.ellipse(0.24, 0.28, 0.06, 0.05, (222, 168, 160))
    sheet.line([(0.075, 0.56), (0.04, 0.42), (0.045, 0.26)], 0.016, shade(coat, 0.8))
    sheet.ellipse(0.045, 0.24, 0.02, 0.04, shade(patch, 0.8))
    sheet.polygon(rounded([(0.66, 0.62), (0.66, 0.40), (0.78, 0.52), (0.80, 0.64)]), coat)
    sheet.polygon(
        rounded(
            [(0.74, 0.68), (0.86, 0.70), (0.95, 0.52), (0.93, 0.45), (0.86, 0.46), (0.75, 0.56)]
        ),
        patch if generator.random() < 0.5 else coat,
    )
    sheet.ellipse(0.925, 0.475, 0.04, 0.035, (214, 160, 150))
    sheet.ellipse(0.74, 0.66, 0.055, 0.022, shade(coat, 0.7))
    for x in (0.78, 0.83):
        sheet.line([(x, 0.69), (x + 0.015, 0.76)], 0.022, (214, 204, 178))
    sheet.ellipse(0.845, 0.615, 0.014, 0.014, _DARK)
    return mirrored(lit(sheet.pixels(), generator, 0.07, 8), generator)


def _outlined(sheet: Sketch, outline: Points) -> Image.Image:
    """The area within an outline, as a mask for a sheet."""
    mask = Sketch(sheet.unit, sheet.height)
    mask.polygon(outline, (255, 255, 255))
    return mask.image.getchannel("A")


def _horse(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side, 1.0)
    coat = [
        (116, 66, 36),
        (70, 46, 32),
        (158, 104, 56),
        (52, 48, 48),
        (212, 206, 198),
        (140, 128, 118),
    ][generator.integers(6)] + generator.normal(0, 8, 3)
    mane = shade(coat, 0.4)
    _legs(sheet, _steps(generator, [0.22, 0.60, 0.16, 0.66], 0.42), 0.032, coat, 0.045)
    sheet.polygon(
        rounded(
            [(0.12, 0.62), (0.06, 0.52), (0.03, 0.30), (0.06, 0.24), (0.10, 0.36), (0.15, 0.52)]
        ),
        mane,
    )
    sheet.polygon(
        rounded(
            jittered(
                [
                    (0.10, 0.44),
                    (0.10, 0.62),
                    (0.20, 0.68),
                    (0.42, 0.645),
                    (0.62, 0.67),
                    (0.72, 0.60),
                    (0.72, 0.46),
                    (0.60, 0.38),
                    (0.34, 0.37),
                ],
                generator,
                0.006,
            )
        ),
        coat,
    )
    sheet.polygon(
        rounded(
            [
                (0.56, 0.62),
                (0.66, 0.80),
                (0.74, 0.95),
                (0.84, 0.93),
                (0.78, 0.74),
                (0.74, 0.50),
                (0.66, 0.46),
            ]
        ),
        coat,
    )
    sheet.polygon(
        rounded(
            [
                (0.72, 0.95),
                (0.80, 0.965),
                (0.90, 0.82),
                (0.97, 0.73),
                (0.94, 0.67),
                (0.86, 0.71),
                (0.76, 0.82),
            ]
        ),
        coat,
    )
    sheet.polygon(
        rounded(
            [(0.52, 0.66), (0.60, 0.82), (0.70, 0.97), (0.77, 0.98), (0.70, 0.86), (0.64, 0.70)]
        ),
        mane,
    )
    for x in (0.735, 0.785):
        sheet.polygon([(x - 0.02, 0.93), (x + 0.025, 0.93), (x + 0.01, 1.0)], shade(coat, 0.85))
    sheet.ellipse(0.835, 0.865, 0.014, 0.014, _DARK)
    sheet.ellipse(0.95, 0.70, 0.012, 0.012, _DARK)
    return mirrored(lit(sheet.pixels(), generator, 0.06, 8), generator)


def _sheep(generator: _Generator, side: int) -> np.ndarray:
    sheet = _sheet(side, 0.85)
    wool = [(226, 218, 200), (206, 198, 184), (90, 78, 68)][
        generator.choice(3, p=[0.5, 0.35, 0.15])
    ]
    wool = wool + generator.normal(0, 6, 3)
    face = [(40, 36, 34), (206, 190, 168)][generator.integers(2)] + generator.normal(0, 6, 3)
    _legs(sheet, _steps(generator, [0.26, 0.54, 0.20, 0.60], 0.26), 0.03, face, 0.03)
    around = np.linspace(0, 2 * np.pi, 22, endpoint=False) + generator.uniform(0, 0.2)
    for dark, ring in ((0.78, 1.0), (0.92, 0.8), (1.0, 0.55), (1.05, 0.3)):
        for angle in around:
            x, y = 0.42 + 0.30 * ring * np.cos(angle), 0.43 + 0.17 * ring * np.sin(angle)
            x, y = np.array([x, y]) + generator.normal(0, 0.012, 2)
            sheet.ellipse(x, y, 0.07, 0.07, shade(wool, dark * generator.uniform(0.9, 1.08)))
    sheet.ellipse(0.75, 0.60, 0.09, 0.08, shade(wool, 1.0))
    sheet.polygon(
        rounded(
            [(0.72, 0.64), (0.84, 0.66), (0.95, 0.50), (0.91, 0.43), (0.83, 0.45), (0.73, 0.53)]
        ),
        face,
    )
    sheet.ellipse(0.73, 0.60, 0.055, 0.022, shade(face, 0.8))
    sheet.ellipse(0.83, 0.585, 0.013, 0.013, (230, 220, 170) if face.mean() < 90 else _DARK)
    return mirrored(lit(sheet.pixels(), generator, 0.12, 4), generator)


OBJECTS = {
    "urban": {
        "hydrant": _hydrant,
        "stop_sign": _stop_sign,
        "street_sign": _street_sign,
        "parking_meter": _parking_meter,
        "traffic_light": _traffic_light,
    },
    "country": {"cow": _cow, "horse": _horse, "sheep": _sheep},
}
