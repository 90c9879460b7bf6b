"""Stage prepare: cars and objects cut out, cropped and scaled, backgrounds scaled, all packed; and
their catalogue.

data/prepared/cars/ contains a pack of each factor's photos (car.npy, ...), catalogue.parquet, and
sources.json, written last, which says what the rest was made from and contains its digest.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagvib.foundation.files import text_sha256, whole_file, write_json, write_table
from diagvib.foundation.seeding import name_digest, named_generator
from diagvib.scenes.cars.catalogue import CATALOGUE, SCHEMA
from diagvib.scenes.cars.geometry import CANVAS, CLASSES, FACTORS, tile_side
from diagvib.scenes.cars.sources import MASK, PLACES, mask_of, place_of
from diagvib.scenes.cars.tiles import cut_out_tile, layers
from diagvib.scenes.photos.decoding import in_threads, open_photo, square
from diagvib.scenes.photos.listing import read_listed, read_listing
from diagvib.scenes.prepared import DESCRIPTION
from diagvib.scenes.shapes import ground, shape

# Stand-ins for photos are drawn at half the size: shapes for cars and the objects next to them,
# patterns for backgrounds.
_DRAWN_SIDE = 128
# For each factor and class.
COUNT = 300

# Factor -> class -> its shapes or patterns.
_KINDS = {
    "car": {"urban": ("square", "star"), "country": ("hexagon", "flower")},
    "background": {"urban": ("checks", "grid"), "country": ("waves", "dots")},
    "object": {"urban": ("disc", "bar"), "country": ("arrow", "corner")},
}


class Photo(NamedTuple):
    """A photo before it is decoded; mask_sha256 is empty if its alpha channel is the mask."""

    factor: str
    name: str
    path: str
    sha256: str
    mask_sha256: str = ""


def prepare(raw: Path, out: Path, sources: str) -> None:
    """Make `out` from the photos listed in `raw` (sources `official`), or from drawn ones
    (`embedded`).

    DiagvibError if nothing is listed, or a photo has changed.
    """
    official = sources == "official"
    if official:
        listing, folder, sources = read_listing(raw)
        photos, pixels = _listed(listing), partial(_pixels, folder)
    else:
        photos, pixels = _drawn(), _draw
    canvas, tenths = (CANVAS, 1) if official else (_DRAWN_SIDE, 2)
    packs, rows = {}, []
    for factor in FACTORS:
        factor_photos = [photo for photo in photos if photo.factor == factor]
        side = tile_side(factor, canvas)
        shape = (len(factor_photos), *(() if factor == "background" else (2,)), side, side, 3)
        packs[factor] = write_pack(out / f"{factor}.npy", in_threads(pixels, factor_photos), shape)
        for photo, split in zip(factor_photos, assign_splits(factor_photos, tenths), strict=True):
            rows.append({"class": photo.name, "split": split, **photo._asdict()})
    table = pa.Table.from_pylist(rows, SCHEMA)
    digest = text_sha256(json.dumps([packs, rows]))
    metadata = {"sources": sources, "comparable": official, "digest": digest}
    write_table(out / CATALOGUE, table, metadata)
    write_json(out / DESCRIPTION, metadata)


def write_pack(path: Path, photos: Iterable[np.ndarray], shape: tuple[int, ...]) -> str:
    """Write photos to a file of this shape, which rendering maps into memory: backgrounds uint8[N,
    side, side, 3], others, as `tiles.layers`, uint8[N, 2, side, side, 3]. Returns the sha256 of
    their pixels."""
    digest = hashlib.sha256()
    with whole_file(path) as temporary:
        pack = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
        for row, photo in enumerate(photos):
            pack[row] = photo
            digest.update(pack[row])
        pack.flush()
    return digest.hexdigest()


def assign_splits(photos: list[Photo], tenths: int) -> list[str]:
    """The split of each photo of a factor: this many tenths of every class val, as many test, at
    least one, the rest train.

    It depends on the photos' content: none changes splits when renamed or moved, and few when
    photos are added.
    """
    splits = dict.fromkeys(photos, "train")
    for name in CLASSES:
        class_photos = sorted(
            (photo for photo in photos if photo.name == name),
            key=lambda photo: name_digest("cars", photo.sha256),
        )
        part = max(1, len(class_photos) * tenths // 10)
        splits |= dict.fromkeys(class_photos[:part], "val") | dict.fromkeys(
            class_photos[part : 2 * part], "test"
        )
    return [splits[photo] for photo in photos]


def _listed(table: pa.Table) -> list[Photo]:
    hashes = {row["path"]: row["sha256"] for row in table.to_pylist()}
    return [
        Photo(*PLACES[place_of(path)], path, sha256, hashes.get(mask_of(path), ""))
        for path, sha256 in hashes.items()
        if not path.endswith(MASK)
    ]


def _pixels(folder: Path, photo: Photo) -> np.ndarray:
    """A photo as in its pack."""
    path, side = folder / photo.path, tile_side(photo.factor, CANVAS)
    data = read_listed(path, photo.sha256)
    if photo.factor == "background":
        return square(open_photo(path, data=data), side)
    mask = None
    if photo.mask_sha256:
        mask_path = folder / mask_of(photo.path)
        mask = open_photo(mask_path, "L", read_listed(mask_path, photo.mask_sha256))
    return layers(cut_out_tile(open_photo(path, "RGBA", data), mask, side))


def _drawn() -> list[Photo]:
    """The stand-ins, such as `urban/square-000`; the kinds of a factor's class alternate."""
    photos = []
    for factor, name, number in product(FACTORS, CLASSES, range(COUNT)):
        kinds = _KINDS[factor][name]
        path = f"{name}/{kinds[number % len(kinds)]}-{number // len(kinds):03d}"
        photos.append(Photo(factor, name, path, text_sha256(path)))
    return photos


def _draw(photo: Photo) -> np.ndarray:
    """A stand-in, always the same, as in its pack."""
    kind = photo.path.partition("/")[2].rpartition("-")[0]
    side = tile_side(photo.factor, _DRAWN_SIDE)
    generator = named_generator("stand-ins", photo.factor, photo.path)
    if photo.factor == "background":
        return ground(kind, side, generator)
    return layers(cut_out_tile(shape(kind, side, generator), None, side))
