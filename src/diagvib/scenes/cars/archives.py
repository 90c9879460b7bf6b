"""UrbanCars' folders from the archives in which their sources are published: Stanford Cars, Places365,
and LVIS with COCO's photos, packed or unpacked."""

import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import definition_path, read_yaml, whole_file, write_json
from diagvib.foundation.messages import say
from diagvib.foundation.progress import counting
from diagvib.scenes.cars.geometry import CLASSES
from diagvib.scenes.photos.decoding import open_photo

# In the mirror: what is published, and the names under which it may stand there, packed or unpacked.
CARS = ("cars_train", "cars_test")
DEVKIT, TEST_LABELS = "car_devkit", "cars_test_annos_withlabels.mat"
PLACES = ("places365standard_easyformat", "places365_standard", "places")
COCO, LVIS = ("train2017", "val2017"), ("lvis_v1_train.json", "lvis_v1_val.json")
_ENDINGS = ("", ".tar", ".tgz", ".tar.gz", ".zip")
# The authors' hand-made lists of photos, and masks made by their script, if the user has them.
_METADATA, _MASKS = "metadata", "mask"
# Hidden, so that listings of photos skip it.
_COMPLETE = ".complete.json"
LEFT_OUT = "cars_left_out.csv"
# Of an annotated box, around it: so that a mask can be cut out of the photo.
_MARGIN = 0.05
_TEXT_CHUNK = 1 << 20
_BETWEEN = re.compile(r"[\s,]*")


@dataclass
class Builder:
    """Makes `mirror`/cars from the archives in a mirror. left_out: path -> why."""

    mirror: Path
    definition: dict = field(
        default_factory=lambda: read_yaml(definition_path("scenes/cars/sources.yaml"))
    )
    left_out: dict[str, str] = field(default_factory=dict)

    def build(self) -> None:
        """Write what is missing; photos that are there are kept, so that a killed build goes on."""
        for make in (self._cars, self._backgrounds, self._objects):
            make()
        table = pd.DataFrame([*self.left_out.items()], columns=["photo", "reason"])
        with whole_file(self.mirror / LEFT_OUT) as temporary:
            table.to_csv(temporary, index=False)
        reasons = table["reason"].value_counts().to_dict()
        write_json(self.mirror / "cars" / _COMPLETE, {"counts": self.counts(), "left out": reasons})
        for line in self._unlike_published():
            say(line)

    def counts(self) -> dict[str, int]:
        """Photos of each factor and class."""
        folders = [
            f"{kind}/{name}" for kind in ("cars", "backgrounds", "objects") for name in CLASSES
        ]
        return {
            folder: sum(
                not path.name.endswith(".mask.png") for path in self.folder(folder).glob("*.*")
            )
            for folder in folders
        }

    def folder(self, name: str) -> Path:
        return self.mirror / "cars" / name

    def _unlike_published(self) -> Iterator[str]:
        needed = self.definition["needed"]
        for folder, count in self.counts().items():
            published = self.definition["backgrounds"]["published"]
            kind, _, name = folder.partition("/")
            if kind == "backgrounds" and count != published[name]:
                yield f"{self.folder(folder)}: {count:,} photos, the authors' list has {published[name]:,}"
            if count < needed:
                yield (
                    f"{self.folder(folder)}: {count:,} photos; the published 8,000 / 1,000 / 1,000 images "
                    f"need {needed:,} (4,000 / 500 / 500)"
                )
        total = sum(self.definition["cars"]["published"].values())
        if (
            cars := sum(n for name, n in self.counts().items() if name.startswith("cars"))
        ) != total:
            yield f"{self.folder('cars')}: {cars:,} photos, the authors' lists have {total:,}"

    def _cars(self) -> None:
        country, annotations = {*self.definition["cars"]["country"]}, car_annotations(self.mirror)
        total = sum(map(len, annotations.values()))
        with counting("Stanford Cars", total, "photos") as advance:
            for split, boxes in annotations.items():
                chosen, masks = self._list(f"stanford_cars/{split}.txt"), self._car_masks(split)
                for path, read in members(self.mirror, (f"cars_{split}",)):
                    name = Path(path).name
                    if name not in boxes:
                        continue
                    advance(1)
                    model, box = boxes.pop(name)
                    if chosen is not None and name not in chosen:
                        self.left_out[path] = "not in the authors' list"
                        continue
                    label = CLASSES[model in country]
                    target = self.folder(f"cars/{label}/{split}-{Path(name).stem}.png")
                    self._write(target, path, partial(car, read, box, masks.get(Path(name).stem)))
                for name in boxes:
                    self.left_out[f"cars_{split}/{name}"] = "is annotated, but not there"

    def _car_masks(self, split: str) -> dict[str, Path]:
        folder = self.mirror / _MASKS / f"cars_{split}"
        return {path.name.removesuffix("_mask.png"): path for path in folder.glob("*_mask.png")}

    def _list(self, name: str) -> set[str] | None:
        """The authors' list of photos; None without one."""
        path = self.mirror / _METADATA / name
        return {*path.read_text().split()} if path.is_file() else None

    def _backgrounds(self) -> None:
        scenes = {scene: name for name in CLASSES for scene in self.definition["backgrounds"][name]}
        published = self.definition["backgrounds"]["published"].values()
        lists = {
            (split, scene): self._list(f"places/filter_objs/{split}/{scene}.txt")
            for split in ("train", "val")
            for scene in scenes
        }
        with counting("Places365", sum(published), "photos") as advance:
            for path, read in members(self.mirror, PLACES):
                split, scene, name = [*Path(path).parts[-3:], "", ""][:3]
                if (split, scene) not in lists:
                    continue
                chosen = lists[split, scene]
                if chosen is not None and name not in chosen:
                    self.left_out[path] = "not in the authors' list"
                    continue
                target = self.folder(f"backgrounds/{scenes[scene]}/{split}-{scene}-{name}")
                self._write(target, path, read)
                advance(1)

    def _objects(self) -> None:
        wanted = {
            category: (name, limits)
            for name in CLASSES
            for limits in [self.definition["objects"][name]]
            for category in limits["categories"]
        }
        instances: dict[str, list[Instance]] = {}
        for file in LVIS:
            for instance in lvis_instances(self.mirror, file, wanted):
                instances.setdefault(f"{instance.image:012d}", []).append(instance)
        with counting("LVIS", sum(map(len, instances.values())), "objects") as advance:
            for folder in COCO:
                for path, read in members(
                    self.mirror, (folder,), lambda p: Path(p).stem in instances
                ):
                    photo, data = instances.pop(Path(path).stem), None
                    for instance in photo:
                        advance(1)
                        label, limits = wanted[instance.category]
                        name = f"{instance.category}-{instance.number}"
                        target = self.folder(f"objects/{label}/{name}.png")
                        if reason := instance.too_small(limits):
                            self.left_out[f"{path} ({name})"] = reason
                        else:
                            data = data or read()
                            self._write(target, f"{path} ({name})", partial(instance.cut_out, data))
        for image, missing in instances.items():
            for instance in missing:
                name = f"{instance.category}-{instance.number}"
                self.left_out[f"{image}.jpg ({name})"] = "is annotated, but not there"

    def _write(self, target: Path, path: str, content: Callable[[], bytes]) -> None:
        """Write a photo, unless it is there, or name it as left out."""
        if target.exists():
            return
        try:
            data = content()
        except (DiagvibError, ValueError) as error:
            self.left_out[path] = one_line(error)
            return
        with whole_file(target) as temporary:
            temporary.write_bytes(data)


