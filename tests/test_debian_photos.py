"""benchmarks/debian_photos.py: photographs of Debian packages, composed into images with two
cues."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from debian_photos import SOURCES, DebianPhotos, main
from PIL import Image

from conftest import refused
from diagvib.foundation.seeding import named_generator
from diagvib.scenes.scene import Scene

NAMES = ("apple_red", "apple_green", "cow1", "cow2", *(f"kind{letter}" for letter in "abcdefghij"))


@pytest.fixture(scope="module")
def share(tmp_path_factory) -> Path:
    """usr/share of packages, with plain photos: cut-outs on a transparent ground, and
    landscapes."""
    top, sources = tmp_path_factory.mktemp("share"), yaml.safe_load(SOURCES.read_text())
    generator = named_generator("packages")
    for classes in sources["cut_outs"].values():
        for place in (place for places in classes.values() for place in places):
            files = [place] if place.endswith(".png") else [f"{place}/{n}.png" for n in NAMES]
            for file in [*files, *([] if place.endswith(".png") else [f"{place}/cartoon/dog.png"])]:
                photo = np.zeros((24, 20, 4), np.uint8)
                photo[4:20, 4:16] = [*generator.integers(0, 255, 3), 255]
                (top / file).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(photo).save(top / file)
    for ground in sources["grounds"]:
        (top / ground["path"]).parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 255, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(top / ground["path"])
    return top


@pytest.fixture(scope="module")
def prepared(share, tmp_path_factory) -> tuple[Scene, Path]:
    scene, top = DebianPhotos(), tmp_path_factory.mktemp("prepared")
    scene.fetched(top / "raw", "official", share)
    scene.make(top / "raw", top / "prepared", "official")
    return scene, top / "prepared"


def test_no_photo_is_in_two_splits_nor_are_photos_of_one_kind(prepared):
    scene, folder = prepared
    photos = scene.catalogue(folder).photos
    assert (photos.groupby("path")["split"].nunique() == 1).all()
    assert (photos.groupby(["factor", "class"])["split"].nunique() == 3).all()
    assert not photos["path"].str.contains("cartoon").any(), "drawn ones are left out"
    kinds = photos["path"].str.extract(r"/(apple|cow)[^/]*$")[0]
    assert (photos.groupby(["factor", "class", kinds])["split"].nunique() == 1).all()


def test_an_exchanged_cue_leaves_the_rest_as_it_is(prepared):
    scene, folder = prepared
    classes = {name: np.array([labels[0], labels[1]]) for name, labels in scene.factors.items()}
    catalogue, generator = scene.catalogue(folder), named_generator("test")
    recipes = pa.table({**classes, **scene.realized(classes, "test", catalogue, generator)})
    render = scene.rendering(folder, 64, "cpu")
    before = render(recipes).numpy()
    changed = {}
    for cue in ("ground", "neighbour"):
        after = render(scene.exchange(recipes, cue, recipes.take([1, 0]))).numpy()
        changed[cue] = (before != after).any(3)
        assert (changed[cue] & scene.region(cue, recipes, before)).any()
    assert (changed["neighbour"] <= scene.region("neighbour", recipes, before)).all()
    middle = slice(28, 36), slice(20, 28)  # of the subject
    assert not changed["ground"][:, *middle].any()


def test_the_program_writes_photos_with_their_labels(share, tmp_path):
    main(share, tmp_path / "photos", train=200)
    labels = pd.read_csv(tmp_path / "photos/labels.csv")
    assert labels["split"].value_counts().to_dict() == {"train": 200, "val": 100, "test": 100}
    agree = (labels["subject"] == "animal") == (labels["ground"] == "green")
    assert agree[:200].mean() > 0.9 > 0.7 > agree[200:].mean()
    with Image.open(tmp_path / "photos" / labels["file"].iloc[-1]) as photo:
        assert photo.size == (128, 128)


def test_a_package_that_is_not_there_is_named(tmp_path):
    with refused(r"tuxpaint/stamps/animals: no photos of subject animal; see docs/real_photos.md"):
        DebianPhotos().fetch(tmp_path, tmp_path)
