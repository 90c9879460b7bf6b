"""What a page's script draws this scene's images from, small enough to be part of the page."""

from pathlib import Path

import numpy as np

from diagvib.scenes.digits.factors import REGIONS, classes
from diagvib.scenes.digits.prepare import PUBLISHED, load_catalogue, load_pixels
from diagvib.scenes.digits.resizing import MASK_THRESHOLD

_DIGITS, _TEXTURE_SIDE = 6, 96  # digits of each class, and pixels per side of a texture


def browser_sources(prepared: Path) -> dict:
    """regions: of the factors' classes. digits: class -> masks of the first test digits, a bit for
    each pixel, uint8[6 * 200]. textures: class -> a corner of it, uint8[96, 96]."""
    catalogue = load_catalogue(prepared)
    digits, textures = load_pixels(prepared)
    masks = {}
    for shape in classes("shape"):
        rows = np.flatnonzero((catalogue.split == "test") & (catalogue.label == int(shape)))
        masks[shape] = np.packbits(digits[rows[:_DIGITS]] > MASK_THRESHOLD)
    parts = textures[:, :_TEXTURE_SIDE, :_TEXTURE_SIDE]
    return {
        "regions": REGIONS,
        "digits": masks,
        "textures": dict(zip(PUBLISHED, parts, strict=True)),
    }
