"""The renderer compared with the published generator's images and with a plain implementation, and
its edge cases."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from plain_renderer import render_plain
from skimage.io import imread

from conftest import refused
from diagvib.scenes.digits import renderer
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.renderer import CpuDrawing, Renderer
from diagvib.scenes.digits.resizing import CANVAS


def random_recipes(
    n: int, seed: int = 0, digits: int = 7, textures: int = 3
) -> dict[str, np.ndarray]:
    g = np.random.default_rng(seed)
    return {
        "digit": g.integers(0, digits, n),
        "texture": g.integers(0, textures, n),
        "crop": g.integers(0, 25, (n, 2)),
        "hue": g.uniform(0, 360, n),
        "lightness": g.uniform(0, 1, (n, 2)),
        "position": g.uniform(1 / 7, 6 / 7, (n, 2)),
        "scale": g.uniform(1 / 1.45, 1.45, n),
    }


@pytest.fixture(scope="module")
def stacks() -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(1)
    digits = np.zeros((7, 40, 40), np.uint8)
    digits[:, 6:34, 8:32] = g.integers(0, 256, (7, 28, 24))
    return digits, g.integers(0, 256, (3, 64, 64), dtype=np.uint8)


def test_published_renders(golden, mirror):
    names = classes("texture")
    textures = np.stack([imread(mirror / "textures" / f"{name}.png") for name in names])
    ours = Renderer(golden["prepared_digit"], textures).render(
        digit=np.arange(len(golden["images"])),
        texture=[names.index(t) for t in golden["texture"]],
        crop=golden["texture_crop"],
        hue=golden["hue_degrees"],
        lightness=golden["lightness"],
        position=golden["position"],
        scale=golden["scale"],
    )
    theirs = golden["images"].transpose(0, 2, 3, 1)
    difference = np.abs(ours.numpy().astype(int) - theirs)
    assert difference.max() <= 2
    assert (difference == 0).mean() >= 0.999
    assert (difference == 0)[theirs != CANVAS].mean() >= 0.95


def assert_agrees_with_plain(digits, textures, size: int, share: float, **changed) -> None:
    """No pixel is further than 2 levels from the plain implementation's, and this share is equal."""
    recipes = random_recipes(24, seed=size) | changed
    ours = Renderer(digits, textures, size=size).render(**recipes).numpy().astype(int)
    for i, image in enumerate(ours):
        row, column = recipes["crop"][i]
        crop = textures[recipes["texture"][i], row : row + 40, column : column + 40]
        numbers = (recipes[name][i] for name in ("hue", "lightness", "position", "scale"))
        plain = render_plain(digits[recipes["digit"][i]], crop, *numbers, size)
        assert np.abs(image - plain).max() <= 2
        assert (image == plain).mean() > share


@pytest.mark.parametrize("used", [slice(0, 40), slice(17, 18), slice(38, 40)])
def test_digits_anywhere_in_their_square_are_drawn(stacks, used):
    """The computed region follows the digits, including those that reach the square's border."""
    digits = np.zeros((7, 40, 40), np.uint8)
    digits[:, used, used] = np.random.default_rng(5).integers(140, 256, digits[:, used, used].shape)
    assert_agrees_with_plain(digits, stacks[1], 128, 0.95)


@pytest.mark.parametrize("size", [64, 65, 128, 256])
def test_any_object_anywhere_agrees_with_plain(stacks, size):
    """Also at the border, from one pixel to larger than the image."""
    g = np.random.default_rng(size)
    position, scale = g.uniform(0, 1, (24, 2)), g.uniform(0.03, 4, 24)
    assert_agrees_with_plain(*stacks, size, 0.98, position=position, scale=scale)


def test_empty_digits_and_objects_outside_leave_the_canvas(stacks):
    recipes, outside = random_recipes(2), {"position": np.array([[-2.0, 0.5], [0.5, 3.0]])}
    empty = Renderer(np.full((7, 40, 40), 150, np.uint8), stacks[1]).render(**recipes)
    assert (empty == CANVAS).all()
    assert (Renderer(*stacks).render(**recipes | outside) == CANVAS).all()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("texture", -1, "texture -1 is out of range"),
        ("crop", (0, 25), r"crop \[0, 25\] is out of range"),
        ("lightness", (0.5, np.inf), r"lightness \[0.5, inf\] is not a finite number"),
    ],
)
def test_a_wrong_value_is_named_with_its_row(stacks, name, value, says):
    recipes = random_recipes(10)
    recipes[name][4] = value
    with refused(f"row 4: {says}"):
        Renderer(*stacks).render(**recipes)


def test_wrong_shapes_are_named(stacks):
    digits, textures = stacks
    with refused(r"crop: shape \(10,\) given, \(10, 2\) expected"):
        Renderer(digits, textures).render(**random_recipes(10) | {"crop": np.zeros(10, int)})
    with refused("digits"):
        Renderer(digits.astype(float), textures)
    with refused("image size 32"):
        Renderer(digits, textures, size=32)


def test_where_triton_finds_no_compiler_the_cpu_draws_for_a_gpu(monkeypatch, capfd):
    class Driver:
        @property
        def active(self) -> None:
            raise RuntimeError("Failed to find C compiler.")

    runtime = SimpleNamespace(driver=Driver())
    monkeypatch.setitem(sys.modules, "triton.runtime", runtime)
    monkeypatch.setitem(
        sys.modules, "diagvib.scenes.digits.gpu_kernel", SimpleNamespace(GpuDrawing=1)
    )
    monkeypatch.setattr(renderer, "find_spec", lambda name: True)
    assert renderer.drawing(torch.device("cuda")) is CpuDrawing
    assert (
        "drawn by the CPU, because Triton does not work here (RuntimeError: Failed to find C"
        in (capfd.readouterr().err)
    )
    assert renderer.drawing(torch.device("cpu")) is CpuDrawing
