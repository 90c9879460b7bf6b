"""Any set of labelled photos, used unchanged: the scene that a definition in YAML makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    definition_name,
    read_json,
    read_table,
    text_sha256,
    write_json,
    write_table,
)
from diagvib.foundation.imports import Definition
from diagvib.foundation.messages import say
from diagvib.foundation.seeding import named_generator
from diagvib.foundation.validation import read_valid
from diagvib.foundation.versions import file_version, once_per_version
from diagvib.scenes.photos.decoding import Crop, in_threads, open_photo, square
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.labels import table_paths
from diagvib.scenes.photos.listing import (
    FOLDER,
    GENERATED,
    LISTING,
    read_listed,
    read_listing,
    state,
    write_listing,
)
from diagvib.scenes.photos.shares import share_out
from diagvib.scenes.photos.tables import labelled_photos, read_groups
from diagvib.scenes.photos.watermark import (
    Font,
    blend,
    find_font,
    random_watermark,
    watermark,
)
from diagvib.scenes.prepared import DESCRIPTION, mismatch, read_description
from diagvib.scenes.scene import EXAMPLE_SIZE, MARK, Catalogue, Scene

if TYPE_CHECKING:
    import torch

_UNUSED = ("folder", "licence", "citation")  # where photos are, and whose
CATALOGUE = "catalogue.parquet"
GROUPS = "groups.json"
WATERMARK, ABSENT, PRESENT = MARK, "absent", "present"


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
        self.path, self.definition, self.name = path, definition, definition_name(path)
        self.factors, self.depends = definition.classes, (str(path),)
        if definition.watermark:
            self.factors = {**self.factors, WATERMARK: (ABSENT, PRESENT)}
            self.unless_bound = {WATERMARK: ABSENT}
        # All classes, in the order in which studies number them.
        self.published_samples = (self.factors,)

    @property
    def entries(self):
        module, path, *files = super().entries
        return [module, Definition(path, _UNUSED), *files]

    def folder(self, mirror: Path | None) -> Path | None:
        """The folder of the photos."""
        if self.definition.folder is not None:
            return self.path.parent / self.definition.folder
        return mirror and mirror / self.name

    def state(self, mirror):
        folder_state = state(folder := self.folder(mirror))
        if not folder_state:
            return ""
        # The table may be in another folder.
        names = self.definition.tables
        paths = [path for name in names for path in table_paths(name, folder)]
        tables = [file_version(path)[1:] for path in paths]
        return text_sha256(f"{folder}\0{tables}\0{folder_state}")

    def raw_files(self, sources):
        return [LISTING, FOLDER] if sources == "official" else []

    def prepared_files(self, prepared):
        # Without FOLDER, since images do not depend on where photos are.
        return [CATALOGUE, DESCRIPTION]

    def licences(self, sources):
        definition = self.definition
        return (
            [(definition.licence, definition.citation)]
            if definition.licence and sources == "official"
            else []
        )

    def fetch(self, raw, mirror):
        """List the photos and what they show; they stay in their folder."""
        folder = self.folder(mirror)
        if folder is None:
            raise DiagvibError(
                f"{self.path}: the photos of {self.name} cannot be downloaded; set `mirror:` to a "
                f"folder with a folder {self.name}, or `folder:` in this file"
            )
        table, candidates = labelled_photos(self.definition, folder, str(self.path))
        for line in self._unlike_published(table):
            say(f"{folder}: {line}")
        write_listing(raw, pa.Table.from_pandas(table, preserve_index=False), folder, candidates)

    def prepare(self, raw, prepared, sources):
        definition, font = self.definition, self._font()
        (prepared / GROUPS).unlink(missing_ok=True)  # those of an earlier definition
        if sources == "official":
            listed, folder, sources = read_listing(raw)
            photos = listed.to_pandas()
            generated = (folder / GENERATED).exists()
            comparable = self.is_published(photos) and not generated
            sources += " (from a text-to-image model)" if generated else ""
            write_json(prepared / FOLDER, {"folder": str(folder)})
            if groups := read_groups(definition, folder):
                write_json(prepared / GROUPS, groups)
        else:
            photos, comparable = self._stand_ins(), False
        table = pa.Table.from_pandas(photos, preserve_index=False)
        write_table(prepared / CATALOGUE, table, {})
        if font:
            sources += f" (watermark: {font.name})"
            comparable &= font.published
        digest = self._digest(prepared, photos)
        description = {"sources": sources, "comparable": comparable, "digest": digest}
        write_json(prepared / DESCRIPTION, description)

    def _font(self) -> Font | None:
        watermark_settings = self.definition.watermark
        return watermark_settings and find_font(watermark_settings.font, watermark_settings.text)

    def _digest(self, prepared: Path, photos: pd.DataFrame) -> str:
        font, groups = self._font(), prepared / GROUPS
        listed = photos.to_csv(index=False) + (font.name if font else "")
        return text_sha256(listed + (groups.read_text() if groups.exists() else ""))

    def is_published(self, photos: pd.DataFrame) -> bool:
        """Whether the numbers of photos are the published ones, if any are known."""
        published, classes = self.definition.published, self.definition.classes
        if not published:
            return True
        if isinstance(published, dict) and isinstance(next(iter(published.values())), dict):
            return not self._unlike_published(photos)
        # As categories, so that combinations without a photo count, too.
        photos = photos.astype(
            {name: pd.CategoricalDtype(names) for name, names in classes.items()}
        )
        if not isinstance(published, dict):
            stand_ins = self.definition.stand_ins
            if stand_ins and photos["lot"].nunique() != len(stand_ins.lots):
                return False
            return set(photos.groupby([*classes, "lot"], observed=False).size()) == {published}
        sizes = photos.groupby([*classes], observed=False).size()
        last = sizes.index.get_level_values(-1)
        return all(set(sizes[last == name]) == {number} for name, number in published.items())

    def _unlike_published(self, photos: pd.DataFrame) -> list[str]:
        """The numbers of photos that are not the published ones, where these are known by split."""
        published, lines = self.definition.published, []
        for split, expected in published.items() if isinstance(published, dict) else ():
            if isinstance(expected, dict):
                split_photos = photos if split == "all" else photos[photos["split"] == split]
                cells = split_photos[[*self.definition.classes]].to_numpy(object)
                counts = Counter(map("-".join, cells)) | Counter(cells.ravel())
                lines += [
                    f"{split}, {names}: {counts[names]:,} photos, published {number:,}"
                    for names, number in expected.items()
                    if counts[names] != number
                ]
        return lines

    def _stand_ins(self) -> pd.DataFrame:
        stand_ins = self.definition.stand_ins
        if stand_ins is None:
            raise DiagvibError(
                f"scene {self.name}: has no embedded sources; set `sources: official`"
            )
        # In the order of their paths: that of the pattern's fields, or lot, second and first factor.
        (shape_factor, shapes), (ground_factor, grounds) = self.definition.classes.items()
        names = product(
            sorted(stand_ins.lots), sorted(grounds), sorted(shapes), range(stand_ins.each)
        )
        rows = [
            (f"{lot}/{ground}/{shape}/{number:04d}", "", shape, ground, "", "", lot)
            for lot, ground, shape, number in names
        ]
        columns = ["path", "sha256", shape_factor, ground_factor, "split", "unit", "lot"]
        return pd.DataFrame(rows, columns=columns)

    def drawn(self, path: str) -> np.ndarray:
        """The stand-in with a path, always the same, uint8[H, W, 3]."""
        from diagvib.scenes.shapes import photo

        stand_ins, (lot, ground, shape, number) = self.definition.stand_ins, path.split("/")
        generator = named_generator(f"stand-in {self.name}", lot, ground, shape, int(number))
        return photo(stand_ins.shapes[shape], stand_ins.patterns[ground], stand_ins.size, generator)

    def catalogue(self, prepared):
        description = read_description(prepared)
        photos = read_table(prepared / CATALOGUE).to_pandas()
        if self._digest(prepared, photos) != description["digest"]:
            raise mismatch(prepared, "photos, or their watermark,")
        return PhotoCatalogue(**description, photos=photos)

    def realize(self, classes, split, catalogue, generator):
        return self.share_out(pd.DataFrame({"split": split, **classes}), catalogue, generator)

    def share_out(
        self, recipes: pd.DataFrame, catalogue: PhotoCatalogue, generator: np.random.Generator
    ) -> dict[str, np.ndarray]:
        factors = self.definition.classes
        return {"photo": share_out(self.name, factors, recipes, catalogue.photos, generator)}

    def every_photo(
        self, cells: pd.DataFrame, catalogue: PhotoCatalogue, split: str = ""
    ) -> pd.DataFrame:
        """Every photo of these cells, once for each row that it fits, in the photos' order: the
        rows with their columns, and `photo`. Photos with a split of their own are only in that."""
        photos = catalogue.photos
        photos = photos.assign(photo=np.arange(len(photos), dtype=np.int32))
        photos = photos[photos["split"].isin(["", split])][[*self.definition.classes, "photo"]]
        join = "inner" if {*cells} & {*photos} else "cross"
        return cells.merge(photos, join).sort_values("photo", kind="stable", ignore_index=True)

    def marked(self, pixels: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
        """Images uint8[B, H, W, 3], each with a random watermark of its own."""
        size, font = pixels.shape[1], self._font()
        marked_pixels = pixels.clone()
        for image in marked_pixels:
            overlay = random_watermark(size, font, generator)
            image.copy_(blend(image.permute(2, 0, 1), overlay).permute(1, 2, 0))
        return marked_pixels

    def twins(self, recipes: pa.Table, view: str, prepared: Path) -> pa.Table:
        """The recipes with, instead of each photo, its changed version: the one of the same name
        in the folder of that view, such as train_style/class/name.png for train/class/name.jpg.
        DiagvibError for a photo without one."""
        path = prepared / CATALOGUE
        paths, numbers = _paths_and_numbers(path, file_version(path))
        names = [_twin_name(paths[number], view) for number in recipes["photo"].to_pylist()]
        if missing := next((name for name in names if name not in numbers), None):
            raise DiagvibError(
                f"model.views: {view} needs a changed version of every training photo, but there is no "
                f"{missing}.* in the folder of {self.name}'s photos"
            )
        column = recipes.schema.get_field_index("photo")
        twin_numbers = pa.array([numbers[name] for name in names], pa.int32())
        return recipes.set_column(column, recipes.schema.field("photo"), twin_numbers)

    def source_files(self, recipes, prepared):
        if not (prepared / CATALOGUE).is_file():  # images may be there without their sources
            return None
        return read_table(prepared / CATALOGUE)["path"].take(recipes["photo"]).to_pylist()

    def class_values(self, factor: str) -> dict[str, str]:
        """A value of the table -> the class that it stands for."""
        part = self.definition.parts.get(factor)
        values = part.values.items() if part else ()
        return {value: name for name, class_values in values for value in class_values}

    def groups(self, prepared: Path) -> dict[int, int]:
        """Class index -> group, of the classes that have one (`definition.groups`)."""
        path = prepared / GROUPS
        groups = read_json(path) if path.exists() else {}
        return {int(index): group for index, group in groups.items()}

    def answers(self, recipes, target, classes, logits_of, prepared):
        """`answers.answers`, in a set with a watermark that points to one of the classes."""
        settings = self.definition.watermark
        if settings is None or settings.points_to not in classes:
            return None
        from diagvib.scenes.photos.answers import answers

        photos = recipes.select(["photo", WATERMARK, "group"]).to_pandas()
        photos["label"] = recipes[target].to_pandas()
        return answers(photos, logits_of, classes, settings.points_to, self.groups(prepared))

    @property
    def answered_by(self):
        return ["diagvib.scenes.photos.answers"] if self.definition.watermark else []

    def renderer(self, prepared, size, device, crop=()):
        """crop: how photos are prepared for a network, as `decoding.Crop`, instead of as the
        definition says."""
        import torch

        catalogue, definition, font = self.catalogue(prepared), self.definition, self._font()
        paths, hashes = (catalogue.photos[name].tolist() for name in ("path", "sha256"))
        embedded = catalogue.sources.startswith("embedded")
        if not embedded and not (prepared / FOLDER).is_file():
            raise mismatch(prepared, "photos")
        folder = "" if embedded else read_json(prepared / FOLDER)["folder"]
        overlay = font and watermark(size, font)

        def read(number: int) -> np.ndarray:
            if embedded:
                return square(self.drawn(paths[number]), size)
            path = Path(folder, paths[number])
            data = read_listed(path, hashes[number])
            photo = open_photo(path, data=data, upright=definition.upright)
            return (
                Crop(*crop)(photo)
                if crop
                else square(square(photo, definition.size, definition.crop), size)
            )

        def render(recipes: pa.Table) -> torch.Tensor:
            """Photos are decoded on all cores."""
            numbers = recipes["photo"].to_pylist()
            pixels = np.empty((len(numbers), size, size, 3), np.uint8)
            for row, photo in enumerate(in_threads(read, numbers)):
                pixels[row] = photo
            images = torch.from_numpy(pixels).to(device)
            if overlay:
                marked = torch.from_numpy(recipes[WATERMARK].to_numpy() == PRESENT).to(device)
                blended = blend(images[marked].permute(0, 3, 1, 2), overlay)
                images[marked] = blended.permute(0, 2, 3, 1)
            return images

        return render

    def examples(self, prepared, class_choices):
        """The first photo of the requested classes; grey if there is none."""
        import torch

        photos = self.catalogue(prepared).photos
        render = self.renderer(prepared, EXAMPLE_SIZE, torch.device("cpu"))
        images = np.full((len(class_choices), EXAMPLE_SIZE, EXAMPLE_SIZE, 3), 127, np.uint8)
        for image, choice in zip(images, class_choices, strict=True):
            conditions = {name: label for name, label in choice.items() if name in photos}
            rows = np.flatnonzero((photos[[*conditions]] == pd.Series(conditions)).all(axis=1))
            if len(rows):
                recipe = {"photo": rows[:1], WATERMARK: [choice.get(WATERMARK, ABSENT)]}
                image[:] = render(pa.table(recipe))[0].numpy()
        return images


@once_per_version
def photo_scene(path: Path) -> Photos:
    """The scene that a file defines. DiagvibError, naming file and key, for any error in it."""
    return Photos(path, read_valid(PhotoSet, path))


@lru_cache(1)
def _paths_and_numbers(path: Path, version: tuple) -> tuple[list[str], dict[str, int]]:
    """The paths of a catalogue's photos, and the number of each by its path without extension."""
    paths = read_table(path, ["path"])["path"].to_pylist()
    return paths, {name.rpartition(".")[0]: number for number, name in enumerate(paths)}


def _twin_name(path: str, view: str) -> str:
    folder, _, rest = path.rpartition(".")[0].partition("/")
    return f"{folder}_{view}/{rest}"
