"""UrbanCars from archives in the published layout, made small: Stanford Cars, Places365, LVIS on COCO."""

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.io import savemat

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.scenes import load_scene
from diagvib.scenes.cars import archives
from diagvib.scenes.cars.archives import LEFT_OUT, Builder, is_complete
from toy import contents

SUV, SEDAN = 1, 2  # of Stanford Cars' 196 models, the first is an SUV
FIELDS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")
CATEGORIES = ("cow", "horse", "fireplug", "stop_sign", "aerosol_can")
SQUARE = [20, 20, 90, 20, 90, 90, 20, 90]


def photo(number: int, side: int = 120) -> bytes:
    noise = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((side, side)).save(file, "JPEG")
    return file.getvalue()


def annotation(number: int, image: int, category: str, *polygons: list, area: int = 4900) -> dict:
    """Of LVIS; its box is that of the first polygon."""
    x, y = polygons[0][::2], polygons[0][1::2]
    box = [min(x), min(y), max(x) - min(x), max(y) - min(y)]
    return {
        "id": number,
        "image_id": image,
        "category_id": 1 + CATEGORIES.index(category),
        "bbox": box,
        "area": area,
        "segmentation": list(polygons),
    }


def write_unpacked(top: Path) -> Path:
    """All sources as folders, as in the authors' code."""
    rows = {
        "train": [(10, 20, 100, 90, SUV, "00001.jpg"), (0, 0, 119, 119, SEDAN, "00002.jpg"),
                  (5, 5, 50, 50, SEDAN, "00003.jpg")],
        "test": [(10, 20, 100, 90, SUV, "00001.jpg"), (1, 2, 110, 90, SEDAN, "00002.jpg")],
    }  # fmt: skip
    cars = top / "stanford_cars"
    (cars / "devkit").mkdir(parents=True)
    kinds = [(name, "O") for name in FIELDS]
    for split, path in (
        ("train", "devkit/cars_train_annos.mat"),
        ("test", "cars_test_annos_withlabels.mat"),
    ):
        savemat(cars / path, {"annotations": np.array(rows[split], dtype=kinds)})
        (cars / f"cars_{split}").mkdir()
        for number, row in enumerate(rows[split][: 2 if split == "train" else None]):
            (cars / f"cars_{split}" / row[-1]).write_bytes(photo(number + 10 * (split == "test")))
    for number, (split, scene) in enumerate(
        [("train", "alley"), ("train", "desert_road"), ("val", "street"), ("val", "beach")]
    ):
        (top / "places" / split / scene).mkdir(parents=True)
        (top / f"places/{split}/{scene}/{number:08d}.jpg").write_bytes(photo(20 + number))
    split_square = [[20, 20, 40, 20, 40, 40, 20, 40], [60, 60, 90, 60, 90, 90, 60, 90]]
    lvis = {
        "train": [
            annotation(1, 7, "cow", SQUARE),
            annotation(2, 7, "cow", *split_square),
            annotation(3, 7, "cow", SQUARE, area=3000),
            annotation(4, 8, "stop_sign", SQUARE),
            annotation(5, 8, "fireplug", [0, 0, 9, 0, 9, 9]),
            annotation(6, 8, "aerosol_can", SQUARE),
            annotation(8, 99, "horse", SQUARE),
        ],
        "val": [annotation(7, 9, "fireplug", SQUARE)],
    }
    (top / "lvis").mkdir()
    for split, annotations in lvis.items():
        categories = [{"id": 1 + k, "name": name} for k, name in enumerate(CATEGORIES)]
        content = {"info": {}, "annotations": annotations, "images": [], "categories": categories}
        (top / f"lvis/lvis_v1_{split}.json").write_text(json.dumps(content))
        (top / f"coco/{split}2017").mkdir(parents=True)
        for image in {entry["image_id"] for entry in annotations} - {99}:
            (top / f"coco/{split}2017/{image:012d}.jpg").write_bytes(photo(image))
    return top


def pack(top: Path) -> Path:
    """The same as published: archives, side by side."""
    source = write_unpacked(top / "unpacked")
    tars = {
        "cars_train.tgz": ("stanford_cars/cars_train", "cars_train"),
        "cars_test.tgz": ("stanford_cars/cars_test", "cars_test"),
        "car_devkit.tgz": ("stanford_cars/devkit", "devkit"),
        "places365standard_easyformat.tar": ("places", "places365_standard"),
    }
    for name, (folder, inner) in tars.items():
        with tarfile.open(top / name, "w:gz" if name.endswith("tgz") else "w") as archive:
            archive.add(source / folder, inner)
    shutil.copy(source / "stanford_cars/cars_test_annos_withlabels.mat", top)
    for split in ("train", "val"):
        with zipfile.ZipFile(top / f"lvis_v1_{split}.json.zip", "w") as archive:
            archive.write(source / f"lvis/lvis_v1_{split}.json", f"lvis_v1_{split}.json")
        with zipfile.ZipFile(top / f"{split}2017.zip", "w") as archive:
            for path in (source / f"coco/{split}2017").iterdir():
                archive.write(path, f"{split}2017/{path.name}")
    shutil.rmtree(source)
    return top


def photos_of(mirror: Path) -> dict[str, bytes]:
    return contents(mirror / "cars", ".png", ".jpg")


