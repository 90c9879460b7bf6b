"""Photos of cars as a user has them: real ones, which scikit-image and scikit-learn ship, and a
changing folder."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diagvib.foundation.files import read_table
from diagvib.scenes import load_scene
from photo_folders import blob, make_photos
from test_workflow import copy_of_the_repository, toy

# Three of each class, one for each split; some are grey, and one gets an alpha channel.
SHIPPED = {
    "cars/urban": ["coffee.png", "motorcycle_left.png", "retina.jpg"],
    "cars/country": ["chelsea.png", "rocket.jpg", "astronaut.png"],
    "objects/urban": ["logo.png", "clock_motion.png", "coins.png"],
    "objects/country": ["camera.png", "hubble_deep_field.jpg", "moon.png"],
    "backgrounds/urban": ["china.jpg", "brick.png", "page.png"],
    "backgrounds/country": ["flower.jpg", "grass.png", "gravel.png"],
}
CONFIG = """
root: out
mirror: photos
studies: [urbancars]
bindings: [car-background-object]
samples: 2
counts: {train: 20, val: 9, test: 9}
image_size: 64
baselines: [erm]
training: {max_epochs: 1}
"""


def shipped(name: str) -> Path:
    import skimage
    import sklearn

    folders = (
        Path(skimage.__file__).parent / "data",
        Path(sklearn.__file__).parent / "datasets" / "images",
    )
    return next(folder / name for folder in folders if (folder / name).exists())


@pytest.fixture(scope="module")
def mirror(tmp_path_factory) -> Path:
    """The photos in a user's folders, those to be cut out with a mask or an alpha channel; one is
    converted to CMYK."""
    mirror, generator = tmp_path_factory.mktemp("mirror"), np.random.default_rng(0)
    for pool, names in SHIPPED.items():
        place = mirror / "cars" / pool
        place.mkdir(parents=True)
        for name in names:
            shutil.copyfile(shipped(name), place / name)
            with Image.open(place / name) as photo:
                mask = Image.fromarray(
                    blob(photo.height, photo.width, generator).astype(np.uint8) * 255
                )
                if name == "logo.png":
                    photo.putalpha(mask)
                    photo.save(place / name)
                elif not pool.startswith("backgrounds"):
                    mask.save((place / name).with_suffix(".mask.png"))
    urban = mirror / "cars" / "backgrounds" / "urban"
    with Image.open(urban / "brick.png") as photo:
        photo.convert("CMYK").save(urban / "brick.jpg")
    (urban / "brick.png").unlink()
    return mirror


def test_real_photos_become_images(mirror, tmp_path, capsys):
    cars = load_scene("cars")
    cars.fetch(tmp_path / "raw", mirror)
    cars.prepare(tmp_path / "raw", tmp_path / "prepared", "official")
    assert capsys.readouterr().err == ""
    table = read_table(tmp_path / "prepared" / "catalogue.parquet").to_pandas()
    assert len(table) == 18 and set(table.groupby(["factor", "class"])["split"].nunique()) == {3}
    shown = cars.examples(tmp_path / "prepared", [{"car": name} for name in cars.factors["car"]])
    assert shown.shape == (2, 128, 128, 3) and (shown[0] != shown[1]).any()
    assert cars.renderer(tmp_path / "prepared", 64, torch.device("cpu")).size == 64


def planned(folder: Path) -> set[str]:
    """The stages with a job to do, up to the recipes."""
    return set(
        re.findall(r"^Job \d+: (\w+)", toy(folder, "--dry-run", "--", "recipes", cores=1), re.M)
    )


def test_a_photo_less_runs_again_what_it_must(tmp_path):
    folder = copy_of_the_repository(tmp_path)
    (folder / "toy.yaml").write_text(CONFIG)
    cars = make_photos(folder / "photos" / "cars", 50) / "cars" / "urban"
    (cars / "notes.txt").write_text("no photo")
    assert planned(folder) == {"fetch", "prepare", "draw"}
    said = toy(folder, "--", "recipes", cores=1)
    count = len([path for path in (folder / "photos").rglob("*") if path.is_file()])
    assert f"cars: made from official (1 of {count} files left out) sources" in said
    assert (
        "photos/cars/cars/urban/notes.txt: left out"
        in (folder / "out/logs/fetch/cars.log").read_text()
    )
    (cars / ".hidden").touch()
    assert planned(folder) == set()
    os.utime(cars / "notes.txt", (0, 0))
    assert planned(folder) == {"fetch", "prepare", "draw"}, "until it is listed again"
    toy(folder, "--", "fetched", cores=1)
    assert planned(folder) == set(), "the same photos are on the list"
    (cars / "000.png").unlink()
    toy(folder, "--", "fetched", cores=1)
    assert planned(folder) == {"prepare", "draw"}
