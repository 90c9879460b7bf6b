"""Speed of rendering and of image files: on this machine's processor, compared with a plain
implementation, and on its GPU, compared with the processor.

    python benchmarks/render.py --images 43740
    python benchmarks/render.py --images 131072 --device cuda
"""

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import pyarrow as pa
import torch
import typer
from result_file import (
    REPOSITORY,
    RESULTS,
    Out,
    cores,
    print_rows,
    result_row,
    save_result,
)

from diagvib.images.files import BATCH, read_images, write_images
from diagvib.scenes.digits.factors import FACTORS, REALIZATION_COLUMNS, classes, draw_realizations
from diagvib.scenes.digits.renderer import Renderer
from diagvib.scenes.digits.resizing import OBJECT_SIDE, TEXTURE_SIZE
from diagvib.scenes.digits.scene import RecipeRenderer

GOLDEN = REPOSITORY / "tests/golden_renders.npz"
# Every figure is the best of this many rounds, each measuring everything once: other work slows
# some of them.
ROUNDS = 4
YARDSTICK_IMAGES = 250


def main(
    images: Annotated[int, typer.Option(min=1, help="Images per figure.")] = 16_384,
    out: Out = RESULTS,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Time rendering, writing and reading images, compared with a plain implementation."""
    load, rows = os.getloadavg()[0], []
    out.mkdir(parents=True, exist_ok=True)
    if device == "cpu":
        for count in sorted({1, len(cores())}):
            rows += _in_child(_measure_cpu, count, images, out)
    else:
        rows = [*_measure_gpu(images, out), _measure_side_by_side(images, out)]
    print_rows(
        rows, what="", device="", threads="", images_per_second=",.0f", ratio_to_yardstick=".1f"
    )
    save_result("render", device, rows, out, load_before=load)


def stacks() -> tuple[np.ndarray, np.ndarray]:
    """Digits uint8[48, 40, 40] and textures uint8[5, 256, 256], which contain the golden file's
    crops side by side."""
    case = _golden()
    crops = case["crops"]
    per_side = -(-TEXTURE_SIZE // OBJECT_SIDE)
    tiles = [
        crops[np.random.default_rng(seed).permutation(per_side**2) % len(crops)]
        for seed in range(5)
    ]
    textures = [
        np.block([list(t[i * per_side : (i + 1) * per_side]) for i in range(per_side)])
        for t in tiles
    ]
    return case["digits"], np.stack(textures)[:, :TEXTURE_SIZE, :TEXTURE_SIZE]


@cache
def _golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as file:
        return dict(file)


def random_recipes(n: int, digits: int, seed: int = 0) -> pa.Table:
    """A recipe table of n images, every factor uniform over all its classes, without
    correlation."""
    generator = np.random.default_rng(seed)
    index = {f: generator.integers(0, len(classes(f)), n) for f in FACTORS}
    columns = {
        "split": np.repeat("train", n),
        "group": np.repeat("id", n),
        **{f: np.array(classes(f))[index[f]] for f in FACTORS},
    }
    for factor in ("position", "hue", "lightness", "scale"):
        values = draw_realizations(factor, index[factor], generator)
        columns |= dict(zip(REALIZATION_COLUMNS[factor], values.T, strict=True))
    crop = generator.integers(0, TEXTURE_SIZE - OBJECT_SIDE + 1, (2, n))
    return pa.table(
        columns
        | {"digit": generator.integers(0, digits, n), "crop_row": crop[0], "crop_column": crop[1]}
    )


def render_arguments(recipes: pa.Table) -> dict[str, torch.Tensor]:
    """A recipe table as the arguments of `Renderer.render`."""

    def take(*names: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([recipes[n].to_numpy() for n in names], 1))

    texture = np.array([classes("texture").index(t) for t in recipes["texture"].to_pylist()])
    return {
        "digit": take("digit")[:, 0],
        "texture": torch.from_numpy(texture),
        "crop": take("crop_row", "crop_column"),
        "hue": take("hue_degrees")[:, 0],
        "lightness": take("lightness_1", "lightness_2"),
        "position": take("position_row", "position_column"),
        "scale": take("scale_factor")[:, 0],
    }


def _best(work: dict[str, Callable], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of the fastest round of each piece of work; the pieces alternate."""
    seconds = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, function in work.items():
            start = time.perf_counter()
            function()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def _in_child(function: Callable, count: int, *arguments):
    """Call in a new process limited to this many cores: pinning must come before any library starts
    its threads."""
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), _use_cores, (count,)
    ) as child:
        return child.submit(function, count, *arguments).result()


