"""Photographs that Debian packages hold, composed as in UrbanCars: a cut-out animal or artefact on
a landscape, with a plant or food next to it. A scene: `benchmarks.debian_photos:DebianPhotos`;
config/photos/debian uses it. As a program, it writes a folder of labelled photos, for `diagvib new
photos`:

    python benchmarks/debian_photos.py /usr/share photos --train 2000
"""

import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import typer
import yaml
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, read_table, write_table
from diagvib.foundation.seeding import named_generator
from diagvib.scenes.cars.prepare import write_pack
from diagvib.scenes.cars.tiles import cut_out_tile, layers, scaled
from diagvib.scenes.photos.decoding import in_threads, open_photo, square
from diagvib.scenes.photos.listing import (
    FOLDER,
    LISTING,
    photo_paths,
    read_listed,
    read_listing,
    usable,
    write_listing,
)
from diagvib.scenes.photos.shares import serving_split
from diagvib.scenes.scene import Catalogue, Scene
from diagvib.studies.rows import SPLITS

SOURCES = Path(__file__).parents[1] / "config/photos/debian/sources.yaml"
CATALOGUE = "catalogue.parquet"
# Of the cut-outs of a class, in percent.
SHARES = (60, 15, 25)
SQUARES = 40  # of each ground
# Pixels per side of prepared photos, and their sides and centres as parts of an image's side.
CANVAS = 128
SIDES = {"ground": 1, "subject": 1 / 2, "neighbour": 3 / 8}
CENTRES = {"subject": (1 / 2, 3 / 8), "neighbour": (5 / 8, 13 / 16)}


@dataclass(frozen=True)
class PackageCatalogue(Catalogue):
    """photos: factor, class, split and path of each photo, in the order of the packs."""

    photos: pd.DataFrame


class DebianPhotos(Scene):
    """No cut-out and no landscape occurs in two splits; within one, they are combined anew in each
    image."""

    factors: ClassVar = {
        "subject": ("animal", "artefact"),
        "ground": ("green", "open"),
        "neighbour": ("plant", "food"),
    }
    columns = pa.schema([(f"{factor}_photo", pa.int32()) for factor in factors])
    realized_by: ClassVar = {factor: (f"{factor}_photo",) for factor in factors}
    replicates = "seeds"
    # Animals go with green and plants.
    published_samples = (factors,)
    depends = (str(SOURCES),)

    def raw_files(self, sources):
        return [LISTING, FOLDER] if sources == "official" else []

    def fetch(self, raw, mirror):
        """List the photos in the folder `mirror`, usr/share of the packages."""
        if mirror is None:
            raise DiagvibError("mirror: set it to usr/share of the packages in docs/real_photos.md")
        photos = listed(mirror)
        hashes = {path: sha256 for path, (sha256, _) in usable(mirror, [*photos["path"]]).items()}
        if missing := {*photos["path"]} - {*hashes}:
            raise DiagvibError(f"{mirror / min(missing)}: cannot be used; see docs/real_photos.md")
        photos["sha256"] = photos["path"].map(hashes)
        write_listing(raw, pa.Table.from_pandas(photos, preserve_index=False), mirror, len(photos))

    def prepare(self, raw, prepared, sources):
        table, folder, _ = read_listing(raw)
        photos = table.to_pandas()
        for factor, prepared_photos in (
            ("subject", cut_out),
            ("ground", squares),
            ("neighbour", cut_out),
        ):
            rows = photos[photos["factor"] == factor].to_dict("records")
            packed = np.concatenate([*in_threads(partial(prepared_photos, folder), rows)])
            write_pack(prepared / f"{factor}.npy", packed, packed.shape)
        copies = np.where(photos["factor"] == "ground", SQUARES, 1)
        catalogue = photos.loc[photos.index.repeat(copies)]
        write_table(prepared / CATALOGUE, pa.Table.from_pandas(catalogue, preserve_index=False), {})

    def catalogue(self, prepared):
        described = super().catalogue(prepared)
        photos = read_table(prepared / CATALOGUE).to_pandas()
        return PackageCatalogue(**vars(described), photos=photos)

    def realize(self, classes, split, catalogue, generator):
        columns = {}
        for factor, labels in classes.items():
            photos = catalogue.photos[catalogue.photos["factor"] == factor].reset_index()
            columns[f"{factor}_photo"] = numbers = np.empty(len(labels), np.int32)
            for label in self.factors[factor]:
                pool = photos.index[(photos["class"] == label) & (photos["split"] == split)]
                rows = np.flatnonzero(labels == label)
                numbers[rows] = generator.choice(pool, len(rows))
        return columns

    def renderer(self, prepared, size, device):
        import torch

        packs = {}
        for factor, part in SIDES.items():
            pack = np.load(prepared / f"{factor}.npy", mmap_mode="r")
            packs[factor] = np.stack([scaled(photo, round(size * part)) for photo in pack])

        def render(recipes):
            images = packs["ground"][recipes["ground_photo"].to_numpy()]
            for factor in CENTRES:
                tiles = packs[factor][recipes[f"{factor}_photo"].to_numpy()]
                below = images[:, *tile_slices(factor, size)]
                below &= tiles[:, 1]
                below |= tiles[:, 0]
            return torch.from_numpy(images).to(device)

        return render

    def region(self, factor, recipes, pixels):
        """The tile of the subject or the neighbour; for the ground, what is in neither."""
        regions = {name: np.zeros(pixels.shape[:3], bool) for name in CENTRES}
        for name, tile in regions.items():
            tile[:, *tile_slices(name, pixels.shape[1])] = True
        return regions[factor] if factor in regions else ~np.logical_or(*regions.values())


