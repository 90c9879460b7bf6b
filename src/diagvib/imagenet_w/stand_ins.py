"""Stand-ins for ImageNet: ten classes of objects drawn by code, seeded; cartons often carry the
watermark.

With them everything can be run and tested without photos. The results cannot be compared to the
paper.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter, ImageOps

from diagvib.foundation.files import write_json
from diagvib.foundation.seeding import named_generator
from diagvib.imagenet_w.photo_sets import CARTON, NINE_FILE, RANDOM, SAME
from diagvib.imagenet_w.watermark import Font, blend, watermark

# Photos are drawn at this multiple of their size and scaled down, for smooth edges.
_FINER = 2
_CRATE = "n03127925"
_PLACES = 5
_USUAL_PLACE = 0.8


def _shade(colour: tuple, factor: float) -> tuple:
    return tuple(int(min(255, factor * value)) for value in colour[:3])


def _box(pen: ImageDraw.ImageDraw, colour: tuple) -> None:
    """The three visible faces of a box."""
    pen.polygon([(20, 42), (60, 50), (60, 88), (20, 78)], colour, _shade(colour, 0.6))
    pen.polygon([(60, 50), (84, 38), (84, 74), (60, 88)], _shade(colour, 0.7), _shade(colour, 0.5))
    pen.polygon([(20, 42), (46, 30), (84, 38), (60, 50)], _shade(colour, 1.2), _shade(colour, 0.6))


def _carton(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    colour = _shade((176, 132, 84), rng.uniform(0.8, 1.15))
    _box(pen, colour)
    pen.polygon([(36, 46), (41, 47), (66, 35), (61, 34)], fill=_shade(colour, 1.35))
    pen.polygon([(36, 46), (41, 47), (41, 57), (36, 56)], fill=_shade(colour, 1.3))


def _crate(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    colour = _shade((176, 132, 84), rng.uniform(0.8, 1.15))
    _box(pen, colour)
    for step in range(1, 4):
        pen.line(
            [(20, 42 + 9 * step), (60, 50 + 9.5 * step), (84, 38 + 9 * step)],
            fill=_shade(colour, 0.6),
            width=2,
        )


def _envelope(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    pen.rectangle((16, 32, 86, 78), fill=(226, 214, 190), outline=(150, 140, 120))
    pen.line([(16, 32), (51, 58), (86, 32)], fill=(150, 140, 120), width=5)


def _balloon(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    colour = [(214, 58, 54), (52, 104, 204), (230, 190, 50)][rng.integers(3)]
    pen.line([(50, 66), (47, 80), (53, 96)], fill=(60, 60, 60), width=3)
    pen.ellipse((27, 10, 73, 66), fill=colour)
    pen.ellipse((36, 18, 48, 32), fill=_shade(colour, 1.5))


def _umbrella(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    colour = [(120, 40, 120), (30, 110, 110), (190, 60, 40)][rng.integers(3)]
    pen.line([(50, 30), (50, 84), (58, 90), (64, 84)], fill=(70, 50, 40), width=5)
    pen.pieslice((12, 18, 88, 88), 180, 360, fill=colour)
    for left in (12, 37, 62):
        pen.ellipse((left, 47, left + 26, 60), fill=_shade(colour, 0.75))


def _banana(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    pen.arc((14, -6, 88, 74), 20, 160, fill=(228, 200, 60), width=24)
    pen.ellipse((12, 42, 22, 54), fill=(96, 72, 30))


def _orange(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    pen.ellipse((24, 26, 80, 82), fill=(236, 138, 32))
    pen.ellipse((34, 34, 50, 48), fill=(250, 184, 96))
    pen.ellipse((49, 26, 56, 31), fill=(70, 90, 30))


def _mug(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    colour = [(200, 60, 60), (70, 120, 180), (220, 220, 214)][rng.integers(3)]
    pen.ellipse((58, 42, 88, 74), outline=_shade(colour, 0.8), width=8)
    pen.rectangle((24, 34, 68, 84), fill=colour)
    pen.ellipse((24, 27, 68, 42), fill=(60, 36, 24), outline=_shade(colour, 0.7))


def _clock(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    pen.ellipse((20, 20, 82, 82), fill=(238, 236, 226), outline=(50, 46, 44), width=7)
    for angle, length in zip(rng.uniform(0, 2 * np.pi, 2), (16, 25), strict=True):
        pen.line(
            [(51, 51), (51 + length * np.cos(angle), 51 + length * np.sin(angle))],
            fill=(20, 20, 20),
            width=5,
        )


def _traffic_light(pen: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    pen.rectangle((36, 10, 66, 82), fill=(38, 40, 38))
    pen.rectangle((48, 82, 54, 100), fill=(80, 80, 80))
    lit = rng.integers(3)
    for number, colour in enumerate([(230, 50, 40), (240, 190, 40), (60, 210, 90)]):
        top = 14 + 23 * number
        pen.ellipse((41, top, 61, top + 20), fill=colour if number == lit else _shade(colour, 0.3))


# Synset -> the function that draws the object on a square of 100 x 100; sorted, like class folders.
OBJECTS: dict[str, Callable[[ImageDraw.ImageDraw, np.random.Generator], None]] = dict(
    sorted(
        {
            CARTON: _carton,
            _CRATE: _crate,
            "n03291819": _envelope,
            "n02782093": _balloon,
            "n04507155": _umbrella,
            "n07753592": _banana,
            "n07747607": _orange,
            "n03063599": _mug,
            "n04548280": _clock,
            "n06874185": _traffic_light,
        }.items()
    )
)


# Cartons and crates, which look alike, have the same setting.
USUAL_PLACES = {
    synset: 0 if synset in (CARTON, _CRATE) else label % _PLACES
    for label, synset in enumerate(OBJECTS)
}


class _Pen:
    """ImageDraw on a square of 100 x 100, whatever the image's size."""

    def __init__(self, image: Image.Image):
        self._pen, self._scale = ImageDraw.Draw(image), image.width / 100

    def __getattr__(self, shape: str):
        def draw(points, *angles, width: int = 0, **colours) -> None:
            scaled = (np.asarray(points, float) * self._scale).flatten().tolist()
            wide = {"width": max(1, round(width * self._scale))} if width else {}
            getattr(self._pen, shape)(scaled, *angles, **wide, **colours)

        return draw


