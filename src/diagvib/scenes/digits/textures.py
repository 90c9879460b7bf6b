"""Textures as the renderer needs them: grey, 256 x 256, with a flat histogram (paper, Sec. 3.1)."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    PHOTOMETRIC_INTERPRETATION,
    SAMPLEFORMAT,
    SAMPLESPERPIXEL,
)

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import whole_file
from diagvib.scenes.digits.resizing import TEXTURE_SIZE

_LEVELS = 1 << 16
# The published textures must keep their bytes: of 8 bins of grey levels, the shares differ from
# 1/8 by up to 0.0555 (bricks).
_UNEVEN = 0.06
# Grey photos of one level differ by less, from rounding; those of 16 bits by more.
_FLAT = 1e-6
# A photo of which one grey level has a larger share, however it is equalised, shows hardly anything.
_MOST_OF_A_LEVEL = 0.5
# Textures of one photo that was saved twice, also smaller or as a good JPEG, correlate more.
_SAME = 0.97
# Of each 16 bits of a PNG file with colours or alpha, Pillow reads the first byte. Raw modes that
# read the second one, and its bands.
_SECOND_BYTES = {
    "RGB;16B": ("RGB;16L", [0, 1, 2]),
    "RGBA;16B": ("RGBA;16L", [0, 1, 2]),
    "LA;16B": ("RGBA", [1]),
}
# A grey PNG of few bits: what its levels are multiplied by, but not its transparent one.
_STEPS = {"L;2": 85, "L;4": 17}
_TRANSPARENT = "it has transparent parts; save it without"
_SIGNED = "it has signed values, or 32 bits; save it with 8 or 16, from 0"
_WHITE_IS_0 = 0


def prepare_texture(image: np.ndarray, name: str = "texture") -> np.ndarray:
    """A photo of a surface, uint8 or uint16, grey [H, W] or colour [H, W, 3], as a texture:
    uint8[256, 256] with a flat histogram.

    Its central square is made grey, resized and equalised. A grey image uint8[256, 256] whose
    histogram is flat is returned as it is, as the published ones must be; others become as flat as
    their levels allow. DiagvibError, naming `name`, for other arrays, less than 256 pixels a side,
    or one level in more than half of the pixels.
    """
    from skimage.color import rgb2gray
    from skimage.transform import resize
    from skimage.util import img_as_float64

    image = np.asarray(image)
    square = _central_square(image, name)
    if image.dtype == np.uint8 and image.shape == (TEXTURE_SIZE, TEXTURE_SIZE) and _is_flat(image):
        return image
    grey = rgb2gray(square) if square.ndim == 3 else img_as_float64(square)
    grey = resize(grey, (TEXTURE_SIZE, TEXTURE_SIZE), anti_aliasing=True)
    return _structured(equalised(_of_levels(grey, name), _LEVELS), name)


def _central_square(image: np.ndarray, name: str) -> np.ndarray:
    shape, dtype = image.shape, image.dtype.newbyteorder("=")
    if dtype not in (np.uint8, np.uint16) or not (image.ndim == 2 or shape[2:] == (3,)):
        raise DiagvibError(
            f"{name}: {image.dtype}{[*shape]} is no photo; 8 or 16 bits, grey [H, W] or colour "
            "[H, W, 3], are needed"
        )
    side = min(shape[:2])
    if side < TEXTURE_SIZE:
        raise DiagvibError(
            f"{name}: {shape[1]} x {shape[0]} pixels; each side needs at least {TEXTURE_SIZE}"
        )
    row, column = (shape[0] - side) // 2, (shape[1] - side) // 2
    return image[row : row + side, column : column + side]


def _is_flat(grey: np.ndarray) -> bool:
    shares = np.bincount(grey.ravel() // 32, minlength=8) / grey.size
    even = np.abs(shares - 1 / 8).max() <= _UNEVEN
    return bool(even and grey.min() == 0 and grey.max() == 255)


def _of_levels(grey: np.ndarray, name: str) -> np.ndarray:
    if np.ptp(grey) < _FLAT:
        raise DiagvibError(f"{name}: has a single grey level, so it shows no texture")
    return grey


def _structured(texture: np.ndarray, name: str) -> np.ndarray:
    share = np.bincount(texture.ravel()).max() / texture.size
    if share > _MOST_OF_A_LEVEL:
        raise DiagvibError(
            f"{name}: {share:.0%} of it has a single grey level, so it shows no texture"
        )
    return texture


def equalised(grey: np.ndarray, bins: int) -> np.ndarray:
    """An image float[H, W] as uint8[H, W] with a flat histogram from 0 to 255. bins: of the
    histogram that it is made flat by."""
    from skimage.exposure import equalize_hist

    flat = equalize_hist(grey, nbins=bins)
    return np.rint(255 * (flat - flat.min()) / (flat.max() - flat.min())).astype(np.uint8)


def read_photo(path: Path) -> np.ndarray:
    """An image file as `prepare_texture` takes it, upright as its EXIF says. DiagvibError, naming
    the file, if it cannot be read, has transparent parts, signed values, more than 16 bits (8 in a
    TIFF with colours), or too many pixels."""
    try:
        # A file that Pillow opened itself, it may map into memory, and then turn its pixels twice.
        with path.open("rb") as stream, _opened(stream) as file:
            raw = file.tile[0][3] if file.format == "PNG" else None
            second_bytes = _SECOND_BYTES.get(raw)
            if file.format == "TIFF":
                _check_samples(file.tag_v2, file.n_frames)
            ImageOps.exif_transpose(file, in_place=True)
            image, clear = file, file.info.get("transparency")
            if clear is not None and raw in _STEPS:
                clear = image.info["transparency"] = clear * _STEPS[raw]
            if image.mode[0] in "IF":
                return _opaque(_sixteen_bits(image), clear)
            if "A" in image.getbands() or (clear is not None and not second_bytes):
                image = image.convert("RGBA")
                if image.getextrema()[3][0] < 255:
                    raise ValueError(_TRANSPARENT)
            mode = "L" if image.mode in ("1", "L") else "RGB"
            pixels = np.asarray(image if image.mode == mode else image.convert(mode))
            if not second_bytes:
                return pixels
            return _opaque(pixels * np.uint16(256) + _second_bytes(path, *second_bytes), clear)
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file; run `diagvib fetch` first") from None
    except Image.DecompressionBombError:
        limit = 2 * Image.MAX_IMAGE_PIXELS // 10**6
        raise DiagvibError(f"{path}: has more than {limit} megapixels; save it smaller") from None
    except UnidentifiedImageError:
        raise DiagvibError(
            f"{path}: not readable as a photo; JPEG, PNG and TIFF are, with 8 bits, or 16 in grey or PNG"
        ) from None
    except Exception as error:  # a decoder may raise anything for a damaged file
        raise DiagvibError(f"{path}: not readable as a photo ({one_line(error)})") from None


def _opened(stream: BinaryIO) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(stream)


def _sixteen_bits(image: Image.Image) -> np.ndarray:
    values = np.asarray(image)
    if image.mode == "F" or (image.mode == "I" and values.max() >= _LEVELS):
        raise ValueError("it has 32 bits; save it with 8 or 16")
    if values.min() < 0:
        raise ValueError(_SIGNED)
    return values.astype(np.uint16, copy=False)


def _second_bytes(path: Path, raw: str, bands: list[int]) -> np.ndarray:
    with Image.open(path) as file:
        file.tile = [(*file.tile[0][:3], raw)]
        ImageOps.exif_transpose(file, in_place=True)
        return np.asarray(file)[..., bands]


def _opaque(pixels: np.ndarray, clear: int | tuple[int, ...] | None) -> np.ndarray:
    """Pixels of 16 bits. clear: the level or colour that is shown as transparent."""
    if clear is not None and (np.atleast_3d(pixels) == clear).all(2).any():
        raise ValueError(_TRANSPARENT)
    return pixels


def _check_samples(tags: Mapping[int, Any], pages: int) -> None:
    """ValueError for a TIFF file with these tags if Pillow would keep 8 of 16 bits, lose signs, show a
    negative, or read one page of several."""
    if pages > 1:
        raise ValueError(f"it has {pages} pages; save one of them")
    bits = max(tags.get(BITSPERSAMPLE, (1,)))
    if bits > 8 and tags.get(PHOTOMETRIC_INTERPRETATION) == _WHITE_IS_0:
        raise ValueError(f"it has {bits} bits in which white is 0; save it with black as 0")
    if bits > 8 and tags.get(SAMPLESPERPIXEL, 1) > 1:
        raise ValueError(f"it has {bits} bits and colours or alpha; save it as PNG, or as grey")
    if bits == 8 and 2 in tags.get(SAMPLEFORMAT, ()):
        raise ValueError(_SIGNED)


def read_texture(path: Path) -> np.ndarray:
    """A file's photo as a texture."""
    return prepare_texture(read_photo(path), str(path))


def write_texture(path: Path, texture: np.ndarray) -> None:
    with whole_file(path) as temporary:
        Image.fromarray(texture).save(temporary, format="PNG")


def check_distinct(textures: Mapping[str, np.ndarray]) -> None:
    """DiagvibError, naming them, if two textures are the same photo."""
    if len(textures) < 2:
        return
    pixels = np.stack([*textures.values()]).reshape(len(textures), -1)
    pairs = np.argwhere(np.triu(np.corrcoef(pixels), 1) > _SAME)
    names = [*textures]
    for number, twin in pairs[:1]:
        raise DiagvibError(
            f"{names[twin]}: is the same texture as {names[number]}; leave one of them out"
        )