def tile_slices(factor: str, size: int) -> list[slice]:
    """Rows and columns of a factor's tile in an image of `size` pixels."""
    side = round(size * SIDES[factor])
    starts = [round(size * centre - side / 2) for centre in CENTRES[factor]]
    return [slice(start, start + side) for start in starts]


def listed(folder: Path) -> pd.DataFrame:
    """The photos of `SOURCES`: factor, class, split, path, and the rows of a ground to use."""
    sources = yaml.safe_load(SOURCES.read_text())
    grounds = pd.DataFrame(sources["grounds"])[["class", "split", "path", "rows"]]
    tables = [grounds.assign(factor="ground")]
    for factor, classes in sources["cut_outs"].items():
        for label, places in classes.items():
            paths = [path for place in places for path in placed(folder, place)]
            photographed = [
                path for path in paths if not {*re.split("[/.]", path)} & {*sources["drawn"]}
            ]
            if len(photographed) < 9:
                raise DiagvibError(
                    f"{folder / places[0]}: no photos of {factor} {label}; see docs/real_photos.md"
                )
            table = pd.DataFrame({"factor": factor, "class": label, "path": photographed})
            tables.append(table.assign(split=split_of(table)))
    return pd.concat(tables, ignore_index=True)


def placed(folder: Path, place: str) -> list[str]:
    """The path of a cut-out, or the paths of those in a folder."""
    if place.endswith(".png"):
        return [place]
    paths = photo_paths(folder / place) if (folder / place).is_dir() else []
    return [f"{place}/{path}" for path in paths]


def split_of(photos: pd.DataFrame) -> np.ndarray:
    """The split of each cut-out of a class. Those whose names begin with the same word, such as
    apple_red and apple_green, or differ in a number, are in one split."""
    units = photos["path"].str.extract(r"([A-Za-z]+)[^/]*$")[0].str.lower()
    recipes = pd.DataFrame({"split": np.repeat(SPLITS, SHARES)})
    return serving_split("debian", recipes, photos.assign(split="", unit=units))


