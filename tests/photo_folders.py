"""Small folders of photos as a user would fill them: of noise, or of the photos that installed
packages ship."""

from pathlib import Path

import numpy as np
from PIL import Image

POOLS = [
    f"{folder}/{name}"
    for folder in ("cars", "objects", "backgrounds")
    for name in ("urban", "country")
]


def blob(height: int, width: int, generator: np.random.Generator) -> np.ndarray:
    """An ellipse somewhere in an image, bool[height, width]."""
    rows, columns = np.mgrid[:height, :width]
    centre = generator.uniform(0.4, 0.6, 2) * (height, width)
    radii = generator.uniform(0.15, 0.35, 2) * (height, width)
    return ((rows - centre[0]) / radii[0]) ** 2 + ((columns - centre[1]) / radii[1]) ** 2 <= 1


def make_photos(folder: Path, item: int, seed: int = 0) -> Path:
    """`each` photos of every class of cars, objects and backgrounds in `folder`; half of the
    cut-outs are PNGs with an alpha channel, half JPEGs with a mask next to them."""
    generator = np.random.default_rng(seed)
    for pool in POOLS:
        (folder / pool).mkdir(parents=True)
        for number in range(item):
            height, width = generator.integers(40, 120, 2)
            coarse = generator.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3)).astype(
                np.uint8
            )
            photo = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
            mask = Image.fromarray(blob(height, width, generator).astype(np.uint8) * 255)
            if pool.startswith("backgrounds"):
                photo.save(folder / pool / f"{number:03d}.jpg")
            elif number % 2:
                photo.save(folder / pool / f"{number:03d}.jpg", quality=95)
                mask.save(folder / pool / f"{number:03d}.mask.png")
            else:
                photo.putalpha(mask)
                photo.save(folder / pool / f"{number:03d}.png")
    return folder
