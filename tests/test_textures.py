"""Textures: published ones are unchanged; ours are flat and always the same."""

import numpy as np
import pytest
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits.embedded import embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.textures import read_texture, write_texture
from synthetic_sources import assert_flat


def test_published_textures_stay_as_they_are(mirror, tmp_path):
    for name in classes("texture"):
        published = np.asarray(Image.open(mirror / f"textures/{name}.png"))
        ours = read_texture(mirror / f"textures/{name}.png")
        write_texture(tmp_path / "t.png", ours)
        assert (ours == published).all()
        assert (read_texture(tmp_path / "t.png") == published).all()


def test_a_texture_that_cannot_be_used_is_named(tmp_path):
    path = tmp_path / "t.png"
    for content in (b"\x89PNG\r\n\x1a\nnot really", (256, 256, 3), (128, 256)):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            Image.fromarray(np.zeros(content, np.uint8)).save(path)
        with pytest.raises(
            DiagvibError, match=r"t\.png: not readable as a grey image of 256 x 256"
        ):
            read_texture(path)


def test_embedded_textures_are_flat_and_always_the_same():
    for name in classes("texture"):
        texture = embedded_texture(name)
        assert_flat(texture)
        assert (embedded_texture(name) == texture).all()
