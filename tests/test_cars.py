"""Composed photos: the user's folder, what is made from it, and every pixel compared with a plain
composition."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

from conftest import refused
from diagvib.foundation.files import read_table
from diagvib.scenes import load_scene
from diagvib.scenes.cars.catalogue import CarCatalogue
from diagvib.scenes.cars.geometry import CLASSES, FACTORS, tile_corner
from diagvib.scenes.cars.prepare import Photo, assign_splits
from diagvib.scenes.cars.tiles import cut_out
from diagvib.settings.jobs import stage_settings
from diagvib.settings.resolve import load_config
from diagvib.studies.binding import bind
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.study import load_study
from photo_folders import make_photos

CARS, CPU = load_scene("cars"), torch.device("cpu")
PHOTOS_EACH = 12


@pytest.fixture(scope="module")
def mirror(tmp_path_factory) -> Path:
    mirror = tmp_path_factory.mktemp("mirror")
    make_photos(mirror / "cars", PHOTOS_EACH)
    return mirror


@pytest.fixture(scope="module")
def prepared(mirror, tmp_path_factory) -> Path:
    return prepared_of(mirror, tmp_path_factory.mktemp("official"))


def prepared_of(mirror: Path, folder: Path) -> Path:
    """What is prepared, in a folder, of the photos of a mirror."""
    CARS.fetch(folder / "raw", mirror)
    CARS.prepare(folder / "raw", folder / "prepared", "official")
    return folder / "prepared"


def random_recipes(catalogue: CarCatalogue, n: int) -> pa.Table:
    """Any photo of each factor; classes do not matter to pixels."""
    generator = np.random.default_rng(3)
    rows = {factor: generator.integers(0, len(catalogue.classes[factor]), n) for factor in FACTORS}
    return pa.table(
        {f"{factor}_photo": pa.array(source, pa.int32()) for factor, source in rows.items()}
    )


def plain_cut_out(path: Path, longer: int) -> tuple[Image.Image, Image.Image]:
    """A photo's object with its mask, cropped and scaled, with Pillow alone."""
    photo, mask_file = Image.open(path), path.with_suffix(".mask.png")
    mask = Image.open(mask_file) if mask_file.exists() else photo.getchannel("A")
    box = mask.getbbox()
    photo, mask = photo.crop(box), mask.crop(box)
    factor = longer / max(photo.size)
    size = tuple(max(1, round(factor * length)) for length in photo.size)
    return photo.resize(size, Image.Resampling.BILINEAR).convert("RGB"), mask.resize(
        size, Image.Resampling.NEAREST
    )


