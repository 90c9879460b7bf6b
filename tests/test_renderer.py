"""The renderer compared with the published generator's images and with a plain implementation, and
its edge cases."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.io import imread
from skimage.transform import resize as skimage_resize

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits import renderer as renderer_module
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.renderer import CANVAS, Renderer, resize_matrix

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from plain_renderer import render_plain

OWN_GOLDEN = Path(__file__).parent / "golden_renders.npz"


PATHS = [
    False,
    True,
]  # plain torch, and the CPU's kernel; Triton's kernel has tests of its own below
on_every_path = pytest.mark.parametrize("fused", PATHS, ids=["plain", "numba"])


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


def assert_golden_contract(ours: np.ndarray, theirs: np.ndarray) -> None:
    """At least 99.9 % of all pixels and 95 % of object pixels identical, none further off than 2
    levels."""
    difference = np.abs(ours.astype(int) - theirs)
    assert difference.max() <= 2
    assert (difference == 0).mean() >= 0.999
    assert (difference == 0)[theirs != CANVAS].mean() >= 0.95


@on_every_path
def test_published_renders(golden, mirror, fused):
    names = classes("texture")
    textures = np.stack([imread(mirror / "textures" / f"{name}.png") for name in names])
    ours = Renderer(golden["prepared_digit"], textures, fused=fused).render(
        digit=np.arange(len(golden["images"])),
        texture=[names.index(t) for t in golden["texture"]],
        crop=golden["texture_crop"],
        hue=golden["hue_degrees"],
        lightness=golden["lightness"],
        position=golden["position"],
        scale=golden["scale"],
    )
    assert_golden_contract(ours.numpy(), golden["images"].transpose(0, 2, 3, 1))


@on_every_path
def test_own_golden_renders(fused):
    """48 recipes over every object size, rendered once by `render_plain`."""
    with np.load(OWN_GOLDEN) as file:
        case = dict(file)
    n = len(case["images"])
    ours = Renderer(case["digits"], case["crops"], fused=fused).render(
        digit=np.arange(n),
        texture=np.arange(n),
        crop=np.zeros((n, 2), int),
        **{k: case[k] for k in ("hue", "lightness", "position", "scale")},
    )
    assert_golden_contract(ours.numpy(), case["images"])


@pytest.mark.parametrize("n", [14, 28, 29, 33, 40, 41, 58, 116])
def test_resize_matrix_is_scikit_images_operator(n):
    expected = skimage_resize(np.eye(40), (n, 40), order=1, anti_aliasing=True)
    np.testing.assert_allclose(resize_matrix(n), expected, atol=2e-6)


@on_every_path
@pytest.mark.parametrize("size", [64, 96, 128, 256])
def test_every_image_size_agrees_with_plain(stacks, size, fused):
    digits, textures = stacks
    recipes = random_recipes(24, seed=size)
    ours = Renderer(digits, textures, size=size, fused=fused).render(**recipes).numpy().astype(int)
    for i in range(24):
        row, column = recipes["crop"][i]
        crop = textures[recipes["texture"][i], row : row + 40, column : column + 40]
        plain = render_plain(
            digits[recipes["digit"][i]],
            crop,
            recipes["hue"][i],
            recipes["lightness"][i],
            recipes["position"][i],
            recipes["scale"][i],
            size,
        )
        assert np.abs(ours[i] - plain).max() <= 2
        assert (ours[i] == plain).mean() > 0.99


@on_every_path
def test_batch_order_and_threads_change_nothing(stacks, fused):
    renderer, recipes = Renderer(*stacks, fused=fused), random_recipes(300)
    whole = renderer.render(**recipes)
    order = np.random.default_rng(2).permutation(300)
    assert torch.equal(renderer.render(**{k: v[order] for k, v in recipes.items()}), whole[order])
    parts = [
        renderer.render(**{k: v[at : at + 7] for k, v in recipes.items()})
        for at in range(0, 300, 7)
    ]
    assert torch.equal(torch.cat(parts), whole)
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert torch.equal(renderer.render(**recipes), whole)
    finally:
        torch.set_num_threads(threads)


def test_placing_by_gather_equals_placing_by_slices(stacks, monkeypatch):
    recipes = random_recipes(200) | {
        "position": np.random.default_rng(3).uniform(-0.3, 1.3, (200, 2))
    }
    by_slices = Renderer(*stacks, fused=False).render(**recipes)
    monkeypatch.setattr(renderer_module, "_place_by_slices", renderer_module._place_by_gather)
    assert torch.equal(Renderer(*stacks, fused=False).render(**recipes), by_slices)


@pytest.mark.parametrize("size", [64, 65, 128, 200, 256])
def test_the_paths_agree(stacks, size):
    """Within one level on 99.9 % of pixels, also at the border and for objects from one pixel to
    the largest."""
    g = np.random.default_rng(size)
    recipes = random_recipes(200) | {
        "position": g.uniform(-0.3, 1.3, (200, 2)),
        "scale": g.uniform(0.02, 3.1, 200),
    }
    plain, fused = (Renderer(*stacks, size=size, fused=f).render(**recipes).short() for f in PATHS)
    difference = (plain - fused).abs()
    assert (plain != CANVAS).any(dim=(1, 2, 3)).sum() > 100
    assert difference.max() <= 1
    assert (difference > 0).float().mean() <= 0.001


def test_objects_larger_than_the_kernel_takes_are_drawn_all_the_same(stacks):
    recipes = random_recipes(2) | {"scale": np.array([1.0, 4.0])}
    assert torch.equal(*(Renderer(*stacks, fused=fused).render(**recipes) for fused in PATHS))


def test_without_numba_plain_torch_renders(stacks, monkeypatch):
    assert Renderer(*stacks).kernel is not None
    monkeypatch.setattr(renderer_module, "find_spec", lambda name: None)
    assert Renderer(*stacks).kernel is None


@pytest.mark.parametrize("used", [slice(0, 40), slice(0, 3), slice(17, 18), slice(38, 40)])
@on_every_path
def test_digits_anywhere_in_their_square_are_drawn(stacks, used, fused):
    """The computed window follows the digits, including those that reach the square's border."""
    digits, textures = np.zeros((7, 40, 40), np.uint8), stacks[1]
    digits[:, used, used] = np.random.default_rng(5).integers(140, 256, digits[:, used, used].shape)
    recipes = random_recipes(16, seed=6)
    ours = Renderer(digits, textures, fused=fused).render(**recipes).numpy().astype(int)
    for i, image in enumerate(ours):
        row, column = recipes["crop"][i]
        crop = textures[recipes["texture"][i], row : row + 40, column : column + 40]
        plain = render_plain(
            digits[recipes["digit"][i]],
            crop,
            *(recipes[k][i] for k in ("hue", "lightness", "position", "scale")),
        )
        assert np.abs(image - plain).max() <= 2
        assert (image == plain).mean() > 0.95