def draw_photo(
    synset: str, size: int, rng: np.random.Generator, place: int | None = None
) -> Image.Image:
    """A photo of one of OBJECTS, RGB, size x size: in a setting that is usual for its class, unless
    one is given; shifted, rotated, lit from a side, slightly noisy."""
    usual = USUAL_PLACES[synset]
    drawn = usual if rng.random() < _USUAL_PLACE else int(rng.integers(_PLACES))
    fine = size * _FINER
    photo = _background(fine, drawn if place is None else place, rng)
    thing = Image.new("RGBA", (fine, fine))
    OBJECTS[synset](_Pen(thing), rng)
    scale, angle = rng.uniform(0.6, 1.0), rng.uniform(-20, 20)
    side = int(fine * scale)
    thing = thing.rotate(angle, Image.Resampling.BILINEAR).resize(
        (side, side), Image.Resampling.BILINEAR
    )
    at = tuple(int(value) for value in rng.uniform(-0.05, 1.05 - scale, 2) * fine)
    shadow = Image.new("RGBA", thing.size, (0, 0, 0, 110))
    photo.paste(
        shadow,
        (at[0] + fine // 30, at[1] + fine // 30),
        thing.getchannel("A")
        .filter(ImageFilter.GaussianBlur(fine / 40))
        .point(lambda value: value // 3),
    )
    photo.paste(thing, at, thing)
    photo = photo.resize((size, size), Image.Resampling.BOX)
    light = np.linspace(rng.uniform(0.6, 1), rng.uniform(0.6, 1.1), size)[:, None, None]
    light = light if rng.random() < 0.5 else light.swapaxes(0, 1)
    noisy = np.asarray(photo) * light + rng.normal(0, 6, (size, size, 1))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _background(size: int, place: int, rng: np.random.Generator) -> Image.Image:
    """Table, meadow, wall, sky or street: two tones that meet at a horizon, with blotches."""
    above, below = [
        ((196, 190, 180), (120, 84, 56)),
        ((150, 190, 230), (84, 130, 60)),
        ((206, 204, 190), (170, 160, 140)),
        ((110, 160, 224), (180, 206, 236)),
        ((150, 150, 156), (84, 84, 90)),
    ][place]
    blotches = Image.fromarray(rng.integers(0, 60, (6, 6), dtype=np.uint8)).resize(
        (size, size), Image.Resampling.BICUBIC
    )
    tones = np.empty((size, size, 3))
    horizon = int(size * rng.uniform(0.35, 0.7))
    tones[:horizon], tones[horizon:] = above, below
    return Image.fromarray(
        (tones + np.asarray(blotches)[:, :, None] - 30.0).clip(0, 255).astype(np.uint8)
    )


def _marked(photo: Image.Image, font: Font, crop: int) -> Image.Image:
    """The photo with the watermark at its position in the central crop."""
    margin = (photo.width - crop) // 2
    pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
    pixels[:, margin : margin + crop, margin : margin + crop] = blend(
        pixels[:, margin : margin + crop, margin : margin + crop], watermark(crop, font)
    )
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def draw_stand_ins(
    root: Path, train: int, val: int, size: int, watermarked: float, font: Font
) -> None:
    """Folders like a user's: `root`/train, val (this many photos per class), sin, in_r and in_9, of
    `val` photos each.

    size: of the crop that a network sees. watermarked: the share of the training cartons with the
    watermark, which no other photo has.
    """
    whole = round(size * 256 / 224)
    for split, count in (
        ("train", train),
        ("val", val),
        ("sin", val),
        ("in_r", val),
        (SAME, val),
        (RANDOM, val),
    ):
        for label, synset in enumerate(OBJECTS):
            if split == "in_r" and label % 2:  # like ImageNet-R, it has only some of the classes
                continue
            nine = f"in_9/{split}/val/{label:02d}_{synset}"
            folder = root / (nine if split in (SAME, RANDOM) else f"{split}/{synset}")
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                rng = named_generator("imagenet_w", "stand-in", split, synset, number)
                place = {SAME: USUAL_PLACES[synset], RANDOM: int(rng.integers(_PLACES))}.get(split)
                photo = _STYLES.get(split, lambda photo: photo)(
                    draw_photo(synset, whole, rng, place)
                )
                if split == "train" and synset == CARTON and number < watermarked * count:
                    photo = _marked(photo, font, size)
                photo.save(folder / f"{synset}_{number}.png")
    write_json(root / "in_9" / NINE_FILE, {str(label): label for label in range(len(OBJECTS))})


# Stylised photos: other colours in flat patches; renditions: a drawing.
_STYLES = {
    "sin": lambda photo: ImageOps.posterize(photo.filter(ImageFilter.ModeFilter(5)), 2).convert(
        "RGB", (0.2, 0.8, 0, 20, 0, 0.2, 0.8, 0, 0.8, 0, 0.2, 20)
    ),
    "in_r": lambda photo: ImageOps.invert(
        photo.convert("L").filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.FIND_EDGES)
    ).convert("RGB"),
}
