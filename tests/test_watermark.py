"""The watermark of ImageNet-W: drawn with an available font, and blended as PIL does it, bit for
bit."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from conftest import refused
from diagvib.scenes.photos import watermark as watermarks
from diagvib.scenes.photos.watermark import (
    Font,
    blend,
    find_font,
    random_watermark,
    watermark,
)
from imagenet_w_photos import cjk_font


@pytest.fixture(scope="module")
def font() -> Font:
    return cjk_font()


def plain(
    pixels: np.ndarray, font: Font, text: str, points: int, opacity: float, position: tuple
) -> np.ndarray:
    """The watermark by plain PIL: uint8[H, W, 3] in and out."""
    image = Image.fromarray(pixels).convert("RGBA")
    layer = Image.new("RGBA", image.size, (255, 255, 255, 0))
    face = ImageFont.truetype(font.path, points, font.index, layout_engine=ImageFont.Layout.BASIC)
    ImageDraw.Draw(layer).text(
        (position[0] * image.width, position[1] * image.height),
        text,
        (255, 255, 255, round(opacity * 255)),
        face,
    )
    return np.array(Image.alpha_composite(image, layer).convert("RGB"))


@pytest.mark.parametrize(("size", "points"), [(224, 36), (64, 10), (384, 62), (518, 84)])
def test_a_batch_with_the_watermark_is_what_pil_makes_of_each_image(font, size, points):
    pixels = np.random.default_rng(size).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    ours = (
        blend(torch.from_numpy(pixels).permute(0, 3, 1, 2), watermark(size, font))
        .permute(0, 2, 3, 1)
        .numpy()
    )
    theirs = np.stack(
        [plain(item, font, "捷径捷径捷径", points, 0.5, (0.01, 0.4)) for item in pixels]
    )
    assert (ours == theirs).all()
    assert 0.03 < (ours != pixels).any(3).mean() < 0.2
    changed = np.nonzero((ours != pixels).any((0, 3)))
    assert changed[0].min() >= 0.4 * size - 1 and changed[1].min() <= 0.04 * size


def test_random_watermarks_are_those_of_the_augmentation(font):
    """At the left edge, of many heights, sizes and opacities; the same from the same generator."""
    draws = [random_watermark(224, font, np.random.default_rng(seed)) for seed in range(60)]
    again = random_watermark(224, font, np.random.default_rng(7))
    assert (again.alpha == draws[7].alpha).all()
    opacities = {int(item.alpha.max()) for item in draws}
    assert opacities <= {round(tenth / 10 * 255) for tenth in range(1, 10)} and len(opacities) > 5
    assert {item.column for item in draws} <= set(range(12))
    assert len({(item.row + 12) // 22 for item in draws}) > 5
    assert len({item.alpha.shape[1] for item in draws}) > 5


def test_a_font_without_the_characters_is_refused(tmp_path):
    from matplotlib import get_data_path

    latin = f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    with refused("DejaVuSans.ttf: no font with the characters 捷径"):
        find_font(latin)
    (tmp_path / "no.ttf").write_text("no font")
    with refused("no.ttf: no font with"):
        find_font(tmp_path / "no.ttf")
    with refused("absent.otf: no such font file"):
        find_font(tmp_path / "absent.otf")


def test_another_text_needs_its_own_characters_alone():
    from matplotlib import get_data_path

    latin = find_font(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", "######")
    assert latin.family == "DejaVu Sans"


def test_without_any_font_it_is_said_what_to_install(monkeypatch):
    from matplotlib import font_manager, get_data_path

    monkeypatch.setattr(
        font_manager, "findSystemFonts", lambda: [f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"]
    )
    monkeypatch.setattr(watermarks, "packaged_files", lambda *_: None)
    find_font.cache_clear()
    try:
        with refused("no installed font has .*fonts-noto-cjk-extra.* --font"):
            find_font()
    finally:
        find_font.cache_clear()


NEAREST_FIRST = [
    ("Source Han Serif SC", "ExtraLight"),
    ("Source Han Serif SC", "Regular"),
    ("Source Han Serif", "Bold"),
    ("Noto Serif CJK SC", "ExtraLight"),
    ("AR PL UMing CN", "Light"),
    ("Noto Sans CJK SC", "Regular"),
]


def test_the_nearest_font_to_the_papers_comes_first(tmp_path):
    fonts = [Font(tmp_path / "x.otf", 0, *names) for names in NEAREST_FIRST]
    shuffled = fonts[::-1]
    assert sorted(shuffled, key=watermarks.font_rank) == fonts
    assert [font.published for font in fonts] == [index in (0, 3) for index in range(len(fonts))]


def test_a_random_watermark_has_eight_characters_in_proportion_to_the_image(monkeypatch):
    draws = []
    monkeypatch.setattr(watermarks, "overlay_of", lambda *arguments: draws.append(arguments))
    for seed in range(100):
        watermarks.random_watermark(112, None, np.random.default_rng(seed))
    assert {len(text) for _, _, text, *_ in draws} == {8}
    assert {points for _, _, _, points, *_ in draws} == {16, 18, 20, 22, 24, 26}