@on_every_path
def test_empty_digits_leave_the_canvas(stacks, fused):
    images = Renderer(np.full((7, 40, 40), 150, np.uint8), stacks[1], fused=fused).render(
        **random_recipes(9)
    )
    assert (images == CANVAS).all()


INTERPRETED = """
import sys, numpy as np, torch
sys.path.insert(0, sys.argv[1])
from test_renderer import random_recipes
from diagvib.scenes.digits.triton_kernel import Kernel
from diagvib.scenes.digits.renderer import Renderer

def by_triton(*stacks, size=128):
    renderer = Renderer(*stacks, size=size, fused=False)
    renderer.kernel = Kernel(renderer.masks, renderer.textures, size, renderer._used)
    return renderer

g = np.random.default_rng(1)
digits = np.zeros((7, 40, 40), np.uint8)
digits[:, 6:34, 8:32] = g.integers(0, 256, (7, 28, 24))
textures = g.integers(0, 256, (3, 64, 70), dtype=np.uint8)
for size, n in ((128, 5), (65, 3), (64, 1), (64, 0)):
    recipes = random_recipes(n, seed=size)
    recipes["position"][:2] = np.array([[-0.05, 0.98], [0.5, -3]])[:n]
    plain = Renderer(digits, textures, size=size, fused=False).render(**recipes)
    fused = by_triton(digits, textures, size=size).render(**recipes)
    assert fused.shape == plain.shape and fused.dtype == torch.uint8
    difference = (fused.int() - plain.int()).abs()
    assert n == 0 or difference.max() <= 1, difference.max()
    assert (difference > 0).sum() <= 0.001 * difference.numel()
huge = random_recipes(2) | {"scale": np.array([1.0, 4.0])}
assert torch.equal(by_triton(digits, textures).render(**huge),
                   Renderer(digits, textures, fused=False).render(**huge))

with np.load(sys.argv[1] + "/golden_renders.npz") as file:
    case = {k: v[::8] for k, v in file.items()}
n = len(case["images"])
ours = by_triton(case["digits"], case["crops"]).render(
    digit=np.arange(n), texture=np.arange(n), crop=np.zeros((n, 2), int),
    **{k: case[k] for k in ("hue", "lightness", "position", "scale")})
difference = np.abs(ours.numpy().astype(int) - case["images"])
assert difference.max() <= 2 and (difference == 0).mean() >= 0.999
print("agrees")
"""


