"""The definitions of public photo sets, on small folders in the published layout."""

import json
import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import diagvib
from conftest import REPOSITORY
from diagvib.commands.new_photos import look
from diagvib.commands.photo_columns import Columns
from diagvib.foundation.files import read_yaml
from diagvib.foundation.validation import validated
from diagvib.scenes import load_scene
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.tables import labelled_photos
from diagvib.settings.layout import folder_name
from diagvib.settings.resolve import load_config

SPLITS = ("train", "val", "test")
# Of each (target, cue) in training; in validation and test there are three.
COUNTS = [(0, 0, 6), (0, 1, 2), (1, 0, 2), (1, 1, 6)]
ROWS = [
    (split, target, cue)
    for split in range(3)
    for target, cue, n in COUNTS
    for _ in range(n if split == 0 else 3)
]
CONTEXTS = ("autumn", "dim", "grass", "outdoor", "rock", "water")
# Of sets of folders: (folder, its photos' names, split, classes).
FOLDERS = {
    "metashift": [
        (f"{part}/{kind}/{kind}({place})", "{}.jpg", "", kind, place)
        for part, kind, place in (
            ("train", "cat", "indoor"),
            ("train", "dog", "outdoor"),
            ("test", "cat", "outdoor"),
            ("test", "dog", "indoor"),
        )
    ],
    "nico": [
        (f"{context}/{kind}", "{}.jpg", "", kind, context)
        for context, kind in product(CONTEXTS, ("car", "hot air balloon"))
    ],
    "counteranimal": [
        (f"{index} {name}/{kind}-{name}", "{}.jpg", "", str(index), kind)
        for (index, name), kind in product(
            ((296, "ice bear"), (9, "ostrich, Struthio")), ("common", "counter")
        )
    ],
    "imagenet9": [
        (f"{photos}/{folder}", "{}.JPEG", split, kind, photos)
        for photos, split in (("train", "train"), ("val", "val"), *product(("original", "mixed_rand"), ["test"]))
        for folder, kind in (("00_dog", "dog"), ("02_wheeled vehicle", "vehicle"), ("06_musical instrument", "instrument"))
    ],
    "colored_mnist": [
        (folder, f"{{}}_{digit}_{colour}.png", split, digit, colour)
        for folder, split, digit, colour in (
            ("align/0", "train", "0", "0"),
            ("align/7", "train", "7", "7"),
            ("conflict/7", "train", "7", "1"),
            ("valid", "val", "7", "0"),
            ("test/0", "test", "0", "9"),
            ("test/7", "test", "7", "7"),
        )
    ],
}  # fmt: skip