EXPECTED = {
    "cars/country/train-00001.png",
    "cars/country/test-00001.png",
    "cars/urban/train-00002.png",
    "cars/urban/test-00002.png",
    "backgrounds/urban/train-alley-00000000.jpg",
    "backgrounds/urban/val-street-00000002.jpg",
    "backgrounds/country/train-desert_road-00000001.jpg",
    "objects/country/cow-1.png",
    "objects/urban/stop_sign-4.png",
    "objects/urban/fireplug-7.png",
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    return pack(tmp_path_factory.mktemp("packed"))


def test_folders_are_made_and_what_is_left_out_is_named(packed, tmp_path, capsys):
    mirror = shutil.copytree(packed, tmp_path / "mirror")
    Builder(mirror).build()
    photos = photos_of(mirror)
    assert {*photos} == EXPECTED and is_complete(mirror)
    cow = Image.open(mirror / "cars/objects/country/cow-1.png")
    assert cow.mode == "RGBA" and cow.size == (73, 73) and cow.getextrema()[3] == (0, 255)
    car = Image.open(mirror / "cars/cars/country/train-00001.png")
    assert car.mode == "RGB" and car.size == (98, 78)  # the box and 4 pixels around it
    reasons = pd.read_csv(mirror / LEFT_OUT).set_index("photo")["reason"].to_dict()
    assert reasons == {
        "cars_train/00003.jpg": "is annotated, but not there",
        "train2017/000000000007.jpg (cow-2)": "its mask is not in one piece",
        "train2017/000000000007.jpg (cow-3)": "its mask is too small",
        "train2017/000000000008.jpg (fireplug-5)": "its box is too small",
        "000000000099.jpg (horse-8)": "is annotated, but not there",
    }
    messages = capsys.readouterr().err
    assert "cars/backgrounds/urban: 2 photos, the authors' list has 6,756" in messages
    assert (
        "cars/objects/country: 1 photos; the published 8,000 / 1,000 / 1,000 images need 5,000"
        in messages
    )
    assert "cars/cars: 4 photos, the authors' lists have 14,912" in messages


def test_unpacked_folders_give_the_same(packed, tmp_path):
    mirror = write_unpacked(tmp_path / "mirror")
    Builder(mirror).build()
    packed_mirror = shutil.copytree(packed, tmp_path / "packed")
    Builder(packed_mirror).build()
    assert photos_of(mirror) == photos_of(packed_mirror)


def test_a_killed_build_goes_on(packed, tmp_path, monkeypatch):
    uncut, killed = (shutil.copytree(packed, tmp_path / name) for name in ("whole", "killed"))
    Builder(uncut).build()
    for limit in (2, 3):
        write, written = archives.whole_file, []

        def failing(path, write=write, written=written, limit=limit):
            written.append(path)
            if len(written) > limit:
                raise KeyboardInterrupt
            return write(path)

        with monkeypatch.context() as patch:
            patch.setattr(archives, "whole_file", failing)
            with pytest.raises(KeyboardInterrupt):
                Builder(killed).build()
        assert not is_complete(killed)
    assert len(photos_of(killed)) == 5
    Builder(killed).build()
    assert photos_of(killed) == photos_of(uncut)
    assert (killed / LEFT_OUT).read_text() == (uncut / LEFT_OUT).read_text()


def test_the_authors_lists_and_masks_are_used(packed, tmp_path):
    mirror = shutil.copytree(packed, tmp_path / "mirror")
    lists = {
        "stanford_cars/train.txt": "00001.jpg\n",
        "stanford_cars/test.txt": "00001.jpg\n00002.jpg\n",
        "places/filter_objs/train/alley.txt": "other.jpg\n",
    }
    for name, text in lists.items():
        (mirror / "metadata" / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror / "metadata" / name).write_text(text)
    (mirror / "mask/cars_train").mkdir(parents=True)
    mask = np.zeros((120, 120), np.uint8)
    mask[30:60, 40:90] = 255
    Image.fromarray(mask).save(mirror / "mask/cars_train/00001_mask.png")
    Builder(mirror).build()
    without = {"cars/urban/train-00002.png", "backgrounds/urban/train-alley-00000000.jpg"}
    assert {*photos_of(mirror)} == EXPECTED - without
    car = Image.open(mirror / "cars/cars/country/train-00001.png")
    assert car.mode == "RGBA" and car.size == (52, 32)
    reasons = pd.read_csv(mirror / LEFT_OUT)["reason"].tolist()
    assert reasons.count("not in the authors' list") == 2


def test_fetch_makes_the_folders_then_asks_for_masks(packed, tmp_path):
    mirror = shutil.copytree(packed, tmp_path / "mirror")
    with pytest.raises(
        DiagvibError, match="cars/urban: no photo that can be used.*`diagvib cutout"
    ):
        load_scene("cars").fetch(tmp_path / "raw", mirror)
    assert is_complete(mirror)
    for path in (mirror / "cars/cars").rglob("*.png"):
        photo = Image.open(path)
        photo.putalpha(255)
        photo.paste((0, 0, 0, 0), (0, 0, 5, 5))
        photo.save(path)
    load_scene("cars").fetch(tmp_path / "raw", mirror)
    assert (tmp_path / "raw/files.parquet").is_file()


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("car_devkit.tgz", None, "has neither car_devkit.tar"),
        ("places365standard_easyformat.tar", None, "has neither places365standard_easyformat.tar"),
        ("cars_test.tgz", b"no archive", "cars_test.tgz: damaged"),
        ("val2017.zip", b"no archive", "val2017.zip: damaged"),
    ],
)
def test_missing_and_damaged_archives(packed, tmp_path, path, change, message):
    mirror = shutil.copytree(packed, tmp_path / "mirror")
    (mirror / path).unlink() if change is None else (mirror / path).write_bytes(change)
    with refused(message):
        Builder(mirror).build()
    assert not is_complete(mirror)