def test_the_kernel_agrees_in_tritons_interpreter():
    """The CUDA kernel, run on the CPU by Triton's interpreter, which must be chosen before Triton
    is imported."""
    pytest.importorskip(
        "triton", reason="triton is not installed (it comes with CUDA builds of torch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "agrees"


def test_the_kernel_compiles_for_hopper(tmp_path, monkeypatch):
    """Compiled ahead of time, without a GPU: wide stores, a barrier between canvas and object, no
    register spills."""
    triton = pytest.importorskip(
        "triton", reason="triton is not installed (it comes with CUDA builds of torch)"
    )
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from diagvib.scenes.digits.triton_kernel import FILL, PIXELS, WARPS, render_image

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {
        "size": 128,
        "sides": 129,
        "object_side": 40,
        "canvas": CANVAS,
        "guard": 1e-4,
        "fill": FILL,
        "pixels": PIXELS,
    }
    types = (
        ["*u8"] * 3
        + ["*fp32", "*i32", "*i32"]
        + ["*i32"] * 6
        + ["i32"] * 2
        + ["constexpr"] * len(constants)
    )
    names = render_image.arg_names
    source = ASTSource(
        fn=render_image,
        signature=dict(zip(names, types, strict=True)),
        constexprs={(names.index(k),): v for k, v in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(14)},
    )
    options = {"num_warps": WARPS, "enable_fp_fusion": True}
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    assert ".target sm_90" in code
    canvas, _, objects = code.partition("bar.sync")
    assert "st.global.v4" in canvas and "st.global.b8" not in canvas
    assert "st.global.b8" in objects
    assert ".local" not in code


@on_every_path
def test_empty_and_single(stacks, fused):
    renderer = Renderer(*stacks, fused=fused)
    assert renderer.render(**random_recipes(0)).shape == (0, 128, 128, 3)
    assert renderer.render(**random_recipes(1)).shape == (1, 128, 128, 3)


@on_every_path
def test_objects_leaving_the_image_are_clipped(stacks, fused):
    far = np.array([[-2.0, 0.5], [0.5, 3.0], [0.0, 0.0], [1.0, 1.0], [0.5, -0.1]])
    images = Renderer(*stacks, fused=fused).render(**random_recipes(5) | {"position": far}).numpy()
    assert (images[:2] == CANVAS).all()
    assert (images[2, :10, :10] != CANVAS).any()
    assert (images[2, 40:, 40:] == CANVAS).all()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("digit", 7, "digit 7 is out of range"),
        ("digit", -1, "digit -1"),
        ("texture", 3, "texture 3 is out of range"),
        ("crop", (0, 25), r"crop \[0, 25\] is out of range"),
        ("scale", np.nan, "scale nan is not a finite number"),
        ("lightness", (0.5, np.inf), r"lightness \[0.5, inf\] is not a finite number"),
    ],
)
def test_a_wrong_value_is_named_with_its_row(stacks, name, value, says):
    recipes = random_recipes(10)
    recipes[name][4] = value
    with pytest.raises(DiagvibError, match=f"row 4: {says}"):
        Renderer(*stacks).render(**recipes)


def test_wrong_shapes_are_named(stacks):
    digits, textures = stacks
    with pytest.raises(DiagvibError, match=r"crop: shape \(10,\) given, \(10, 2\) expected"):
        Renderer(digits, textures).render(**random_recipes(10) | {"crop": np.zeros(10, int)})
    with pytest.raises(DiagvibError, match="digits"):
        Renderer(digits.astype(float), textures)
    with pytest.raises(DiagvibError, match="image size 32"):
        Renderer(digits, textures, size=32)