def has_archives(mirror: Path) -> bool:
    """Whether a mirror has one of the sources."""
    names = (*CARS, DEVKIT, *PLACES, *COCO, *LVIS)
    return any(_located(mirror, name) for name in names)


def is_complete(mirror: Path) -> bool:
    return (mirror / "cars" / _COMPLETE).is_file()


def car_annotations(mirror: Path) -> dict[str, dict[str, tuple[int, tuple[int, ...]]]]:
    """Split -> name of a photo -> model, from 1, and box, left, top, right, bottom."""
    return {
        "train": _annotations(_file(mirror, DEVKIT, "cars_train_annos.mat")),
        "test": _annotations(_file(mirror, TEST_LABELS, TEST_LABELS)),
    }


def _annotations(data: BinaryIO) -> dict[str, tuple[int, tuple[int, ...]]]:
    from scipy.io import loadmat

    rows = np.atleast_1d(loadmat(data, squeeze_me=True)["annotations"])
    sides = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
    return {
        str(row["fname"]): (int(row["class"]), tuple(int(row[side]) for side in sides))
        for row in rows
    }


def car(read: Callable[[], bytes], box: tuple[int, ...], mask: Path | None) -> bytes:
    """A PNG of the car in a photo: cut out by a mask, or else its annotated box with a margin."""
    photo = open_photo(Path("car"), data=read())
    if mask is not None:
        alpha = np.asarray(Image.open(mask).convert("L").resize(photo.shape[1::-1]))
        return _cut_out(photo, alpha > 0)
    left, top, right, bottom = box
    margin = round(_MARGIN * max(right - left, bottom - top))
    rows = slice(max(0, top - margin), bottom + margin)
    return _png(photo[rows, max(0, left - margin) : right + margin])


