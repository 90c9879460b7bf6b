"""The kernel for GPUs without a GPU: its bytes, by Triton's interpreter, and its machine code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from diagvib.scenes.digits.renderer import Renderer
from diagvib.scenes.digits.resizing import CANVAS
from test_renderer import random_recipes

pytest.importorskip("triton", reason="no compiler for GPUs")

# Draws the recipes of files as a GPU would.
INTERPRETED = """
import sys
import numpy as np
from triton.runtime.interpreter import InterpreterBuilder
from diagvib.scenes.digits import gpu_kernel, renderer

if "fma_fp32" not in InterpreterBuilder.create_fma.__code__.co_names:
    sys.exit("its multiply-add rounds twice")
gpu_kernel._PIXELS = 4096  # the fewer blocks, the sooner
renderer.drawing = lambda device: gpu_kernel.GpuDrawing
for name in sys.argv[1:]:
    case = dict(np.load(name))
    images = renderer.Renderer(case.pop("digits"), case.pop("textures"), size=case.pop("size"))
    np.save(name, images.render(**case).numpy())
"""
# Compiles the kernel for GPUs that need not be there.
COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from diagvib.scenes.digits.gpu_kernel import draw_image

constants = {"size": 128, "square": 40, "canvas": 127, "guard": 1e-4, "fill": 8192, "pixels": 256}
types = {"matrices": "*fp32", "height": "i32", "width": "i32", "sides": "i32"}
types |= dict.fromkeys(("images", "masks", "textures"), "*u8") | dict.fromkeys(constants, "constexpr")
types = {name: types.get(name, "*i32") for name in draw_image.arg_names}
for capability in (80, 90):
    source = ASTSource(draw_image, types, constants)
    options = {"enable_fp_fusion": False}
    target = GPUTarget("cuda", capability, 32)
    print(triton.compile(source, target=target, options=options).asm["ptx"])
"""


def run(code: str, *arguments: object, **variables: str) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if "rounds twice" in process.stderr:
        pytest.skip("this Triton's interpreter rounds a multiply-add twice; a GPU does not")
    assert process.returncode == 0, process.stderr
    return process.stdout


def cases() -> list[dict]:
    """Golden recipes; and any object anywhere, up to larger than the image."""
    with np.load(Path(__file__).with_name("golden_renders.npz")) as file:
        case = {name: array[::2] for name, array in file.items()}
    n = len(case["images"])
    columns = ("hue", "lightness", "position", "scale")
    golden = {name: case[name] for name in ("digits", *columns)}
    golden |= {"textures": case["crops"], "size": 128, "digit": np.arange(n)}
    parts = [golden | {"texture": golden["digit"], "crop": np.zeros((n, 2), int)}]
    for size in (65, 256):
        g = np.random.default_rng(size)
        digits = np.zeros((7, 40, 40), np.uint8)
        for digit, start, end in zip(
            digits, g.integers(0, 20, 7), g.integers(20, 41, 7), strict=True
        ):
            digit[start:end, 5:31] = 255 * g.integers(0, 2, 26)
        textures = g.integers(0, 256, (3, 64, 70), dtype=np.uint8)
        places = {"position": g.uniform(-0.1, 1.1, (8, 2)), "scale": g.uniform(0.03, 2.5, 8)}
        recipes = random_recipes(8, seed=size) | places
        parts.append(recipes | {"digits": digits, "textures": textures, "size": size})
    return parts


def test_its_bytes_are_those_of_the_loop_for_cpus(tmp_path):
    parts = cases()
    paths = [tmp_path / f"{number}.npy" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        with path.open("wb") as file:
            np.savez(file, **part)
    run(INTERPRETED, *paths, TRITON_INTERPRET="1")
    for path, part in zip(paths, parts, strict=True):
        sources = part.pop("digits"), part.pop("textures")
        expected = Renderer(*sources, size=part.pop("size")).render(**part).numpy()
        assert (expected != CANVAS).sum() > 2_000
        np.testing.assert_array_equal(np.load(path), expected)


def test_it_compiles_for_the_a100_and_the_h100_and_rounds_as_the_loop_does(tmp_path: Path):
    code = run(COMPILED, TRITON_CACHE_DIR=str(tmp_path))
    assert re.findall(r"^\.target (sm_\d+)", code, re.M) == ["sm_80", "sm_90"]
    # Sums are of fused products, or add a constant.
    operations = set(re.findall(r"\b(?:fma|mul|add|sub|div)\.[\w.]*f32", code))
    assert operations == {"fma.rn.f32", "add.rn.f32"}
