"""Textures: published ones are unchanged; raw ones become grey, 256 x 256 and flat; ours are always
the same."""

import numpy as np
import pytest
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits.embedded import embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.textures import prepare_texture, read_texture, write_texture
from synthetic_sources import assert_flat


def test_published_textures_stay_as_they_are(mirror, tmp_path):
    for name in classes("texture"):
        published = np.asarray(Image.open(mirror / f"textures/{name}.png"))
        ours = prepare_texture(read_texture(mirror / f"textures/{name}.png"))
        write_texture(tmp_path / "t.png", ours)
        assert (ours == published).all()
        assert (read_texture(tmp_path / "t.png") == published).all()


@pytest.mark.parametrize("shape", [(300, 700, 3), (512, 512)])
def test_raw_texture_becomes_grey_256_and_flat(shape):
    colours = np.random.default_rng(1).normal(60, 20, shape).clip(0, 255).astype(np.uint8)
    assert_flat(prepare_texture(colours))


def test_raw_texture_is_cropped_around_its_centre():
    image = np.zeros((256, 456, 3), np.uint8)
    image[:, 100:356] = np.arange(256, dtype=np.uint8)[
        None, :, None
    ]  # the central square: a ramp from left to right
    means = prepare_texture(image).mean(axis=0)
    assert (np.diff(means) >= 0).all() and means[0] == 0 and means[-1] == 255


@pytest.mark.parametrize(
    ("image", "part"),
    [
        (np.zeros((300, 255, 3), np.uint8), "300 x 255 pixels"),
        (np.zeros((300, 300, 3), np.uint8), "single grey level"),
    ],
)
def test_unusable_texture_is_named(image, part):
    with pytest.raises(DiagvibError, match=rf"my\.png: .*{part}"):
        prepare_texture(image, "my.png")


def test_unreadable_texture_is_named(tmp_path):
    (tmp_path / "t.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    with pytest.raises(DiagvibError, match=r"t\.png: not readable as an image"):
        read_texture(tmp_path / "t.png")
    with pytest.raises(DiagvibError, match=r"absent\.png: no such file"):
        read_texture(tmp_path / "absent.png")


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
def test_every_kind_of_image_file_is_read(tmp_path, mode):
    grey = np.random.default_rng(2).integers(0, 256, (20, 30), dtype=np.uint8)
    deep = Image.fromarray(grey.astype(np.uint16) << 8)
    (deep if mode == "I;16" else Image.fromarray(grey).convert(mode)).save(tmp_path / "t.png")
    texture = read_texture(tmp_path / "t.png")
    assert texture.shape == ((20, 30, 3) if mode == "RGBA" else (20, 30))
    assert (texture.reshape(20, 30, -1)[..., 0] == grey).all()


def test_embedded_textures_are_flat_and_always_the_same():
    for name in classes("texture"):
        texture = embedded_texture(name)
        assert_flat(texture)
        assert (embedded_texture(name) == texture).all()
