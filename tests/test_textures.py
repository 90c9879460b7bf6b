"""Textures: published ones are unchanged; photos of any kind become flat, always in the same way."""

import numpy as np
import pytest
from PIL import Image
from scipy.stats import spearmanr

from conftest import refused
from diagvib.scenes.digits.embedded import embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.textures import check_distinct, read_photo, read_texture, write_texture
from diagvib.textures import prepare_texture
from synthetic_sources import assert_flat, surface


def test_published_textures_stay_as_they_are(mirror, tmp_path):
    for name in classes("texture"):
        published = np.asarray(Image.open(mirror / f"textures/{name}.png"))
        assert (prepare_texture(published) == published).all()
        ours = read_texture(mirror / f"textures/{name}.png")
        write_texture(tmp_path / "t.png", ours)
        assert (ours == published).all()
        assert (read_texture(tmp_path / "t.png") == published).all()


def _coloured(grey: np.ndarray) -> np.ndarray:
    return np.stack([grey, grey // 2 + 40, 255 - grey // 4], 2)


def _turned(image: Image.Image) -> tuple[Image.Image, dict]:
    """As a camera saves it that was held upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return image.transpose(Image.Transpose.ROTATE_90), {"exif": exif}


SIDE = 300
KINDS = {
    "grey.png": lambda grey: (Image.fromarray(grey), {}),
    "colour.png": lambda grey: (Image.fromarray(_coloured(grey)), {}),
    "colour.JPG": lambda grey: (Image.fromarray(_coloured(grey)), {"quality": 95}),
    "grey.jpeg": lambda grey: (Image.fromarray(grey), {"quality": 95}),
    "16bits.png": lambda grey: (Image.fromarray(grey.astype(np.uint16) * 257), {}),
    "12of16bits.tiff": lambda grey: (Image.fromarray(grey.astype(np.uint16) * 16), {}),
    "opaque.png": lambda grey: (Image.fromarray(grey).convert("RGBA"), {}),
    "palette.png": lambda grey: (Image.fromarray(_coloured(grey)).quantize(256), {}),
    "turned.jpg": lambda grey: _turned(Image.fromarray(grey)),
}


@pytest.mark.parametrize("shape", [(SIDE, SIDE), (SIDE, 411), (389, SIDE), (256, 256)], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_the_central_square_of_a_photo_becomes_flat(tmp_path, name, shape):
    grey = surface(3, (640, 640))[: shape[0], : shape[1]]
    image, options = KINDS[name](grey)
    image.save(tmp_path / name, **options)
    texture = read_texture(tmp_path / name)
    top, left = ((side - min(shape)) // 2 for side in shape)
    square = Image.fromarray(grey[top : top + min(shape), left : left + min(shape)])
    expected = np.asarray(square.resize((256, 256), Image.Resampling.BILINEAR))
    assert spearmanr(texture.ravel(), expected.ravel()).statistic > 0.98
    if image.mode != "L" or shape != (256, 256):  # else it is returned as it is
        assert_flat(texture)
    assert (read_texture(tmp_path / name) == texture).all()


def test_a_bright_dot_leaves_a_dark_photo_its_levels():
    dark = surface(4, (400, 400)).astype(np.uint16)
    dark[200, 200] = 65_535
    assert_flat(prepare_texture(dark))


def test_equal_levels_of_8_and_16_bits_are_the_same_texture():
    grey = surface(5, (500, 320))
    assert (prepare_texture(grey) == prepare_texture(grey.astype(np.uint16) * 257)).all()


BAD = {
    "small.png": (np.zeros((255, 900), np.uint8), "900 x 255 pixels; each side needs at least 256"),
    "one.png": (np.full((300, 300), 7, np.uint8), "has a single grey level"),
    "colour.png": (np.full((300, 300, 3), (9, 80, 7), np.uint8), "has a single grey level"),
    "black.png": (np.zeros((256, 256), np.uint8), "has a single grey level"),
    "clear.png": (np.zeros((300, 300, 4), np.uint8), "not readable as a photo .it has transparent"),
    "float.tiff": (np.zeros((300, 300), np.float32), "not readable as a photo .it has 32 bits"),
    "broken.jpg": (b"\xff\xd8\xff\xe0 not really", "not readable as a photo"),
    "empty.png": (b"", "not readable as a photo"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_photo_that_cannot_be_used_is_named(tmp_path, name):
    content, problem = BAD[name]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        Image.fromarray(content).save(tmp_path / name)
    with refused(f"{name}: {problem}") as error:
        read_texture(tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "array", [np.zeros((300, 300)), np.zeros((300, 300, 2), np.uint8), np.zeros(300, np.uint8)]
)
def test_an_array_that_is_no_photo_is_refused(array):
    with refused("oak: .* is no photo; 8 or 16 bits"):
        prepare_texture(array, "oak")


def test_one_photo_is_not_two_textures(tmp_path):
    grey = surface(6, (400, 400))
    Image.fromarray(grey).save(tmp_path / "a.png")
    Image.fromarray(_coloured(grey)).save(tmp_path / "b.jpg", quality=60)
    textures = {name: read_texture(tmp_path / name) for name in ("a.png", "b.jpg")}
    with refused(r"b\.jpg: is the same texture as a\.png"):
        check_distinct(textures)
    check_distinct({name: embedded_texture(name) for name in classes("texture")})
    check_distinct({str(seed): prepare_texture(surface(seed)) for seed in range(9)})


def test_a_missing_photo_says_fetch(tmp_path):
    with refused("no such file; run `diagvib fetch` first"):
        read_photo(tmp_path / "t.png")


def test_embedded_textures_are_flat_and_always_the_same():
    for name in classes("texture"):
        texture = embedded_texture(name)
        assert_flat(texture)
        assert (embedded_texture(name) == texture).all()
