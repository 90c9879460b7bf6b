"""Photos from files, whatever camera or program wrote them: always the same kind of array, or an
error that says why."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import Condition
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from PIL import ExifTags, Image

from diagvib.foundation.errors import DiagvibError, one_line

# An image of this many pixels takes 400 MB; a file of a few bytes may claim more than any memory
# can hold. One whose shorter side has fewer than LEAST_SIDE pixels shows nothing.
MOST_PIXELS = 100_000_000
LEAST_SIDE = 16
_MOST_BYTES = 1 << 30
_LEAST_WHITE = 1 << 12  # of 16 bits
_AT_A_TIME = 512
# Those of `listing.EXTENSIONS`, whatever a file's name says: others may start programs.
_FORMATS = ("JPEG", "PNG", "WEBP")
# EXIF's orientation -> what makes a photo upright.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class PixelBudget:
    """How many pixels are decoded side by side, by all threads: one photo of MOST_PIXELS, or many
    small ones."""

    def __init__(self, limit: int):
        self.limit, self.free, self.change = limit, limit, Condition()

    @contextmanager
    def reserved(self, pixels: int) -> Iterator[None]:
        """Wait until so many are free, for the block."""
        with self.change:
            self.change.wait_for(lambda: self.free >= min(pixels, self.limit))
            self.free -= pixels
        try:
            yield
        finally:
            with self.change:
                self.free += pixels
                self.change.notify_all()


_MEMORY = PixelBudget(2 * MOST_PIXELS)

T = TypeVar("T")
R = TypeVar("R")

# MOST_PIXELS is the limit for large ones; damaged EXIF data do not damage a photo.
warnings.filterwarnings("ignore", module=r"PIL\.")


def open_photo(
    path: Path,
    mode: Literal["L", "RGB", "RGBA"] = "RGB",
    data: bytes | None = None,
    upright: bool = True,
) -> np.ndarray:
    """A photo as uint8[H, W, 3], upright as its EXIF says; with mode RGBA uint8[H, W, 4], with mode
    L uint8[H, W].

    data: the file's bytes, if they have been read. Grey, palette, CMYK and 16-bit images are
    converted; an image without alpha gets 255. DiagvibError, naming the file, if it is missing,
    damaged, not an image, or has more than MOST_PIXELS.
    """
    with _decoding(path, data) as opened:
        # Pillow's `exif_transpose` also writes EXIF data anew, which damaged ones prevent.
        turn = _TURNS.get(opened.getexif().get(ExifTags.Base.Orientation)) if upright else None
        image = _eight_bits(opened if turn is None else opened.transpose(turn))
        return np.asarray(image if image.mode == mode else image.convert(mode))


def check_regular(path: Path) -> None:
    """DiagvibError for a device or a pipe, which could be read without end. FileNotFoundError if
    there is nothing."""
    mode = path.stat().st_mode
    if not (S_ISREG(mode) or S_ISDIR(mode)):
        raise DiagvibError(f"{path}: is a device or a pipe, not a file")


def photo_bytes(path: Path) -> bytes:
    """The content of a file. DiagvibError for a device, a pipe or more than a gigabyte."""
    check_regular(path)
    with open(path, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise DiagvibError(f"{path}: has more than {_MOST_BYTES:,} bytes, too many for a photo")
    return data


class Glance(NamedTuple):
    """small: a grey copy of a photo, uint8[16, 18], by which photos that look alike are found.
    transparent: whether parts of the photo are."""

    small: np.ndarray
    transparent: bool


def check_photo(path: Path, data: bytes) -> Glance:
    """The DiagvibError of `open_photo`, unless the file's bytes can be fully decoded; also for photos
    under LEAST_SIDE pixels, and where nobody can tell which value is white: with 16 bits per channel
    of which only the lower ones are used."""
    with _decoding(path, data) as image:
        if min(image.size) < LEAST_SIDE:
            width, height = image.size
            raise DiagvibError(
                f"{path}: {width} x {height} pixels; each side needs at least {LEAST_SIDE}"
            )
        # A JPEG is decoded several times faster at reduced size, and just as completely.
        image.draft("L", (64, 64))
        # With several channels, Pillow keeps the upper 8 of their 16 bits.
        scale = 1 if image.mode.startswith("I") else 257 if ";16" in str(image.tile) else 0
        image.load()
        if scale:
            highest = (image if scale == 1 else image.convert("L")).getextrema()[1] * scale
            if highest < _LEAST_WHITE:
                raise DiagvibError(
                    f"{path}: has 16 bits per channel, but no value above {highest:,} of 65,535, so it "
                    "would be nearly black; save it with 8"
                )
        image = _eight_bits(image)
        transparent = image.has_transparency_data and image.convert("LA").getextrema()[1][0] < 255
        grey = image.convert("L").resize((18, 16), Image.Resampling.BOX)
        return Glance(np.asarray(grey), transparent)


def _eight_bits(image: Image.Image) -> Image.Image:
    """An image of a mode that can be converted directly."""
    if image.mode.startswith("I"):  # 16 bits, which `convert` would clip, not scale
        deep = np.asarray(image).astype(np.int64) >> 8
        return Image.fromarray(deep.clip(0, 255).astype(np.uint8))
    if image.mode in ("L", "LA", "RGB", "RGBA"):
        return image
    return image.convert("RGBA" if "transparency" in image.info else "RGB")


def square(photo: np.ndarray, side: int, crop: bool = True) -> np.ndarray:
    """The middle square of a photo uint8[H, W, 3], or all of it, bilinearly as uint8[side, side,
    3]."""
    height, width = photo.shape[:2]
    if crop:
        shorter = min(height, width)
        top, left = (height - shorter) // 2, (width - shorter) // 2
        photo = photo[top : top + shorter, left : left + shorter]
    if photo.shape[:2] == (side, side):
        return photo
    image = Image.fromarray(np.ascontiguousarray(photo))
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))


class Crop(NamedTuple):
    """How photos are prepared for a network: the shorter side scaled to `resize` pixels, then the
    central square of `size` pixels; without `resize`, the whole photo scaled to that square.
    interpolation: bilinear or bicubic."""

    resize: int | None
    size: int
    interpolation: str = "bilinear"

    def __call__(self, photo: np.ndarray) -> np.ndarray:
        """uint8[H, W, 3] to uint8[size, size, 3]."""
        from torchvision.transforms.functional import InterpolationMode, center_crop, resize

        mode = InterpolationMode(self.interpolation)
        scaled = resize(Image.fromarray(photo), self.resize or [self.size, self.size], mode)
        return np.asarray(center_crop(scaled, self.size))


def in_threads(function: Callable[[T], R], things: Sequence[T]) -> Iterator[R]:
    """function(thing) for each of the things, in order, on all cores: reading, hashing and decoding
    release the interpreter's lock. The first error ends it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(
            0, len(things), _AT_A_TIME
        ):  # finished results wait in memory for the caller
            yield from pool.map(function, things[start : start + _AT_A_TIME])


@contextmanager
def _decoding(path: Path, data: bytes | None) -> Iterator[Image.Image]:
    """An image, opened but not yet decoded; any error with it in the block becomes a
    DiagvibError."""
    try:
        content = BytesIO(photo_bytes(path) if data is None else data)
        with Image.open(content, formats=_FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise Image.DecompressionBombError(f"{width:,} x {height:,} pixels")
            with _MEMORY.reserved(width * height):
                yield image
    except FileNotFoundError:
        raise DiagvibError(f"{path}: no such file") from None
    except Image.DecompressionBombError as error:
        raise DiagvibError(
            f"{path}: at most {MOST_PIXELS // 10**6} million pixels are read, so make it smaller "
            f"({one_line(error)})"
        ) from None
    except DiagvibError:
        raise
    except Image.UnidentifiedImageError:
        raise DiagvibError(
            f"{path}: not an image that can be read; use JPEG, PNG or WebP"
        ) from None
    except Exception as error:  # a decoder may raise anything for a damaged file
        raise DiagvibError(
            f"{path}: damaged, not readable as an image ({one_line(error, 160)})"
        ) from None