def plain_composition(background: Path, object: Path, car: Path) -> np.ndarray:
    """One image of 256 pixels, as the paper describes it: uint8[256, 256, 3]."""
    empty = Image.open(background)
    side = min(empty.size)
    remaining, top = (empty.width - side) // 2, (empty.height - side) // 2
    canvas = empty.crop((remaining, top, remaining + side, top + side)).resize((256, 256), 2)
    for path, longer, column in ((object, 64, 224), (car, 128, 128)):
        cut, mask = plain_cut_out(path, longer)
        canvas.paste(cut, (column - cut.width // 2, 128 - cut.height // 2), mask)
    return np.asarray(canvas)


def paths_of(prepared: Path, mirror: Path) -> dict[str, list[Path]]:
    table = read_table(prepared / "catalogue.parquet").to_pandas()
    return {
        factor: [mirror / "cars" / path for path in table.loc[table["factor"] == factor, "path"]]
        for factor in FACTORS
    }


def test_every_pixel_is_that_of_a_plain_composition(prepared, mirror):
    recipes, paths = random_recipes(CARS.catalogue(prepared), 20), paths_of(prepared, mirror)
    images = CARS.renderer(prepared, 256, CPU)(recipes).numpy()
    for image, row in zip(images, recipes.to_pylist(), strict=True):
        files = {factor: paths[factor][row[f"{factor}_photo"]] for factor in FACTORS}
        assert np.array_equal(image, plain_composition(**files))


def pools(sizes: dict[str, int]) -> CarCatalogue:
    """A catalogue without photos: this many of each class and factor in each split."""
    classes = np.repeat(CLASSES, sum(sizes.values()))
    splits = np.tile(np.repeat(list(sizes), list(sizes.values())), len(CLASSES))
    by_factor = dict.fromkeys(FACTORS, classes), dict.fromkeys(FACTORS, splits)
    return CarCatalogue("official", True, "0" * 64, *by_factor)


@pytest.fixture(scope="module")
def drawn() -> pd.DataFrame:
    """The published dataset's recipes, as drawn for config/urbancars.yaml."""
    config = load_config("config/urbancars.yaml")
    (study_name,), (binding,) = config.studies, config.bindings
    study = load_study(study_name)
    samples = stage_settings(config, "draw", study_name).dataset_samples
    assert len(samples) == 1
    return draw_recipes(
        study,
        bind(study, binding, CARS.factors),
        samples,
        config.counts,
        CARS,
        pools({"train": 4000, "val": 500, "test": 500}),
    ).to_pandas()


def test_the_published_dataset_has_its_counts(drawn):
    agree = drawn.assign(
        background=drawn["background"] == drawn["car"], object=drawn["object"] == drawn["car"]
    )
    train = agree[agree["split"] == "train"].groupby(["car", "background", "object"]).size()
    for name in CLASSES:
        assert [
            train[name, *pair]
            for pair in ((True, True), (False, True), (True, False), (False, False))
        ] == [3610, 190, 190, 10]
    for factor in FACTORS:
        assert drawn[f"{factor}_photo"].nunique() == len(drawn) == 10_000, "no photo is used twice"
    for split in ("val", "test"):
        cells = agree[agree["split"] == split].groupby(["car", "background", "object"]).size()
        assert len(cells) == 8 and (cells == 125).all()
    test = agree[agree["split"] == "test"].set_index("group")[["background", "object"]]
    assert test.loc["common"].all(axis=None) and not test.loc["neither"].any(axis=None)
    assert not test.loc["no-cue-1", "background"].any() and test.loc["no-cue-1", "object"].all()


def test_too_few_photos_are_counted():
    with refused(
        r"counts.train: 8,000 images need 4,000 photos of car country, each once, "
        r"but the split has 3,000; set it to 6,000 or less, or add photos",
    ):
        pools({"train": 3000, "val": 1, "test": 1}).choose(
            "car", np.repeat(CLASSES, 4000), "train", np.random.default_rng(0)
        )


def test_a_class_is_cut_into_the_published_shares():
    photos = [
        Photo("car", name, f"{name}/{number}", f"{name}{number}")
        for name in CLASSES
        for number in range(5000)
    ]
    splits = dict(zip(photos, assign_splits(photos, 1), strict=True))
    for name in CLASSES:
        counts = pd.Series(
            [split for photo, split in splits.items() if photo.name == name]
        ).value_counts()
        assert counts.to_dict() == {"train": 4000, "val": 500, "test": 500}
    fewer = zip(photos[1:], assign_splits(photos[1:], 1), strict=True)
    assert sum(splits[photo] != split for photo, split in fewer) <= 4, "hardly any other moves"
    renamed = [photo._replace(path=f"x{number}") for number, photo in enumerate(photos)]
    assert assign_splits(renamed, 1) == list(splits.values())


def copied(mirror: Path, folder: Path) -> Path:
    shutil.copytree(mirror / "cars", folder / "cars", copy_function=shutil.copy2)
    return folder


def test_what_cuts_nothing_out_is_left_out_with_a_line(mirror, tmp_path, capsys):
    subject = copied(mirror, tmp_path)
    urban = subject / "cars" / "cars" / "urban"
    Image.new("L", Image.open(urban / "001.jpg").size).save(urban / "001.mask.png")
    Image.new("L", (20, 20), 255).save(urban / "003.mask.png")
    (urban / "005.mask.png").unlink()
    Image.new("L", Image.open(urban / "009.jpg").size, 255).save(urban / "009.mask.png")
    shutil.copy2(urban / "007.mask.png", urban / "orphan.mask.png")
    CARS.fetch(tmp_path / "raw", subject)
    *lines, count = capsys.readouterr().err.splitlines()
    assert count.endswith("cars: 8 of 96 files left out"), "those named, and the partners of three"
    expected = {
        "001.mask.png": "the mask is empty",
        "003.mask.png": "the mask is 20 x 20 pixels and the photo",
        "005.jpg": "`diagvib cutout` can make",
        "009.mask.png": "its mask covers all of it",
        "orphan.mask.png": "there is no photo for this mask",
    }
    assert len(lines) == len(expected)
    for name, reason in expected.items():
        (line,) = (line for line in lines if line.startswith(str(urban / name)))
        assert reason in line
    listed = set(read_table(tmp_path / "raw" / "files.parquet")["path"].to_pylist())
    assert "cars/urban/007.mask.png" in listed
    assert not listed & {
        f"cars/urban/{name}" for name in (*expected, "001.jpg", "003.jpg", "009.jpg")
    }


def test_a_photo_less_is_another_state_and_digest(mirror, prepared, tmp_path):
    assert CARS.catalogue(prepared).comparable
    subject = copied(mirror, tmp_path)
    state = CARS.state(subject)
    CARS.fetch(tmp_path / "raw", subject)
    (subject / "cars" / "objects" / "country" / "002.png").unlink()
    assert CARS.state(subject) != state
    with refused(r"objects/country/002.png: No such file.* run `diagvib fetch` again"):
        CARS.prepare(tmp_path / "raw", tmp_path / "prepared", "official")
    again = prepared_of(subject, tmp_path)
    assert CARS.catalogue(again).digest != CARS.catalogue(prepared).digest


def test_without_a_folder_of_photos_the_remedy_is_named(tmp_path):
    with refused(
        "mirror: the photos of cars are your own; .*cars/objects/country .docs/paper_photos",
    ):
        CARS.fetch(tmp_path, None)
    assert CARS.state(None) == CARS.state(tmp_path / "absent") == ""
    assert load_scene("digits").state(tmp_path) == ""


def test_damaged_packs_are_refused(prepared, tmp_path):
    for name in ("car.npy", "catalogue.parquet"):
        folder = Path(shutil.copytree(prepared, tmp_path / name))
        (folder / name).write_bytes((folder / name).read_bytes()[:-100])
        with refused(name):
            CARS.catalogue(folder)
            CARS.renderer(folder, 64, CPU)


def test_a_photo_that_is_there_twice_is_used_once(mirror, tmp_path, capsys):
    """It could be in two splits; nor is the mask of the second one listed."""
    subject = copied(mirror, tmp_path)
    urban = subject / "cars" / "cars" / "urban"
    for end in ("jpg", "mask.png"):
        shutil.copy2(urban / f"001.{end}", urban / f"101.{end}")
    CARS.fetch(tmp_path / "raw", subject)
    assert "101.jpg: left out, because it is the same photo as cars/urban/001.jpg" in (
        capsys.readouterr().err
    )
    table = read_table(tmp_path / "raw" / "files.parquet")["path"].to_pylist()
    assert "cars/urban/001.mask.png" in table and not any("101" in path for path in table)


def test_a_mask_that_changes_is_noticed(mirror, tmp_path):
    subject = copied(mirror, tmp_path)
    CARS.fetch(tmp_path / "raw", subject)
    mask = subject / "cars/cars/urban/001.mask.png"
    Image.fromarray(np.asarray(Image.open(mask))[::-1]).save(mask)
    with refused("001.mask.png: changed since .*`diagvib fetch` again"):
        CARS.prepare(tmp_path / "raw", tmp_path / "prepared", "official")


def test_a_photo_of_another_class_is_another_digest(mirror, prepared, tmp_path):
    """Though a pack has the same pixels, in the same order."""
    subject = copied(mirror, tmp_path)
    places = subject / "cars" / "backgrounds"
    max((places / "country").iterdir()).rename(places / "urban" / "-.jpg")
    again = prepared_of(subject, tmp_path)
    packs = [folder / "background.npy" for folder in (prepared, again)]
    assert packs[0].read_bytes() == packs[1].read_bytes()
    assert CARS.catalogue(again).digest != CARS.catalogue(prepared).digest


def test_an_object_begins_at_half_of_full_opacity():
    photo = np.zeros((2, 3, 4), np.uint8)
    photo[..., 3] = [[0, 127, 128], [255, 127, 128]]
    assert cut_out(photo, None)[1].tolist() == [[False, False, True], [True, False, True]]


@pytest.mark.parametrize(("size", "corner"), [(256, (96, 192)), (100, (38, 75)), (65, (24, 48))])
def test_the_object_lies_on_the_right_at_any_size(size, corner):
    assert tile_corner("object", size) == corner
