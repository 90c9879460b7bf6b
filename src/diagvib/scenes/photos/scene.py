"""Any set of labelled photos, used unchanged: the scene that a definition in YAML makes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_table, read_yaml, write_json, write_table
from diagvib.foundation.seeding import named_generator
from diagvib.foundation.validation import validated
from diagvib.foundation.versions import file_version, once_per_version
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import (
    FOLDER,
    LISTING,
    read_listed,
    read_listing,
    state,
    write_listing,
)
from diagvib.scenes.photos.shares import share_out
from diagvib.scenes.photos.tables import labelled_photos
from diagvib.scenes.prepared import DESCRIPTION, mismatch, read_description
from diagvib.scenes.scene import Catalogue, Scene

if TYPE_CHECKING:
    import torch

CATALOGUE = "catalogue.parquet"
_EXAMPLE = 128  # pixels per side


@dataclass(frozen=True)
class PhotoCatalogue(Catalogue):
    """photos: a row for each photo, by its number: path, sha256, the class of every factor, split,
    unit and lot, empty where the set has none."""

    photos: pd.DataFrame


class Photos(Scene):
    """`scenes.scene.Scene` of a photo set. Photos stay where they are, and are decoded when they
    are needed."""

    columns = pa.schema([("photo", pa.int32())])
    replicates = "seeds"
    # As measured on photos of 224 pixels, raw with zstd; the photos themselves are not copied.
    bytes_per_pixel = 2.34

    def __init__(self, path: Path, definition: PhotoSet):
        self.path, self.definition, self.name = path, definition, path.stem
        self.factors, self.depends = definition.classes, (str(path),)
        # All classes, in the order in which studies number them.
        self.published_samples = (self.factors,)

    def folder(self, mirror: Path | None) -> Path | None:
        """The folder of the photos."""
        if self.definition.folder is not None:
            return self.path.parent / self.definition.folder
        return mirror and Path(mirror) / self.name

    def state(self, mirror: Path | None) -> str:
        found = state(folder := self.folder(mirror))
        if not found:
            return ""
        # The table may be in another folder.
        table = self.definition.table and file_version(folder / self.definition.table)[1:]
        return hashlib.sha256(f"{folder}\0{table}\0{found}".encode()).hexdigest()

    def raw_files(self, sources: str) -> list[str]:
        return [LISTING, FOLDER] if sources == "official" else []

    def prepared_files(self, prepared: Path) -> list[str]:
        # Without FOLDER, since images do not depend on where photos are.
        return [CATALOGUE, DESCRIPTION]

    def licences(self, sources: str) -> list[tuple[str, str]]:
        its = self.definition
        return [(its.licence, its.citation)] if its.licence and sources == "official" else []

    def fetch(self, raw: Path, mirror: Path | None) -> None:
        """List the photos and what they show; they stay in their folder."""
        folder = self.folder(mirror)
        if folder is None:
            raise DiagvibError(
                f"{self.path}: the photos of {self.name} cannot be downloaded; set `mirror:` to a "
                f"folder with a folder {self.name}, or `folder:` in this file"
            )
        table, every = labelled_photos(self.definition, folder, str(self.path))
        write_listing(raw, pa.Table.from_pandas(table, preserve_index=False), folder, every)

    def prepare(self, raw: Path, prepared: Path, sources: str) -> None:
        if sources == "official":
            listed, folder, sources = read_listing(raw)
            photos = listed.to_pandas()
            comparable = self._is_published(photos)
        else:
            photos, folder, comparable = self._stand_ins(), "", False
        if folder:
            write_json(prepared / FOLDER, {"folder": str(folder)})
        table = pa.Table.from_pandas(photos, preserve_index=False)
        write_table(prepared / CATALOGUE, table, {})
        noted = {"sources": sources, "comparable": comparable, "digest": _digest(photos)}
        write_json(prepared / DESCRIPTION, noted)

    def _is_published(self, photos: pd.DataFrame) -> bool:
        counts = photos.groupby([*self.factors, "lot"]).size()
        return self.definition.published is not None and set(counts) == {self.definition.published}

    def _stand_ins(self) -> pd.DataFrame:
        drawn = self.definition.stand_ins
        if drawn is None:
            raise DiagvibError(
                f"scene {self.name}: has no embedded sources; set `sources: official`"
            )
        # In the order of their paths: that of the pattern's fields, or lot, second and first factor.
        (first, shapes), (second, grounds) = self.factors.items()
        names = product(sorted(drawn.lots), sorted(grounds), sorted(shapes), range(drawn.each))
        rows = [
            {
                "path": f"{lot}/{ground}/{shape}/{number:04d}",
                "sha256": "",
                first: shape,
                second: ground,
                "split": "",
                "unit": "",
                "lot": lot,
            }
            for lot, ground, shape, number in names
        ]
        return pd.DataFrame(rows)

    def drawn(self, path: str) -> np.ndarray:
        """The stand-in with a path, always the same, uint8[H, W, 3]."""
        from diagvib.scenes.shapes import photo

        drawn, (lot, ground, shape, number) = self.definition.stand_ins, path.split("/")
        generator = named_generator(f"stand-in {self.name}", lot, ground, shape, int(number))
        return photo(drawn.shapes[shape], drawn.patterns[ground], drawn.size, generator)

    def catalogue(self, prepared: Path) -> PhotoCatalogue:
        noted = read_description(prepared)
        photos = read_table(prepared / CATALOGUE).to_pandas()
        if _digest(photos) != noted["digest"]:
            raise mismatch(prepared, "photos")
        return PhotoCatalogue(noted["sources"], noted["comparable"], noted["digest"], photos)

    def realize(
        self,
        classes: Mapping[str, np.ndarray],
        split: str,
        catalogue: PhotoCatalogue,
        generator: np.random.Generator,
    ) -> dict[str, np.ndarray]:
        recipes = pd.DataFrame({"split": split, **classes})
        return self.share_out(recipes, catalogue, generator)

    def share_out(
        self, recipes: pd.DataFrame, catalogue: PhotoCatalogue, generator: np.random.Generator
    ) -> dict[str, np.ndarray]:
        return {"photo": share_out(self.name, self.factors, recipes, catalogue.photos, generator)}

    def renderer(
        self, prepared: Path, size: int, device: torch.device
    ) -> Callable[[pa.Table], torch.Tensor]:
        import torch

        read = self._reader(prepared, size)
        return lambda recipes: torch.from_numpy(read(recipes["photo"].to_numpy())).to(device)

    def _reader(self, prepared: Path, size: int) -> Callable[[np.ndarray], np.ndarray]:
        """A function from the numbers of photos, int[B], to uint8[B, size, size, 3], decoded on all
        cores."""
        from diagvib.scenes.photos.decoding import in_threads, open_photo, square

        catalogue, its = self.catalogue(prepared), self.definition
        paths, hashes = catalogue.photos["path"].tolist(), catalogue.photos["sha256"].tolist()
        embedded = catalogue.sources == "embedded"
        folder = "" if embedded else read_json(prepared / FOLDER)["folder"]

        def read(number: int) -> np.ndarray:
            if embedded:
                return square(self.drawn(paths[number]), size)
            path = Path(folder, paths[number])
            photo = open_photo(path, data=read_listed(path, hashes[number]))
            return square(square(photo, its.size, its.crop), size)

        def read_all(numbers: np.ndarray) -> np.ndarray:
            images = np.empty((len(numbers), size, size, 3), np.uint8)
            for image, photo in zip(images, in_threads(read, numbers.tolist()), strict=True):
                image[:] = photo
            return images

        return read_all

    def examples(self, prepared: Path, wanted: Sequence[Mapping[str, str]]) -> np.ndarray:
        """The first photo of the requested classes; grey if there is none."""
        photos, read = self.catalogue(prepared).photos, self._reader(prepared, _EXAMPLE)
        images = np.full((len(wanted), _EXAMPLE, _EXAMPLE, 3), 127, np.uint8)
        for image, one in zip(images, wanted, strict=True):
            there = np.flatnonzero((photos[[*one]] == pd.Series(one)).all(axis=1))
            if len(there):
                image[:] = read(there[:1])[0]
        return images


def _digest(photos: pd.DataFrame) -> str:
    return hashlib.sha256(photos.to_csv(index=False).encode()).hexdigest()


@once_per_version
def photo_scene(path: Path) -> Photos:
    """The scene that a file defines. DiagvibError, naming file and key, for any error in it."""
    return Photos(path, validated(PhotoSet, read_yaml(path), str(path)))