def cut_out(folder: Path, row: dict) -> np.ndarray:
    """A subject's or neighbour's layers, uint8[1, 2, side, side, 3]."""
    photo = open_photo(path := folder / row["path"], "RGBA", read_listed(path, row["sha256"]))
    return layers(cut_out_tile(photo, None, round(CANVAS * SIDES[row["factor"]])))[None]


def squares(folder: Path, row: dict) -> np.ndarray:
    """Random squares of a ground, uint8[SQUARES, CANVAS, CANVAS, 3]."""
    photo = open_photo(path := folder / row["path"], data=read_listed(path, row["sha256"]))
    if row["rows"] is not None:
        top, bottom = (round(part * len(photo)) for part in row["rows"])
        photo = photo[top:bottom]
    generator, parts = named_generator("ground", row["path"]), []
    for part in generator.uniform(0.5, 1, SQUARES):
        side = round(part * min(photo.shape[:2]))
        top, left = (generator.integers(length - side + 1) for length in photo.shape[:2])
        parts.append(square(photo[top : top + side, left : left + side], CANVAS))
    return np.stack(parts)


def draw_sheet(folder: Path, path: Path) -> None:
    """Squares of the grounds whose licence asks for no more than their author's name."""
    grounds = yaml.safe_load(SOURCES.read_text())["grounds"]
    free = [row for row in grounds if row["licence"] in ("CC0-1.0", "CC-BY-4.0")]
    rows = []
    for ground in free:
        row = {"rows": None, **ground, "sha256": file_sha256(folder / ground["path"])}
        rows.append(np.hstack(squares(folder, row)[:6]))
        print(f"{ground['path']}: {ground['author']}, {ground['licence']}")
    Image.fromarray(np.vstack(rows)).save(path)


def composed(split: str, count: int, agreeing: float, prepared: Path, out: Path) -> pd.DataFrame:
    """Write photos of a split, and return their rows of the table. agreeing: the share in which
    each cue goes with the subject."""
    scene, generator = DebianPhotos(), named_generator("debian photos", split)
    subject = np.arange(count) % 2
    numbers = [subject, *(subject ^ (generator.random((2, count)) >= agreeing))]
    classes = {
        factor: np.array(names)[number]
        for (factor, names), number in zip(scene.factors.items(), numbers, strict=True)
    }
    recipes = pa.table(scene.realize(classes, split, scene.catalogue(prepared), generator))
    files = [f"{split}_{number:05d}.png" for number in range(count)]
    images = scene.renderer(prepared, CANVAS, "cpu")(recipes).numpy()
    for name, image in zip(files, images, strict=True):
        Image.fromarray(image).save(out / name)
    return pd.DataFrame({"file": files, **classes, "split": split})


def main(
    folder: Annotated[Path, typer.Argument(help="usr/share of the packages.")],
    out: Annotated[Path, typer.Argument(help="A new folder for the photos.")],
    train: Annotated[
        int, typer.Option(help="Photos for training; half as many for validation and test.")
    ] = 2000,
    sheet: Annotated[
        Path | None, typer.Option(help="An image of the grounds that are CC0 or CC BY.")
    ] = None,
) -> None:
    """Write composed photos, and labels.csv with what each shows, and its split."""
    if sheet:
        draw_sheet(folder, sheet)
    scene, parts = DebianPhotos(), {"train": (train, 0.95), "val": (train // 2, 0.5)}
    out.mkdir(parents=True)
    with TemporaryDirectory() as temporary:
        raw, prepared = Path(temporary, "raw"), Path(temporary, "prepared")
        scene.fetched(raw, "official", folder)
        scene.make(raw, prepared, "official")
        parts["test"] = parts["val"]
        tables = [composed(split, *part, prepared, out) for split, part in parts.items()]
    pd.concat(tables).to_csv(out / "labels.csv", index=False)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DiagvibError as error:
        sys.exit(f"error: {error}")
