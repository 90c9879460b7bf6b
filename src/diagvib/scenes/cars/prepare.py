"""Stage prepare: cars and objects cut out, cropped and scaled, backgrounds scaled, all packed; and
their catalogue.

data/prepared/cars/ contains a pack of each factor's photos (car.npy, ...), catalogue.parquet, and
sources.json, written last, which says what the rest was made from and contains its digest.
"""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import write_json, write_table
from diagvib.foundation.seeding import name_digest
from diagvib.scenes.cars.catalogue import CATALOGUE, SCHEMA, catalogue_digest
from diagvib.scenes.cars.geometry import CANVAS, CLASSES, FACTORS, tile_side
from diagvib.scenes.cars.pack import write_pack
from diagvib.scenes.cars.sources import MASK, PLACES, mask_of
from diagvib.scenes.cars.tiles import background_tile, cut_out_tile, layers
from diagvib.scenes.photos.decoding import decode_photo, in_threads
from diagvib.scenes.photos.listing import listed_sources, read_listed, read_listing
from diagvib.scenes.prepared import DESCRIPTION

_KINDS = ("official", "embedded")
# Tenths of the photos of each class and factor for validation, and as many for the test.
_TENTHS = {"official": 1, "embedded": 2}


class Photo(NamedTuple):
    """A photo before it is decoded; mask_sha256 is empty if its alpha channel is the mask."""

    name: str
    path: str
    sha256: str
    mask_sha256: str = ""


class Sources(NamedTuple):
    """photos: factor -> its photos. pixels: makes the pixels of a factor's photo for its pack."""

    canvas: int
    photos: dict[str, list[Photo]]
    pixels: Callable[[str, Photo], np.ndarray]


def prepare(raw: Path, out: Path, sources: str) -> None:
    """Make `out` from the photos listed in `raw` (sources `official`), or from drawn ones
    (`embedded`).

    DiagvibError if nothing is listed, or a photo has changed.
    """
    if sources not in _KINDS:
        raise unknown_name("value of sources", sources, _KINDS)
    found = _official(raw) if sources == "official" else _embedded()
    (out / DESCRIPTION).unlink(missing_ok=True)  # the old description must not vouch for new files
    packs, rows = {}, []
    for factor in FACTORS:
        photos, side = found.photos[factor], tile_side(factor, found.canvas)
        shape = (len(photos), *(() if factor == "background" else (2,)), side, side, 3)
        written = write_pack(
            out / f"{factor}.npy", in_threads(partial(found.pixels, factor), photos), shape
        )
        packs[factor] = {"shape": shape, "sha256": written}
        splits = assign_splits(photos, _TENTHS[sources])
        rows += [
            {"factor": factor, "class": photo.name, "split": split, **photo._asdict()}
            for photo, split in zip(photos, splits, strict=True)
        ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    described = {
        "sources": sources,
        "comparable": sources == "official",
        "canvas": found.canvas,
        "packs": packs,
        "catalogue_digest": catalogue_digest(table),
    }
    described["digest"] = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    if sources == "official":
        described["sources"] = listed_sources(raw)
    write_table(out / CATALOGUE, table, described)
    write_json(out / DESCRIPTION, described)


def assign_splits(photos: list[Photo], tenths: int) -> list[str]:
    """The split of each photo of a factor: this many tenths of every class val, as many test, at
    least one, the rest train.

    It depends on the photos' content: none changes splits when renamed or moved, and few when
    photos are added.
    """
    splits = dict.fromkeys(photos, "train")
    for name in CLASSES:
        own = sorted(
            (photo for photo in photos if photo.name == name),
            key=lambda one: name_digest("cars", one.sha256),
        )
        part = max(1, len(own) * tenths // 10)
        splits |= dict.fromkeys(own[:part], "val") | dict.fromkeys(own[part : 2 * part], "test")
    return [splits[photo] for photo in photos]


def _official(raw: Path) -> Sources:
    table, folder = read_listing(raw)
    masks = {row["path"]: row["sha256"] for row in table.to_pylist() if row["path"].endswith(MASK)}
    photos: dict[str, list[Photo]] = {factor: [] for factor in FACTORS}
    for row in table.to_pylist():
        if row["path"] not in masks:
            factor, name = PLACES[row["place"]]
            mask = masks.get(mask_of(row["path"]), "") if factor != "background" else ""
            photos[factor].append(Photo(name, row["path"], row["sha256"], mask))

    def pixels(factor: str, photo: Photo) -> np.ndarray:
        path, side = folder / photo.path, tile_side(factor, CANVAS)
        data = read_listed(path, photo.sha256)
        if factor == "background":
            return background_tile(decode_photo(data, path), side)
        beside = folder / mask_of(photo.path)
        mask = (
            decode_photo(read_listed(beside, photo.mask_sha256), beside, "L")
            if photo.mask_sha256
            else None
        )
        try:
            return layers(cut_out_tile(decode_photo(data, path, "RGBA"), mask, side))
        except ValueError as error:
            raise DiagvibError(
                f"{path}: cannot be used, {error}; run `diagvib fetch` again"
            ) from None

    return Sources(CANVAS, photos, pixels)


def _embedded() -> Sources:
    from diagvib.scenes.cars.stand_ins import CANVAS, draw, names

    photos = {
        factor: [
            Photo(name, path, hashlib.sha256(path.encode()).hexdigest())
            for name in CLASSES
            for path in names(factor, name)
        ]
        for factor in FACTORS
    }
    return Sources(CANVAS, photos, lambda factor, photo: draw(factor, photo.path))