def _use_cores(count: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores()[-count:])
    torch.set_num_threads(count)
    pa.set_cpu_count(count)


def _measure_cpu(count: int, images: int, out: Path) -> list[dict]:
    digits, textures = stacks()
    renderer, recipes = Renderer(digits, textures), random_recipes(images, len(digits))
    batches = [render_arguments(recipes.slice(at, BATCH)) for at in range(0, images, BATCH)]
    with TemporaryDirectory(dir=out) as folder:
        path = Path(folder) / "train.parquet"

        def write() -> None:
            write_images(path, recipes, RecipeRenderer(renderer), {})

        def draw() -> None:
            for batch in batches:
                renderer.render(**batch)

        draw()  # compiles
        write()
        memory = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        work = {
            "render": draw,
            "render to Parquet": write,
            "read from Parquet": lambda: read_images(path),
        }
        if count == 1 and find_spec("skimage"):
            _render_plainly()  # imports it, and makes its images
            work["yardstick"] = _render_plainly
        seconds = _best(work)
    counts = {"yardstick": YARDSTICK_IMAGES}
    more = {"render to Parquet": {"peak_memory_mib": memory}}
    rows = [
        result_row(what, "cpu", count, counts.get(what, images), s, **more.get(what, {}))
        for what, s in seconds.items()
    ]
    if "yardstick" in seconds:
        for row in rows:
            row["ratio_to_yardstick"] = row["images_per_second"] / rows[-1]["images_per_second"]
    return rows


def _measure_gpu(images: int, out: Path) -> list[dict]:
    """Drawing recipes that are on the GPU, beside filling as many bytes; copying them to the CPU;
    and to a file. Stops if the GPU's bytes are not the CPU's."""
    digits, textures = stacks()
    renderer, recipes = Renderer(digits, textures, "cuda"), random_recipes(images, len(digits))
    columns = {name: column.cuda() for name, column in render_arguments(recipes).items()}
    part = {name: column[:4096] for name, column in columns.items()}
    if not torch.equal(renderer.render(**part).cpu(), Renderer(digits, textures).render(**part)):
        raise SystemExit("the GPU draws other bytes than the CPU")
    buffer = renderer.render(**columns)
    copy = torch.empty(buffer[:4096].shape, dtype=torch.uint8, pin_memory=True)
    torch.set_num_threads(len(cores()))

    def finished(function: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            function()
            torch.cuda.synchronize()

        return call

    with TemporaryDirectory(dir=out) as folder:
        path = Path(folder) / "train.parquet"
        work = {
            "render": finished(lambda: renderer.render(**columns)),
            "fill": finished(lambda: buffer.fill_(127)),
            "copy": finished(lambda: copy.copy_(buffer[:4096], non_blocking=True)),
            "render to Parquet": lambda: write_images(path, recipes, RecipeRenderer(renderer), {}),
        }
        for function in work.values():
            function()
        seconds = _best(work)
    counts = {"copy": 4096}
    return [
        result_row(what, "cuda", len(cores()), counts.get(what, images), s)
        for what, s in seconds.items()
    ]


def _measure_side_by_side(images: int, out: Path) -> dict:
    """A job on each core that draws and writes as many images as the others."""
    count = len(cores())
    share = images // count
    with (
        TemporaryDirectory(dir=out) as folder,
        ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as jobs,
    ):
        paths = [Path(folder) / f"{number}.parquet" for number in range(count)]
        seconds = []
        for _ in range(ROUNDS + 1):  # the first compiles
            start = time.perf_counter()
            list(jobs.map(_write_alone, [share] * count, paths))
            seconds.append(time.perf_counter() - start)
    return result_row(
        "render to Parquet, a job per core", "cpu", count, share * count, min(seconds)
    )


def _write_alone(images: int, path: Path) -> None:
    torch.set_num_threads(1)
    renderer, recipes = _alone(images)
    write_images(path, recipes, renderer, {})


@cache
def _alone(images: int) -> tuple[RecipeRenderer, pa.Table]:
    digits, textures = stacks()
    return RecipeRenderer(Renderer(digits, textures)), random_recipes(images, len(digits))


def _render_plainly() -> None:
    """Images of the golden file, one at a time."""
    from plain_renderer import render_plain

    names = ("digits", "crops", "hue", "lightness", "position", "scale")
    cases = zip(*(_golden()[name] for name in names), strict=True)
    for arguments in islice(cycle(cases), YARDSTICK_IMAGES):
        render_plain(*arguments)


if __name__ == "__main__":
    typer.run(main)