class Instance(NamedTuple):
    """An annotation of LVIS."""

    number: int
    image: int
    category: str
    box: tuple[float, ...]
    area: float
    polygons: list[list[float]]

    def too_small(self, limits: dict) -> str:
        """Why it is left out before its mask is drawn; "" if it is not."""
        box = self.box[2] * self.box[3]
        if box < limits.get("box", 0):
            return "its box is too small"
        return "its mask is too small" if self.area < limits.get("mask", 0) else ""

    def cut_out(self, data: bytes) -> bytes:
        """A PNG of the object. ValueError if its mask has several pieces."""
        from skimage.measure import label

        photo = open_photo(Path("object"), data=data)
        mask = Image.new("1", photo.shape[1::-1])
        for polygon in self.polygons:
            ImageDraw.Draw(mask).polygon(polygon, fill=1, outline=1)
        if label(np.asarray(mask), return_num=True)[1] != 1:
            raise ValueError("its mask is not in one piece")
        return _cut_out(photo, np.asarray(mask))


def _cut_out(photo: np.ndarray, mask: np.ndarray) -> bytes:
    """The part of a photo in a mask's box, transparent outside of the mask and in a border of one
    pixel, so that a mask that fills its box is one, too."""
    if not mask.any():
        raise ValueError("its mask is empty")
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    part = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    pixels = np.dstack([photo[part], mask[part].astype(np.uint8) * 255])
    return _png(np.pad(pixels, [(1, 1), (1, 1), (0, 0)]))


def _png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def lvis_instances(mirror: Path, file: str, categories: dict) -> Iterator[Instance]:
    """The annotations of some categories, one at a time: the file has a gigabyte."""
    numbers = {
        entry["id"]: entry["name"]
        for entry in _array(_file(mirror, file, file), "categories")
        if entry["name"] in categories
    }
    for entry in _array(_file(mirror, file, file), "annotations"):
        if entry["category_id"] in numbers:
            if not isinstance(entry["segmentation"], list):
                raise DiagvibError(
                    f"{mirror / file}: annotation {entry['id']} has no polygons; use the published LVIS v1"
                )
            yield Instance(
                entry["id"],
                entry["image_id"],
                numbers[entry["category_id"]],
                tuple(entry["bbox"]),
                entry["area"],
                entry["segmentation"],
            )


def _array(data: BinaryIO, key: str) -> Iterator[dict]:
    """The records of a top-level array of a JSON file, without reading it as a whole."""
    text, decoder, buffer = TextIOWrapper(data, encoding="utf-8"), json.JSONDecoder(), ""
    start = re.compile(rf'"{key}"\s*:\s*\[')
    while not (match := start.search(buffer)):
        if not (chunk := text.read(_TEXT_CHUNK)):
            raise DiagvibError(f"the annotations have no array {key}; use the published LVIS v1")
        buffer = buffer[-2 * len(key) - 16 :] + chunk
    position = match.end()
    while True:
        position = _BETWEEN.match(buffer, position).end()
        try:
            record, position = decoder.raw_decode(buffer, position)
            yield record
        except json.JSONDecodeError:
            if buffer[position : position + 1] == "]":
                return
            if not (chunk := text.read(_TEXT_CHUNK)):
                raise DiagvibError(f"the array {key} of the annotations ends too early") from None
            buffer, position = buffer[position:] + chunk, 0


def members(
    mirror: Path, names: tuple[str, ...], wanted: Callable[[str], bool] = lambda path: True
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The files of the first of these folders or archives that a mirror has: path, and a function
    that reads it, to be called before the next. DiagvibError if it has none, or a damaged one."""
    path = next(filter(None, (_located(mirror, name) for name in names)), None)
    if path is None:
        raise DiagvibError(
            f"{mirror}: has neither {names[0]}.tar, .tgz or .zip nor a folder {names[-1]}; put it there "
            "(docs/paper_photos.md)"
        )
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and wanted(name := str(file.relative_to(mirror))):
                yield name, file.read_bytes
        return
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if not name.endswith("/") and wanted(name):
                        yield name, lambda name=name: archive.read(name)
            return
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    yield member.name, lambda member=member: archive.extractfile(member).read()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DiagvibError(f"{path}: damaged ({one_line(error)}); get it again") from None


def _located(mirror: Path, name: str) -> Path | None:
    paths = (mirror / folder / f"{name}{ending}" for folder in _FOLDERS for ending in _ENDINGS)
    return next((path for path in paths if path.exists()), None)


# As in the authors' code, or all side by side.
_FOLDERS = ("", "stanford_cars", "stanford_cars/devkit", "lvis", "coco")


def _file(mirror: Path, archive: str, name: str) -> BinaryIO:
    """A file, from an archive if it is in one."""
    if (path := _located(mirror, name)) and path.is_file() and path.suffix != ".zip":
        return path.open("rb")
    if path and path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive_file:
            inner = next(inner for inner in archive_file.namelist() if inner.endswith(name))
            return archive_file.open(inner)
    for inner, read in members(mirror, (archive,)):
        if Path(inner).name == name:
            return BytesIO(read())
    raise DiagvibError(f"{mirror}: {archive} has no {name}; use the published one")
