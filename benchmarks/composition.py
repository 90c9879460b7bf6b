"""How fast the scene cars composes images, compared with Pillow, image by image: `python
benchmarks/composition.py`.

Photos are crops of those that scikit-image and scikit-learn ship, with ellipses as masks; they go
through fetch and prepare like a user's. Yardsticks, one image at a time: `Pillow` and `NumPy` paste
parts that are already cut out, scaled and in memory; `Pillow, from files` opens, crops and scales
the photos first, like a program that prepares nothing. Everything runs on one core, alternating;
every figure is the best of several rounds. Times are CPU seconds of the process, so that other work
on the machine matters little.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import pyarrow as pa
import torch
import typer
from PIL import Image
from sklearn.datasets import load_sample_images

from diagvib.bench.results import RESULTS, save_result
from diagvib.foundation.files import read_table
from diagvib.images.files import render_batches, write_images
from diagvib.scenes import load_scene
from diagvib.scenes.cars.geometry import FACTORS, PASTED, tile_corner
from diagvib.scenes.cars.sources import FOLDERS
from diagvib.scenes.cars.tiles import background_tile, cut_out_tile
from diagvib.scenes.photos.decoding import open_photo

SIZE = 256


def make_photos(folder: Path, each: int) -> None:
    """`each` photos of every class, 256 x 256 JPEGs for backgrounds, 400 x 300 with masks for what
    is pasted."""
    from skimage import data

    photos = [
        np.asarray(photo)
        for photo in (
            data.astronaut(),
            data.coffee(),
            data.chelsea(),
            data.rocket(),
            *load_sample_images().images,
        )
    ]
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[:300, :400]
    for factor, name in ((factor, name) for factor in FACTORS for name in ("urban", "country")):
        place = folder / FOLDERS[factor] / name
        place.mkdir(parents=True)
        height, width = (256, 256) if factor == "background" else (300, 400)
        for number in range(each):
            photo = photos[number % len(photos)]
            top, left = (
                generator.integers(0, length - part + 1)
                for length, part in zip(photo.shape, (height, width), strict=False)
            )
            crop = photo[top : top + height, left : left + width] * generator.uniform(
                0.7, 1
            )  # no photo occurs twice
            Image.fromarray(crop.astype(np.uint8)).save(place / f"{number}.jpg", quality=92)
            if factor != "background":
                radii = generator.uniform(60, 140, 2)
                mask = ((rows - 150) / radii[0]) ** 2 + ((columns - 200) / radii[1]) ** 2 <= 1
                Image.fromarray(mask).save(place / f"{number}.mask.png")


def paste(canvas: Image.Image, tiles: dict[str, Image.Image]) -> np.ndarray:
    """One image as Pillow composes it."""
    for factor in PASTED:
        top, left = tile_corner(factor, SIZE)
        canvas.paste(tiles[factor], (left, top), tiles[factor].getchannel("A"))
    return np.asarray(canvas)


def with_numpy(
    packs: dict[str, np.ndarray], rows: dict[str, np.ndarray], n: int
) -> list[np.ndarray]:
    images = []
    for i in range(n):
        image = packs["background"][rows["background"][i]].copy()
        for factor in PASTED:
            tile, (top, left) = packs[factor][rows[factor][i]], tile_corner(factor, SIZE)
            window, opaque = image[top : top + len(tile), left : left + len(tile)], tile[..., 3] > 0
            window[opaque] = tile[..., :3][opaque]
        images.append(image)
    return images


def with_pillow(
    packs: dict[str, np.ndarray], rows: dict[str, np.ndarray], n: int
) -> list[np.ndarray]:
    return [
        paste(
            Image.fromarray(packs["background"][rows["background"][i]]),
            {factor: Image.fromarray(packs[factor][rows[factor][i]]) for factor in PASTED},
        )
        for i in range(n)
    ]


def from_files(
    paths: dict[str, list[Path]], rows: dict[str, np.ndarray], n: int
) -> list[np.ndarray]:
    images = []
    for i in range(n):
        files = {factor: paths[factor][rows[factor][i]] for factor in FACTORS}
        tiles = {
            factor: Image.fromarray(
                cut_out_tile(
                    open_photo(files[factor], "RGBA"),
                    open_photo(files[factor].with_suffix(".mask.png"), "L"),
                    part,
                )
            )
            for factor, part in (("object", 64), ("car", 128))
        }
        images.append(
            paste(Image.fromarray(background_tile(open_photo(files["background"]), SIZE)), tiles)
        )
    return images


def best(work: dict[str, tuple[int, Callable]], rounds: int) -> dict[str, float]:
    """Images per second of the fastest round of each piece of work; the pieces alternate."""
    seconds = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, (_, function) in work.items():
            start = time.process_time()
            function()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return {name: images / seconds[name] for name, (images, _) in work.items()}


def measure(folder: Path, each: int, rounds: int) -> dict[str, float]:
    scene, generator = load_scene("cars"), np.random.default_rng(1)
    make_photos(folder / "mirror" / "cars", each)
    scene.fetch(folder / "raw", folder / "mirror")
    scene.prepare(folder / "raw", folder / "prepared", "official")
    table = read_table(folder / "prepared" / "catalogue.parquet").to_pandas()
    paths = {
        factor: [
            folder / "mirror" / "cars" / path
            for path in table.loc[table["factor"] == factor, "path"]
        ]
        for factor in FACTORS
    }
    rows = {factor: generator.permutation(len(paths[factor])) for factor in FACTORS}
    n = min(map(len, rows.values()))
    recipes = pa.table(
        {f"{factor}_photo": pa.array(of[:n], pa.int32()) for factor, of in rows.items()}
    )
    packs = {factor: np.load(folder / "prepared" / f"{factor}.npy") for factor in FACTORS}
    packs |= {
        factor: np.concatenate([packs[factor][:, 0], ~packs[factor][:, 1, ..., :1]], -1)
        for factor in PASTED
    }
    renderer = scene.renderer(folder / "prepared", SIZE, torch.device("cpu"))
    few = max(n // 20, 1)
    for others in (
        from_files(paths, rows, few),
        with_pillow(packs, rows, few),
        with_numpy(packs, rows, few),
    ):
        assert np.array_equal(renderer(recipes.slice(0, few)).numpy(), others), (
            "all compose the same"
        )
    return best(
        {
            "compose": (n, lambda: list(render_batches(recipes, renderer))),
            "Pillow": (n, lambda: with_pillow(packs, rows, n)),
            "NumPy": (n, lambda: with_numpy(packs, rows, n)),
            "Pillow, from files": (few, lambda: from_files(paths, rows, few)),
            "compose to Parquet": (
                n,
                lambda: write_images(folder / "images.parquet", recipes, renderer, {}),
            ),
        },
        rounds,
    )


def main(
    photos: Annotated[int, typer.Option(min=1, help="Of each class and factor.")] = 512,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = RESULTS,
) -> None:
    """Compose in every way, alternating, and write the rates."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    with TemporaryDirectory() as folder:
        rates = measure(Path(folder), photos, rounds)
    rows = [
        {
            "what": what,
            "threads": 1,
            "size": SIZE,
            "images_per_second": round(rate, 1),
            "ratio_of_compose": round(rates["compose"] / rate, 2),
        }
        for what, rate in rates.items()
    ]
    for row in rows:
        print(
            f"{row['what']:20} {row['images_per_second']:10,.0f} images/s; compose {row['ratio_of_compose']:.1f} x"
        )
    save_result("composition", "cpu", rows, out, photos=photos, load_before=load)


if __name__ == "__main__":
    typer.run(main)
