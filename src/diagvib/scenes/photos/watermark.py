"""The watermark of ImageNet-W (Li et al., 2023): text in a CJK font, blended onto images exactly as
PIL does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.foundation.plug_ins import packaged_files

if TYPE_CHECKING:
    from torch import Tensor

TEXT = "\u6377\u5f84" * 3
# Side of the image -> font size; for other sides, the side divided by 6.22.
_FONT_SIZES = {224: 36, 384: 62, 512: 82, 518: 84}
# From the published font to any other with the characters, by words in the family's name.
_FAMILIES = (
    ("source han serif",),
    ("noto serif cjk", "noto serif sc"),
    ("serif", "song", "ming", "sung", "mincho", "myungjo", "batang"),
)
_WEIGHTS = ("extralight", "light", "regular")
# A code point that no font has: it is drawn like any missing character.
_NO_CHARACTER = "\U000ffffd"
# The ranges of the augmentation, at 224 pixels.
_RANDOM_SIZES, _TENTHS = (32, 36, 40, 44, 48, 52), range(1, 10)
_RANDOM_CHARACTERS = (0x4E00, 0x9FFF)


@dataclass(frozen=True)
class Font:
    """One face of a font file that has the characters of a watermark's text."""

    path: Path
    index: int
    family: str
    style: str
    text: str = TEXT

    @property
    def name(self) -> str:
        """As in results: family, style, the first digits of the file's sha256, and the text if it
        is not the paper's."""
        name = f"{self.family} {self.style} ({self.path.name}, sha256 {_digest(self.path)[:12]})"
        return name if self.text == TEXT else f"{name}, text {self.text!r}"

    @property
    def published(self) -> bool:
        """Whether it is the paper's, Source Han Serif SC ExtraLight, also called Noto Serif CJK SC,
        with the paper's text."""
        return self.text == TEXT and font_rank(self)[:3] in ((0, 0, 0), (1, 0, 0))

    def at(self, size: int) -> ImageFont.FreeTypeFont:
        return _face(self.path, self.index, size)


_digest = cache(file_sha256)


@lru_cache(64)
def _face(path: Path, index: int, size: int) -> ImageFont.FreeTypeFont:
    # The basic layout is in every Pillow; these characters have no ligatures or kerning that
    # another engine could add.
    return ImageFont.truetype(path, size, index, layout_engine=ImageFont.Layout.BASIC)


@cache
def find_font(file: str | Path | None = None, text: str = TEXT) -> Font:
    """The font for a watermark: from a file, or else the installed one closest to the published
    one.

    DiagvibError if there is none with all characters of the text.
    """
    if file is None:
        from matplotlib.font_manager import findSystemFonts

        # The authors' package has the paper's font; none of its code is used.
        packaged = packaged_files("imagenet_w", "*.otf") or []
        files = [*packaged, *map(Path, findSystemFonts())]
    elif Path(file).is_file():
        files = [Path(file)]
    else:
        raise DiagvibError(f"{file}: no such font file")
    if faces := [face for path in files for face in _faces(path, text)]:
        return min(faces, key=font_rank)
    characters = "".join(dict.fromkeys(text))
    if file is None:
        raise DiagvibError(
            f"no installed font has the characters {characters} of the watermark; `pip install "
            "--no-deps imagenet-w` brings the paper's; Debian has it as Noto Serif CJK SC ExtraLight "
            "(fonts-noto-cjk-extra), and a small one (fonts-arphic-uming); or name a file with --font, "
            "preferably SourceHanSerifSC-ExtraLight.otf"
        )
    raise DiagvibError(
        f"{file}: no font with the characters {characters} of the watermark; name a CJK font, "
        "preferably SourceHanSerifSC-ExtraLight.otf"
    )


def _faces(path: Path, text: str) -> Iterator[Font]:
    for index in range(100):
        try:
            face = _face(path, index, 20)
            missing = _drawn(face, _NO_CHARACTER)
            if all(_drawn(face, character) != missing for character in set(text)):
                family, style = face.getname()
                yield Font(path, index, family or path.stem, style or "", text)
        except OSError:  # not a font, or no further face
            return


def _drawn(face: ImageFont.FreeTypeFont, character: str) -> bytes:
    image = Image.new("L", (40, 40))
    ImageDraw.Draw(image).text((4, 4), character, 255, face)
    return image.tobytes()


def font_rank(font: Font) -> tuple:
    """How close a face is to the published one; the closest has the lowest rank."""
    family = font.family.lower()
    kind = next(
        (k for k, words in enumerate(_FAMILIES) if any(word in family for word in words)),
        len(_FAMILIES),
    )
    chinese = not {"sc", "cn"} & set(family.split())
    style = font.style.lower().replace(" ", "")
    weight = _WEIGHTS.index(style) if style in _WEIGHTS else len(_WEIGHTS)
    return kind, int(chinese), weight, font.family, font.style, str(font.path)


@dataclass(frozen=True)
class Overlay:
    """White text on a transparent background: alpha uint8[h, w] of its box, whose top left pixel is
    (row, column)."""

    row: int
    column: int
    alpha: np.ndarray


@lru_cache(16)
def watermark(size: int, font: Font) -> Overlay:
    """The watermark of ImageNet-W, or another text in its style, for images of size x size pixels."""
    points = _FONT_SIZES.get(size, int(size / 6.22))
    return overlay_of(size, font, font.text, points, 0.5, 0.01, 0.4)


def random_watermark(size: int, font: Font, generator: np.random.Generator) -> Overlay:
    """A watermark of the augmentation: 8 random CJK characters, of random size, opacity and height.

    The published font sizes are for 224 pixels; others are in proportion. A character that the font
    lacks is drawn as its replacement glyph, as in the authors' code.
    """
    low, high = _RANDOM_CHARACTERS
    text = "".join(map(chr, generator.integers(low, high, 8, endpoint=True)))
    points = max(1, round(generator.choice(_RANDOM_SIZES) * size / 224))
    opacity, y = (int(generator.choice(_TENTHS)) / 10 for _ in range(2))
    return overlay_of(size, font, text, points, opacity, 0.0, y)


def overlay_of(
    size: int, font: Font, text: str, points: int, opacity: float, x: float, y: float
) -> Overlay:
    layer = Image.new("RGBA", (size, size), (255, 255, 255, 0))
    ImageDraw.Draw(layer).text(
        (x * size, y * size), text, (255, 255, 255, round(opacity * 255)), font.at(points)
    )
    alpha = layer.getchannel("A")
    left, top, *end = alpha.getbbox() or (0, 0, 1, 1)
    return Overlay(top, left, np.asarray(alpha.crop((left, top, *end))))


def blend(pixels: Tensor, overlay: Overlay) -> Tensor:
    """New images uint8[..., 3, H, W] with the overlay on them; the same as PIL's alpha_composite,
    bit for bit."""
    import torch

    alpha = torch.from_numpy(overlay.alpha.astype(np.int32)).to(pixels.device)
    height, width = alpha.shape
    blended, bottom, right = pixels.clone(), overlay.row + height, overlay.column + width
    part = blended[..., overlay.row : bottom, overlay.column : right]
    # PIL divides by 255 with shifts, at seven bits of precision.
    mixed = (255 * alpha + part.int() * (255 - alpha) + 128) << 7
    part[:] = (((mixed >> 8) + mixed) >> 8) >> 7
    return blended
