"""Textures as the renderer needs them: grey, 256 x 256, with a flat histogram (paper, Sec. 3.1)."""

from pathlib import Path

import numpy as np

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import whole_file

TEXTURE_SIZE = 256


def prepare_texture(image: np.ndarray, name: str = "texture") -> np.ndarray:
    """A texture image, uint8[H, W] grey or uint8[H, W, 3] colour, as uint8[256, 256] with a flat
    histogram.

    A grey image of 256 x 256 counts as prepared and is returned unchanged, as the published ones
    must be. Others are centre-cropped to a square, resized, made grey and histogram-equalised.
    DiagvibError, naming `name`, if the image is smaller than 256 pixels per side, or of a single
    level.
    """
    from skimage.color import rgb2gray
    from skimage.transform import resize

    height, width = image.shape[:2]
    side = min(height, width)
    if side < TEXTURE_SIZE:
        raise DiagvibError(
            f"{name}: the texture is {height} x {width} pixels; at least {TEXTURE_SIZE} x "
            f"{TEXTURE_SIZE} are needed"
        )
    if image.shape == (TEXTURE_SIZE, TEXTURE_SIZE):
        return image
    row, column = (height - side) // 2, (width - side) // 2
    square = image[row : row + side, column : column + side]
    resized = resize(square, (TEXTURE_SIZE, TEXTURE_SIZE), anti_aliasing=True)
    return equalise(rgb2gray(resized) if resized.ndim == 3 else resized, name)


def equalise(grey: np.ndarray, name: str = "texture") -> np.ndarray:
    """A grey image float[H, W] as uint8[H, W] with a flat histogram from 0 to 255."""
    from skimage.exposure import equalize_hist

    if grey.min() == grey.max():
        raise DiagvibError(
            f"{name}: the texture has a single grey level, so it has no structure to recognise"
        )
    flat = equalize_hist(grey, nbins=256)
    return np.rint(255 * (flat - flat.min()) / (flat.max() - flat.min())).astype(np.uint8)


def read_texture(path: Path) -> np.ndarray:
    """An image file as uint8[H, W] if it is grey, otherwise as uint8[H, W, 3]. DiagvibError if it
    cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):  # 16 bits, which `convert` would clip, not scale
                return (np.asarray(image) >> 8).astype(np.uint8)
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except Exception as error:  # a decoder may raise anything for a damaged file
        raise DiagvibError(f"{path}: not readable as an image ({error})") from None


def write_texture(path: Path, texture: np.ndarray) -> None:
    """Write uint8[H, W] as an 8-bit grey PNG."""
    from PIL import Image

    with whole_file(path) as temporary:
        Image.fromarray(texture).save(temporary, format="PNG")
