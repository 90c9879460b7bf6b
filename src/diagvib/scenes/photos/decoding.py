"""Photos from files, whatever camera or program wrote them: always the same kind of array, or an
error that says why."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from PIL import Image, ImageOps

from diagvib.foundation.errors import DiagvibError, one_line

# An image of this many pixels takes 400 MB; a file of a few bytes may claim more than any memory
# can hold.
MOST_PIXELS = 100_000_000
_AT_A_TIME = 512

_Mode = Literal["L", "RGB", "RGBA"]
T = TypeVar("T")
R = TypeVar("R")

warnings.filterwarnings(
    "ignore", category=Image.DecompressionBombWarning
)  # MOST_PIXELS is the limit


def open_photo(path: Path, mode: _Mode = "RGB") -> np.ndarray:
    """A photo as uint8[H, W, 3], upright as its EXIF says; with mode RGBA uint8[H, W, 4], with mode
    L uint8[H, W].

    Grey, palette, CMYK and 16-bit images are converted; an image without alpha gets 255.
    DiagvibError, naming the file, if it is missing, damaged, not an image, or has more than
    MOST_PIXELS.
    """
    with _decoding(path) as image:
        return _converted(ImageOps.exif_transpose(image), mode)


def decode_photo(data: bytes, path: Path, mode: _Mode = "RGB") -> np.ndarray:
    """`open_photo` for a file whose bytes have been read. path: for messages."""
    with _decoding(path, data) as image:
        return _converted(ImageOps.exif_transpose(image), mode)


def check_photo(data: bytes, path: Path) -> None:
    """The DiagvibError of `open_photo`, unless a file's bytes are an image that can be fully
    decoded."""
    with _decoding(path, data) as image:
        image.draft(
            "L", (64, 64)
        )  # a JPEG is decoded several times faster at reduced size, and just as completely
        image.load()


def in_threads(function: Callable[[T], R], things: Sequence[T]) -> Iterator[R]:
    """function(thing) for each of the things, in order, on all cores: reading, hashing and decoding
    release the interpreter's lock. The first error ends it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(
            0, len(things), _AT_A_TIME
        ):  # finished results wait in memory for the caller
            yield from pool.map(function, things[start : start + _AT_A_TIME])


@contextmanager
def _decoding(path: Path, data: bytes | None = None) -> Iterator[Image.Image]:
    """An image, opened but not yet decoded; any error with it in the block becomes a
    DiagvibError."""
    try:
        with Image.open(path if data is None else BytesIO(data)) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise DiagvibError(
                    f"{path}: the image is {width:,} x {height:,} pixels; at most "
                    f"{MOST_PIXELS // 10**6} million are read, so make it smaller"
                )
            yield image
    except DiagvibError:
        raise
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except Image.DecompressionBombError:
        raise DiagvibError(
            f"{path}: the image has far more than {MOST_PIXELS // 10**6} million pixels, the most that "
            "are read; make it smaller"
        ) from None
    except Image.UnidentifiedImageError:
        raise DiagvibError(
            f"{path}: not an image, or of a type that cannot be read; use JPEG, PNG or WebP"
        ) from None
    except Exception as error:  # a decoder may raise anything for a damaged file
        raise DiagvibError(
            f"{path}: damaged, not readable as an image ({one_line(error, 160)})"
        ) from None


def _converted(image: Image.Image, mode: _Mode) -> np.ndarray:
    if image.mode.startswith("I"):  # 16 bits, which `convert` would clip, not scale
        image = Image.fromarray(
            (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        )
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):  # not every mode can be converted directly
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    return np.asarray(image if image.mode == mode else image.convert(mode))