def save(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def folders(folder, name):
    results = {}
    for place, names, *labels in FOLDERS[name]:
        for _ in range(24 if name == "metashift" else 3):
            path = f"{place}/{names.format(len(results))}"
            save(folder / path, len(results))
            results[path] = tuple(labels)
    return results


def waterbirds(folder):
    split, y, place = zip(*ROWS, strict=True)
    table = pd.DataFrame({"img_id": range(len(ROWS)), "y": y, "split": split, "place": place})
    table["img_filename"] = table["img_id"].map("001.Bird/{:06d}.jpg".format)
    table.assign(place_filename="/forest/1.jpg").to_csv(folder / "metadata.csv", index=False)
    return table["img_filename"], ("landbird", "waterbird"), ("land", "water")


def celeba(folder):
    split, y, male = map(np.array, zip(*ROWS, strict=True))
    files = pd.Series(range(len(ROWS))).map("{:06d}.jpg".format)
    signed = {"image_id": files, "Blond_Hair": 2 * y - 1, "Male": 2 * male - 1, "Young": 1}
    shuffled = pd.DataFrame(signed).sample(frac=1, random_state=0)
    shuffled.to_csv(folder / "list_attr_celeba.csv", index=False)
    partition = pd.DataFrame({"image_id": files, "partition": split})
    partition.to_csv(folder / "list_eval_partition.csv", index=False)
    return "img_align_celeba/" + files, ("not_blond", "blond"), ("female", "male")


def biased_mnist(folder, monkeypatch):
    """The table by the lines of the definition's comment, from a file for each split."""
    additional = (
        "digit_scale",
        "digit_position",
        "texture",
        "texture_color",
        "letter",
        "letter_color",
    )
    paths = []
    for split, part in enumerate(("full_0.95/trainval", "full_0.5/trainval", "full/test")):
        values = [(digit, colour) for position, digit, colour in ROWS if position == split]
        factors = [
            {"digit": d, "digit_color_ix": c, **{f"{name}_ix": 0 for name in additional}}
            for d, c in values
        ]
        (folder / part).mkdir(parents=True)
        # Images of the other split come first in each file.
        (folder / f"{part}.json").write_text(json.dumps([factors[0]] * 2 * (split < 2) + factors))
        paths += [f"{part}/{n + 2 * (split < 2)}.jpg" for n in range(len(values))]
    for name, count in (("train", 16), ("val", 12)):
        (folder / f"{name}_ixs.json").write_text(json.dumps([*range(2, count + 2)]))
    text = (REPOSITORY / "config/photos/biased_mnist/scene.yaml").read_text()
    monkeypatch.chdir(folder)
    exec("\n".join(re.findall(r"^#   (.*)$", text, re.MULTILINE)))
    return pd.Series(paths), "0123456789", "0123456789"


def defined(name):
    return validated(PhotoSet, read_yaml(REPOSITORY / f"config/photos/{name}/scene.yaml"), name)


@pytest.mark.parametrize("name", ["waterbirds", "celeba", "biased_mnist"])
def test_every_photo_is_in_its_published_split_with_its_classes(name, tmp_path, monkeypatch):
    config, values = load_config(REPOSITORY / f"config/photos/{name}/config.yaml"), defined(name)
    (study,), binding, folder = config.studies, config.bindings[0], tmp_path / name
    folder.mkdir()
    output = {"waterbirds": waterbirds, "celeba": celeba}
    paths, targets, cues = (
        output[name](folder) if name in output else biased_mnist(folder, monkeypatch)
    )
    for number, path in enumerate(paths):
        save(folder / path, number)
    monkeypatch.chdir(REPOSITORY)
    (scene,) = config.scenes
    assert folder_name(scene) == load_scene(scene).name == name
    listed, all_items = labelled_photos(values, folder, name)
    assert all_items == len(ROWS) == len(listed)
    target, cue, *_ = values.factors
    result = listed.set_index("path").loc[paths, ["split", target, cue]]
    assert [*result.itertuples(index=False, name=None)] == [
        (SPLITS[s], targets[t], cues[c]) for s, t, c in ROWS
    ]
    options = {"studies_from": config.studies_from, "mirror": tmp_path, "image_size": 64}
    data = {
        split: diagvib.load(study, binding, split, **options, sources="official")
        for split in ("train", "test")
    }
    assert len(data["train"]) == 16 and len(data["test"]) == 12
    assert data["train"].comparable == (values.published is None)
    # Who predicts the cue is right on average as often as in training, and never in the worst cell.
    display = data["test"].table[cue].to_pandas()
    scores = data["test"].evaluate(
        [[*values.classes[target]].index(targets[cues.index(c)]) for c in display]
    )
    assert scores["worst_cell"] == 0 and scores["accuracy"] == scores["plain_accuracy"] == 0.5


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_read_as_published(name, tmp_path, capsys):
    config, values = load_config(REPOSITORY / f"config/photos/{name}/config.yaml"), defined(name)
    output = folders(tmp_path / name, name)
    listed, all_items = labelled_photos(values, tmp_path / name, name)
    assert all_items == len(output)
    result = listed.set_index("path")[["split", *values.factors]]
    assert dict(zip(result.index, result.itertuples(index=False, name=None), strict=True)) == output
    options = {"studies_from": config.studies_from, "mirror": tmp_path, "image_size": 64}
    if name == "metashift":  # is drawn; of the other sets, every photo is used
        options["counts"] = {"train": 17, "val": 9, "id": 9, "ood": 9}
    for study in config.studies:
        test = diagvib.load(study, config.bindings[0], "test", **options, sources="official")
        groups = test.table.to_pandas().groupby("group").size()
        assert groups.isin([3, 6, 9]).all() and groups.sum() == len(test)
        train = diagvib.load(study, config.bindings[0], "train", **options, sources="official")
        if name != "counteranimal":
            assert not set(train.table["photo"].to_pylist()) & set(test.table["photo"].to_pylist())
    output = capsys.readouterr().err
    assert ("all, common: 6 photos, published 7,174" in output) == (name == "counteranimal")


def test_wilds_table_of_any_set_is_proposed_as_published(tmp_path):
    for number, path in enumerate(waterbirds(tmp_path)[0]):
        save(tmp_path / path, number)
    proposal = look(tmp_path, "metadata.csv", Columns(target="y", cues=["place"]), "mine")
    assert proposal.definition["file"] == "img_filename"
    assert proposal.photos["split"].value_counts().to_dict() == {"train": 16, "val": 12, "test": 12}


def test_a_recorded_root_finds_a_set_by_its_former_path():
    former = load_scene("config/waterbirds/waterbirds.yaml")
    assert former.factors == load_scene("config/photos/waterbirds/scene.yaml").factors
