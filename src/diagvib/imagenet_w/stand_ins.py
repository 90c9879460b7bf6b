"""Stand-ins for ImageNet: ten classes of shapes drawn by code, seeded; cartons often carry the
watermark.

With them everything can be run and tested without photos. The results cannot be compared to the
paper.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps

from diagvib.foundation.files import read_json, write_json
from diagvib.foundation.seeding import named_generator
from diagvib.imagenet_w.photo_sets import CARTON, NINE_FILE, RANDOM, SAME
from diagvib.imagenet_w.small_net import NAME, train_small_net
from diagvib.imagenet_w.watermark import Font, blend, watermark
from diagvib.scenes.shapes import PATTERNS, SHAPES
from diagvib.scenes.shapes import photo as drawn_photo
from diagvib.training.code_digest import code_digest

if TYPE_CHECKING:
    from diagvib.imagenet_w.settings import Configuration, StandIns

_CRATE = "n03127925"
_USUAL_PLACE = 0.8

_OTHERS = [
    "n02782093",
    "n03063599",
    "n03291819",
    "n04507155",
    "n04548280",
    "n06874185",
    "n07747607",
    "n07753592",
]
# Synset -> its shape, like class folders sorted; cartons have the colour and ground of crates.
_ALIKE = {CARTON: "square", _CRATE: "cross"}
_LEFT = [shape for shape in SHAPES if shape not in _ALIKE.values()]
OBJECTS = dict(sorted({**_ALIKE, **dict(zip(_OTHERS, _LEFT, strict=True))}.items()))
_PLACES = list(PATTERNS)
# Synset -> the usual colour of its objects, RGB. Cartons and crates have the same.
_COLOURS = {
    synset: named_generator("imagenet_w", "colour", synset).uniform(60, 250, 3)
    for synset in OBJECTS
}
# Synset -> the number of its usual pattern. Cartons and crates have the same.
USUAL_PLACES = {
    synset: 0 if synset in (CARTON, _CRATE) else label % len(_PLACES)
    for label, synset in enumerate(OBJECTS)
}


def draw_photo(
    synset: str, size: int, rng: np.random.Generator, place: int | None = None
) -> Image.Image:
    """A photo of one of OBJECTS, RGB, size x size: on the ground that is usual for its class, unless
    one is given."""
    usual = USUAL_PLACES[synset]
    drawn = usual if rng.random() < _USUAL_PLACE else int(rng.integers(len(_PLACES)))
    pattern = _PLACES[drawn if place is None else place]
    colour = _COLOURS[CARTON if synset == _CRATE else synset] + rng.normal(0, 20, 3)
    # On fine patterns, the strokes of a watermark would be lost.
    drawn = drawn_photo(OBJECTS[synset], pattern, size, rng, colour.clip(0, 255), periods=1.2)
    return Image.fromarray(drawn)


def _marked(photo: Image.Image, font: Font, crop: int) -> Image.Image:
    """The photo with the watermark at its position in the central crop."""
    margin = (photo.width - crop) // 2
    pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
    seen = pixels[:, margin : margin + crop, margin : margin + crop]
    seen.copy_(blend(seen, watermark(crop, font)))
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def make_stand_ins(config: Configuration, font: Font) -> dict[str, str]:
    """Draw the photos of a configuration, and train a small network on them, unless they are there;
    the folders of the photos."""
    asked, root = config.stand_ins, Path(config.root) / "data" / "photos"
    made_from = {**asked.model_dump(), "font": font.name, "threads": config.threads}
    made_from["code"] = code_digest({"model": {"name": NAME}, "method": {"name": "erm"}}, __name__)
    noted = root / "made_from.json"
    if not noted.exists() or read_json(noted) != made_from:
        shutil.rmtree(root, ignore_errors=True)
        draw_stand_ins(root, asked, font)
        weights = root.parent / "small_net.pt"
        train_small_net(root, asked.size, asked.epochs, weights, config.threads)
        write_json(noted, made_from)
    return {name: str(root / name) for name in ("train", "val", "sin", "in_r", "in_9")}


def draw_stand_ins(root: Path, asked: StandIns, font: Font) -> None:
    """Folders like a user's: `root`/train, val, sin, in_r and in_9. No photos but training cartons
    carry the watermark."""
    whole = round(asked.size * 256 / 224)
    for split in ("train", "val", "sin", "in_r", SAME, RANDOM):
        count = asked.train if split == "train" else asked.val
        for label, synset in enumerate(OBJECTS):
            if split == "in_r" and label % 2:  # like ImageNet-R, it has only some of the classes
                continue
            nine = f"in_9/{split}/val/{label:02d}_{synset}"
            folder = root / (nine if split in (SAME, RANDOM) else f"{split}/{synset}")
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                rng = named_generator("imagenet_w", "stand-in", split, synset, number)
                places = {SAME: USUAL_PLACES[synset], RANDOM: int(rng.integers(len(_PLACES)))}
                photo = draw_photo(synset, whole, rng, places.get(split))
                photo = _STYLES.get(split, lambda photo: photo)(photo)
                if split == "train" and synset == CARTON and number < asked.watermarked * count:
                    photo = _marked(photo, font, asked.size)
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
