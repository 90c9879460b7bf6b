"""Photo sets of a user's own: from a table or from paths, with splits, units and lots, through
listing, drawing and rendering."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image

import diagvib
import diagvib.scenes.photos.watermark as watermarks
from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json
from diagvib.scenes import load_scene
from diagvib.scenes.photos.decoding import square
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.scene import PhotoCatalogue, Photos
from diagvib.scenes.photos.shares import serving_split, share_out
from diagvib.scenes.photos.tables import labelled_photos, read_groups
from diagvib.scenes.scene import STATE
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.preference import cue_label_names
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.study import load_studies
from synthetic_studies import own_study
from test_photos import save
from toy import copy_of_the_repository, images_here, runs_here, snakemake

CPU = torch.device("cpu")
SET = {
    "folder": "photos",
    "table": "labels.csv",
    "file": "name",
    "factors": {
        "bird": {"column": "y", "classes": {"land": 0, "water": [1, 2]}},
        "place": ["field", "sea"],
    },
    "size": 64,
    "licence": "CC0-1.0",
    "citation": "me",
}
STUDIES = """
title: Birds
studies:
  birds:
    title: Birds
    meaning: the place agrees with the bird in three of four images
    scene: birds.yaml
    metrics: accuracy
    roles: {target: 2, cue: 2}
    rows:
      - {splits: [train, val], group: seen, weight: 0.75, cells: {cue: same}}
      - {splits: [train, val], group: seen, weight: 0.25, cells: {cue: other}}
      - {splits: [test], group: agree, cells: {cue: same}}
      - {splits: [test], group: differ, cells: {cue: other}}
"""
COUNTS = {"train": 20, "val": 10, "agree": 10, "differ": 10}


def rows(item: int = 30) -> pd.DataFrame:
    """A table of this many photos of each cell."""
    cells = [(bird, place) for bird in "01" for place in ("field", "sea")]
    table = pd.DataFrame([cell for cell in cells for _ in range(item)], columns=["y", "place"])
    number = np.arange(len(table))
    table["name"] = [f"{n % 3}/{n:03d}.{'png' if n % 2 else 'jpg'}" for n in number]
    return table.assign(
        split=np.array(["train", "val", "test"])[number % 3], person=(number // 3).astype(str)
    )


def made(folder: Path, labels: pd.DataFrame, **changes) -> Path:
    """A definition with its photos; each shows the number of its row in its colours."""
    photos = folder / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(labels["name"]):
        (photos / name).parent.mkdir(exist_ok=True, parents=True)
        colour = (number % 256, 100, 200 if labels["y"].iloc[number] == "0" else 30)
        Image.new("RGB", (80 + number % 5, 60), colour).save(photos / name, quality=98)
    labels.to_csv(photos / "labels.csv", index=False)
    path = folder / "birds.yaml"
    path.write_text(yaml.safe_dump({**SET, **changes}, sort_keys=False))
    return path


def with_birds(folder: Path, **changes) -> Path:
    """A folder with all of the photos, their definition and the study of them."""
    made(folder, rows(), **changes)
    (folder / "birds_studies.yaml").write_text(STUDIES)
    return folder


def listed(path: Path, raw: Path) -> pd.DataFrame:
    scene = load_scene(str(path))
    scene.fetch(raw, None)
    scene.make(raw, raw / "prepared", "official")
    return scene.catalogue(raw / "prepared").photos


def drawn(scene: Photos, prepared: Path) -> pd.DataFrame:
    path = prepared / "studies.yaml"
    path.write_text(STUDIES)
    study, sample = load_studies([path])["birds"], dataset_sample(0, scene)
    binding, catalogue = bind(study, "bird-place", scene.factors), scene.catalogue(prepared)
    return draw_recipes(study, binding, [sample], COUNTS, scene, catalogue).to_pandas()


def test_a_table_becomes_a_dataset_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(with_birds(tmp_path))
    options = {"counts": COUNTS, "image_size": 64, "studies_from": ["birds_studies.yaml"]}
    data = diagvib.load("birds", "bird-place", "all", **options)
    assert len(data) == 50 and data.classes == ("land", "water")
    table = data.table.to_pandas()
    assert table["photo"].is_unique, "each photo is used once"
    labels = rows().sort_values("name", ignore_index=True).loc[table["photo"]]
    assert (labels["place"].to_numpy() == table["place"]).all()
    blue = data.pixels[:, 32, 32, 2].float()
    assert ((blue > 100).numpy() == (table["bird"] == "land")).all(), "the photos themselves"
    test = diagvib.load("birds", "bird-place", "test", **options)
    assert test.evaluate(test.targets)["accuracy"] == 1


def test_splits_and_units_are_kept(tmp_path):
    table = rows(60)
    for name, changes in (("split", {"split": {}}), ("unit", {"unit": "person"})):
        scene = load_scene(str(made(tmp_path / name, table, **changes)))
        photos = listed(scene.path, tmp_path / name / "raw")
        assert (photos["split"] != "").all() == (name == "split")
        recipes = drawn(scene, tmp_path / name / "raw/prepared")
        used = table.sort_values("name", ignore_index=True).loc[recipes["photo"]]
        assert recipes["photo"].is_unique
        if name == "split":
            assert (used["split"].to_numpy() == recipes["split"]).all()
        else:
            splits = recipes.groupby(used["person"].to_numpy())["split"].nunique()
            assert (splits == 1).all() and set(recipes["split"]) == {"train", "val", "test"}


def lots_used(lots: str, trained: int, environments: str) -> tuple[list[int], str]:
    """The photos, each of one of these lots, for recipes of which the first so many are trained,
    each in one of these environments; and their lots."""
    photos = pd.DataFrame({"kind": ["a"] * len(lots), "split": "", "unit": "", "lot": [*lots]})
    splits = ["train"] * trained + ["test"] * (len(lots) - trained)
    recipes = photos[["kind"]].assign(split=splits, environment=[*environments])
    selection = share_out("own", {"kind": ["a"]}, recipes, photos, np.random.default_rng(0))
    return sorted(selection), "".join(photos["lot"][selection])


def test_what_an_environment_leaves_of_a_lot_is_used_once():
    assert lots_used("0000011111", 6, "xxxyyyzzzz")[0] == list(range(10))


def test_a_table_in_parquet_lists_the_same(tmp_path):
    table = rows(3)
    expected = listed(made(tmp_path / "csv", table), tmp_path / "csv/raw")
    made(tmp_path / "parquet", table, table="labels.parquet")
    table.astype({"y": int}).to_parquet(tmp_path / "parquet/photos/labels.parquet")
    result = listed(tmp_path / "parquet/birds.yaml", tmp_path / "parquet/raw")
    assert result.equals(expected)


def test_the_state_of_the_photos_is_noted_when_they_are_listed_and_a_new_photo_is_another(tmp_path):
    """By it, the workflow sees that it must list them again."""
    scene, raw = load_scene(str(made(tmp_path, rows(1)))), tmp_path / "raw"
    scene.fetched(raw, "official", None)
    assert read_json(raw / STATE) == {"state": scene.state(None)}
    colour = Image.new("RGB", (80, 60), (1, 2, 3))
    colour.save(tmp_path / "photos/0/more.png")
    assert read_json(raw / STATE) != {"state": scene.state(None)}


def test_what_cannot_be_used_is_left_out_with_a_line(tmp_path, capsys):
    table = rows(3)
    path = made(tmp_path, table)
    photos = tmp_path / "photos"
    (photos / table["name"][1]).unlink()
    (photos / table["name"][4]).write_bytes((photos / table["name"][3]).read_bytes())
    (photos / table["name"][10]).write_bytes((photos / table["name"][2]).read_bytes())
    table.assign(y=[*table["y"][:11], "7"]).to_csv(photos / "labels.csv", index=False)
    result = listed(path, tmp_path / "raw")
    output = capsys.readouterr().err
    assert len(result) == 7 and "5 of 12 files left out" in output
    for text in (
        f"{photos}: left out, 1 photos: y is '7', which stands for no bird",
        f"{photos / table['name'][1]}: left out, No such file",
        f"{photos / table['name'][4]}: left out, because it is the same photo as {table['name'][3]}",
        f"{table['name'][10]}: left out, because {table['name'][2]} is the same photo, with other",
        f"{photos}: photos of a single colour: ",
    ):
        assert text in output
    scene = load_scene(str(path))
    assert scene.catalogue(tmp_path / "raw/prepared").sources == "official (5 of 12 files left out)"
    assert scene.licences("official") == [("CC0-1.0", "me")] and scene.licences("embedded") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"table": None}, "exactly one of the keys `table` and `pattern`"),
        ({"table": None, "pattern": "{y}/*"}, "pattern: has no field {place}"),
        ({"table": None, "pattern": "{y}/{place}/{y}_*"}, "pattern: {y}: a field is one word"),
        ({"table": None, "pattern": "{y}/{place}/{1st}"}, "pattern: {1st}: a field is one word"),
        ({"factors": {"split": ["a", "b"]}}, "'split' cannot be used; a factor is one word"),
        ({"factors": {"confidence": ["a", "b"]}}, "'confidence' cannot be used; a factor is"),
        ({"factors": {"a": {"classes": {"x": 0, "y": "0"}}}}, "the value 0 stands for two classes"),
        ({"split": {"train": [0, 1], "val": 1, "test": 2}}, "the value 1 stands for two splits"),
        ({"stand_ins": {"shapes": {"land": "disc"}, "patterns": {}}}, "stand_ins: `shapes` and"),
        (
            {"factors": {"bird": ["owl", "owl-barn"], "place": ["barn-red", "red", "sea"]}},
            "two classes of bird, each with one of place, are both owl-barn-red; rename",
        ),
        (
            {"factors": {"a": ["x", "x-y"], "b": ["y-z", "z-w"], "c": ["w-v", "v"]}},
            "two classes of a, each with one of b and c, are both x-y-z-w-v; rename",
        ),
    ],
)
def test_a_definition_that_cannot_be_used_is_named(tmp_path, changes, says):
    path = tmp_path / "birds.yaml"
    path.write_text(yaml.safe_dump({**SET, **changes}))
    with pytest.raises(DiagvibError) as error:
        load_scene(str(path))
    assert says in str(error.value) and str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "changes", "says"),
    [
        (lambda t: t.drop(columns="y"), {}, "labels.csv (named in {}): unknown column 'y'"),
        (
            lambda t: t.assign(name=["../a.jpg", *t["name"][1:]]),
            {},
            "row 1 below the header: name: ../a.jpg is not",
        ),
        (
            lambda t: t.assign(name=["./1/001.png", *t["name"][1:]]),
            {},
            "row 2 below the header: name: 1/001.png is",
        ),
        (
            lambda t: t.assign(person=[*t["person"][1:], ""]),
            {"unit": "person"},
            "row 12 below the header: person is",
        ),
        (lambda t: t.assign(lot=["", *"a" * 11]), {"lot": "lot"}, "row 1 below the header: lot is"),
        (
            lambda t: t.assign(name=["/a.jpg", *t["name"][1:]]),
            {},
            "row 1 below the header: name: /a.jpg is not",
        ),
        (lambda t: t, {"split": {}, "unit": "person"}, "the person 0 is in several splits"),
        (lambda t: t.rename(columns={"place": "y"}), {}, "labels.csv: has the column y twice"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path, change, changes, says):
    path = made(tmp_path, rows(3), **changes)
    change(rows(3)).to_csv(tmp_path / "photos/labels.csv", index=False)
    with pytest.raises(DiagvibError) as error:
        load_scene(str(path)).fetch(tmp_path / "raw", None)
    assert says.format(path) in str(error.value) and "\n" not in str(error.value)


def test_tables_are_joined_row_by_row(tmp_path):
    """A photo that one of them lacks, or has twice, would get lost, or be there twice."""
    scene = load_scene(str(made(tmp_path, rows(3), table=["labels.csv", "places.csv"])))
    photos, table = tmp_path / "photos", rows(3)
    table[["name", "y"]].to_csv(photos / "labels.csv", index=False)
    table[["name", "place"]].sample(frac=1).to_csv(photos / "places.csv", index=False)
    scene.fetch(tmp_path / "raw", None)
    for places, says in (
        (table["name"].replace("0/000.jpg", "1/001.png"), "12, but 12 pairs have the same name"),
        (table["name"].rename("file"), "shares no column with the next table"),
    ):
        places.to_frame().assign(place="sea").to_csv(photos / "places.csv", index=False)
        with refused(says):
            scene.fetch(tmp_path / "raw", None)


def test_a_column_called_path_is_the_tables(tmp_path):
    made(tmp_path, rows(3).assign(path=[f"trail {n // 4}" for n in range(12)]))
    definition = PhotoSet.model_validate({**SET, "unit": "path"})
    photos, _ = labelled_photos(definition, tmp_path / "photos", "")
    assert photos["unit"].nunique() == 3 and set(photos["path"]) == set(rows(3)["name"])


def test_a_row_of_joined_tables_is_named_without_its_number(tmp_path):
    """They are joined in another order."""
    scene = load_scene(str(made(tmp_path, rows(3), table=["labels.csv", "places.csv"])))
    table = rows(3).assign(name=["../a.jpg", *rows(3)["name"][1:]])
    for name, column in (("labels.csv", "y"), ("places.csv", "place")):
        table[["name", column]].to_csv(tmp_path / "photos" / name, index=False)
    with refused("labels.csv: a row: name: ../a.jpg is not in"):
        scene.fetch(tmp_path / "raw", None)


def test_values_that_stand_for_no_class_are_all_counted(tmp_path, capsys):
    labels = rows(3).assign(y=["0", *"1" * 8, *"345"])
    labels = pd.concat([labels] * 5, ignore_index=True)
    labels["y"] = labels["y"].where(labels["y"] < "3", [f"odd {n}" for n in range(60)])
    labels["name"] = [f"{n}.png" for n in range(60)]
    path = made(tmp_path, labels)
    labelled_photos(load_scene(str(path)).definition, tmp_path / "photos", "")
    assert "left out, 5 photos: y is one of 5 more values, which" in capsys.readouterr().err


def test_what_changes_while_photos_are_listed_is_noticed(tmp_path, monkeypatch):
    path = made(tmp_path, rows(3))
    scene = load_scene(str(path))

    def edited(*arguments):
        dataset = labelled_photos(*arguments)
        with open(tmp_path / "photos/labels.csv", "a") as file:
            file.write("\n")
        return dataset

    monkeypatch.setattr("diagvib.scenes.photos.scene.labelled_photos", edited)
    scene.fetched(tmp_path / "raw", "official", None)
    assert read_json(tmp_path / "raw" / STATE)["state"] != scene.state(None)


def test_a_photo_that_changes_is_noticed(tmp_path):
    path = made(tmp_path, rows(3))
    scene, raw = load_scene(str(path)), tmp_path / "raw"
    photos, state = listed(path, raw), scene.state(None)
    render = scene.rendering(raw / "prepared", 64, CPU)
    all_photos = pa.table({"photo": list(range(12))})
    assert render(all_photos).shape == (12, 64, 64, 3)
    photo = tmp_path / "photos" / photos["path"][5]
    Image.new("RGB", (70, 70)).save(photo)
    assert scene.state(None) != state
    with refused(f"{photos['path'][5]}: changed since the photos were"):
        render(all_photos)
    with refused("has no embedded sources"):
        scene.make(raw, tmp_path / "other", "embedded")


def test_the_workflow_prepares_it_and_notices_another_photo(tmp_path):
    folder = with_birds(copy_of_the_repository(tmp_path), split={})
    (folder / "mine.yaml").write_text(
        "root: out\nstudies: [birds]\nstudies_from: [birds_studies.yaml]\n"
        f"bindings: [bird-place]\nsamples: 1\nimage_size: 64\ncounts: {COUNTS}\n"
    )
    recipes = ("--configfile", "mine.yaml", "--", "recipes")
    snakemake(folder, *recipes)
    assert pq.read_table(folder / "out/data/recipes/birds/bird-place.parquet").num_rows == 50
    assert "Nothing to be done" in snakemake(folder, "--dry-run", *recipes)
    (folder / "photos/0/000.jpg").write_bytes(b"")
    assert "fetch" in snakemake(folder, "--dry-run", *recipes)


def test_units_are_shared_out_by_their_middles():
    """Of two units as large, for two fifths and three fifths of the images, each split has one."""
    recipes = pd.DataFrame({"split": ["train"] * 4 + ["test"] * 6})
    photos = pd.DataFrame({"split": "", "unit": [*"aaaaaabbbbbb"]})
    assert set(serving_split("own", recipes, photos)) == {"train", "test"}


def test_environments_that_are_only_tested_take_what_is_left():
    assert lots_used("000111", 3, "zzzaaa")[1] == "000111"


def test_a_watermark_of_another_text_is_not_the_papers(tmp_path, monkeypatch):
    monkeypatch.setattr(watermarks, "font_rank", lambda font: (0, 0, 0))
    # Fonts of this rank are not kept for other tests.
    monkeypatch.setattr(f"{Photos.__module__}.find_font", watermarks.find_font.__wrapped__)
    draws = {"points_to": "land", "text": "##"}
    scene = load_scene(str(made(tmp_path, rows(3), watermark=draws)))
    listed(scene.path, tmp_path / "raw")
    assert not scene.catalogue(tmp_path / "raw/prepared").comparable
    alternative = load_scene(str(made(tmp_path, rows(3), watermark={**draws, "text": "%%"})))
    with refused("watermark"):
        alternative.catalogue(tmp_path / "raw/prepared")


def test_a_table_in_another_folder_is_part_of_the_state(tmp_path):
    scene = load_scene(str(made(tmp_path, rows(1), table="../labels.csv")))
    rows(1).to_csv(tmp_path / "labels.csv", index=False)
    before = scene.state(None)
    rows(1).assign(y="1").to_csv(tmp_path / "labels.csv", index=False)
    assert scene.state(None) != before


def rendered(path: Path, raw: Path, size: int) -> np.ndarray:
    """The photo 0/003.png of a definition."""
    photos = listed(path, raw)
    index = pa.table({"photo": photos.index[photos["path"] == "0/003.png"].to_numpy()})
    return load_scene(str(path)).renderer(raw / "prepared", size, CPU)(index)[0].numpy()


@pytest.mark.parametrize("key", ["crop", "upright"])
def test_a_photo_is_cropped_and_turned_unless_it_is_said(tmp_path, key):
    """White on the right, outside the middle square, or on the lower side of a turned camera."""
    exif, wide = Image.Exif(), np.zeros((60, 120, 3), np.uint8)
    exif[0x0112] = 6
    wide[:, 100 if key == "crop" else 60 :] = 255
    for inputs in (True, False):
        folder = tmp_path / str(inputs)
        path = made(folder, rows(1), **{key: inputs})
        photo = Image.fromarray(wide)
        photo.save(folder / "photos/0/003.png", **({"exif": exif} if key == "upright" else {}))
        image = rendered(path, folder / "raw", 64)
        assert (image[:32, -1].mean() > 200) == (not inputs)


def test_with_photos_more_or_less_than_published_nothing_is_comparable(tmp_path):
    for number in (2, 3, 4):
        expected = {"all": {"land-sea": number, "water": 6}}
        path = made(tmp_path / str(number), rows(3), published=expected)
        listed(path, tmp_path / str(number) / "raw")
        prepared = tmp_path / str(number) / "raw/prepared"
        assert load_scene(str(path)).catalogue(prepared).comparable == (number == 3)


def test_a_star_and_a_field_end_at_a_slash(tmp_path, capsys):
    paths = "sea/land_1_2.png", "sea/land/3.png", "sea/land_4/5.png"
    for number, path in enumerate(paths):
        save(tmp_path / path, np.random.default_rng(number).integers(0, 256, (20, 20), np.uint8))
    definition = PhotoSet(
        pattern="{place}/{bird}_*", factors={"bird": ["land", "water"], "place": ["sea", "x"]}
    )
    dataset, all_items = labelled_photos(definition, tmp_path, "birds")
    assert dataset[["path", "bird"]].to_numpy().tolist() == [["sea/land_1_2.png", "land"]]
    assert all_items == 3
    assert "sea/land_4: left out, 1 files: their paths do not fit" in capsys.readouterr().err


@pytest.mark.parametrize("groups", [{"2": 0}, {"-1": 0}, {"one": 0}])
def test_groups_of_classes_that_there_are_not_are_refused(tmp_path, groups):
    write_json(tmp_path / "groups.json", {"0": 1, "1": -1})
    definition = PhotoSet(
        pattern="{bird}/*", factors={"bird": ["gull", "duck"]}, groups="groups.json"
    )
    assert read_groups(definition, tmp_path) == {0: 1}
    write_json(tmp_path / "groups.json", groups)
    with refused("groups.json: must map class indices below 2"):
        read_groups(definition, tmp_path)


def test_groups_that_are_no_longer_named_do_not_stay(tmp_path):
    """Other groups are other sources."""
    digests = set()
    for keys, expected in (
        ({"groups": "groups.json"}, {0: 7}),
        ({"groups": "groups.json"}, {0: 8}),
        ({}, {}),
    ):
        path = made(tmp_path, rows(3), **keys)
        write_json(tmp_path / "photos/groups.json", expected or {"0": 7})
        listed(path, tmp_path / "raw")
        scene = load_scene(str(path))
        assert scene.groups(tmp_path / "raw/prepared") == expected
        digests.add(scene.catalogue(tmp_path / "raw/prepared").digest)
    assert len(digests) == 3


def test_each_image_gets_a_watermark_of_its_own(tmp_path):
    draws = {"points_to": "land", "text": "##"}
    scene = load_scene(str(made(tmp_path, rows(1), watermark=draws)))
    grey = torch.full((4, 64, 64, 3), 90, dtype=torch.uint8)
    display = scene.marked(grey, np.random.default_rng(0))
    assert len({image.numpy().tobytes() for image in display}) == 4 and (grey == 90).all()


def test_an_example_has_all_classes_that_are_asked_for(tmp_path):
    scene = load_scene(str(made(tmp_path, rows(2))))
    listed(scene.path, tmp_path / "raw")
    request = [{"bird": bird, "place": "sea"} for bird in scene.factors["bird"]]
    request += [{"place": "sea", "bird": "water"}, {"place": "nowhere"}]
    display = scene.examples(tmp_path / "raw/prepared", request)[:, 64, 64]
    numbers = rows(2).query("place == 'sea'").index[[0, 2]]
    assert np.abs(display[:2, 0].astype(int) - numbers).max() <= 3
    assert (display[1] == display[2]).all() and (display[3] == 127).all()


SAME = {"splits": ["train", "val", "test"], "group": "all", "cells": {"cue": "same"}}


def as_published(
    rows: list[dict],
    bound: str,
    n_classes: int = 2,
    all_photos: bool | None = True,
    split: str = "",
    metrics: str = "accuracy",
    **keys,
) -> tuple[pd.DataFrame, dict]:
    """The recipes of a study as published of so many classes each of a bird and its place, of which
    there are three, with two photos of each combination; and the class that each cue points to."""
    classes = {"bird": ["duck", "gull", "wren"], "place": ["lake", "sea", "wood"]}
    scene = Photos(
        Path("birds.yaml"), PhotoSet(pattern="{bird}/{place}/*", factors=classes, **keys)
    )
    cells = pd.MultiIndex.from_product([*classes.values(), range(2)], names=[*classes, "n"])
    photos = cells.to_frame(index=False).assign(split=split, unit="", lot="")
    roles = ["target", "cue"]
    bound_roles = roles[: bound.count("-") + 1]
    options = {"roles": dict.fromkeys(roles, n_classes), "bound": bound_roles, "metrics": metrics}
    study = own_study(rows, "birds", **options, as_published=all_photos)
    binding, sample = bind(study, bound, scene.factors), dataset_sample(0, scene)
    catalogue = PhotoCatalogue("official", True, "", photos)
    counts = {"train": 2, "val": 1, "all": 1}
    recipes = draw_recipes(study, binding, [sample], counts, scene, catalogue).to_pandas()
    with_names = dict(zip(study.bound, binding.factors, strict=True))
    calls = recipes.loc[recipes["split"] == "train", [*binding.factors]]
    trained = Counter(map("-".join, calls.to_numpy()))
    return recipes, cue_label_names(study, with_names, sample, scene.factors, trained)


def test_a_study_as_published_has_the_classes_that_its_cues_point_to():
    recipes, pointing = as_published([SAME], "bird-place")
    result = recipes[["place", "bird"]].drop_duplicates().to_numpy().tolist()
    assert dict(result) == pointing["place"] and len(result) == 2
    in_order = {
        split: part["photo"].is_monotonic_increasing for split, part in recipes.groupby("split")
    }
    assert in_order == {"train": False, "val": True, "test": True}


def test_a_photo_is_there_once_though_an_unbound_role_differs():
    recipes, _ = as_published([{**SAME, "cells": [[0, 0], [0, 1], [1, 1]]}], "bird")
    assert recipes.groupby("split").size().to_dict() == dict.fromkeys(["test", "train", "val"], 12)
    assert recipes.groupby("split")["photo"].nunique().eq(12).all()


def test_a_cell_with_an_added_cue_has_its_photos():
    added = [[target, "added"] for target in range(3)]
    recipes, _ = as_published([{**SAME, "cells": added}], "bird-place", 3)
    result = recipes[["bird", "place"]].drop_duplicates().to_numpy().tolist()
    assert sorted(result) == [["duck", "sea"], ["gull", "wood"], ["wren", "lake"]]


def test_photos_have_no_watermark_in_a_study_that_does_not_bind_it():
    watermark = {"points_to": "gull"}
    for all_items in (True, None):
        recipes, _ = as_published([SAME], "bird-place", 2, all_items, watermark=watermark)
        assert set(recipes["watermark"]) == {"absent"}


def test_a_published_split_without_photos_is_named():
    rows = [{**SAME, "splits": splits} for splits in (["train"], ["val", "test"])]
    with refused("study birds: there are no photos of the split val"):
        as_published(rows, "bird-place", split="train")


def test_metrics_that_go_by_weights_are_refused_where_all_photos_are_used():
    misled = {"splits": ["test"], "group": "ood", "cells": {"cue": "other"}}
    rows = [{**SAME, "group": "id"}, misled]
    with refused("as_published: the metrics `average` go by the rows'"):
        as_published(rows, "bird-place", metrics="average")


def test_a_factor_of_ones_own_is_not_taken_for_the_watermark():
    path = {"pattern": "{bird}/{watermark}/*", "watermark": {"points_to": "gull"}}
    factors = {"bird": ["gull", "duck"], "watermark": ["with", "without"]}
    with pytest.raises(ValueError, match="is the factor that the key `watermark` makes"):
        PhotoSet(factors=factors, **path)


def test_photos_are_scaled_to_the_size_of_their_set_first(tmp_path):
    photo = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    path = made(tmp_path, rows(1))
    Image.fromarray(photo).save(tmp_path / "photos/0/003.png")
    assert np.array_equal(rendered(path, tmp_path / "raw", 32), square(square(photo, 64), 32))


def test_a_groups_number_stands_for_its_first_class(tmp_path):
    for number, name in enumerate(("07_x", "gull", "8")):
        save(tmp_path / f"{name}/{number}.png", np.full((20, 20, 3), number, np.uint8))
    write_json(tmp_path / "groups.json", {"1": 7, "2": 7})
    birds = PhotoSet(
        pattern="{bird}/*", factors={"bird": ["gull", "duck", "wren"]}, groups="groups.json"
    )
    photos, _ = labelled_photos(birds, tmp_path, "birds")
    assert photos["bird"].tolist() == ["duck", "gull"]


def test_predictions_name_the_photos(tmp_path, monkeypatch):
    monkeypatch.chdir(with_birds(tmp_path))
    Path("mine.yaml").write_text(
        "root: out\nstudies: [birds]\nstudies_from: [birds_studies.yaml]\nbindings: [bird-place]\n"
        f"samples: 1\nimage_size: 64\nimages: render\ncounts: {COUNTS}\n"
        "baselines: [{name: erm, batch_size: 10}]\n"
        "training: {max_epochs: 1}\ndevice: cpu\nsources: official\n"
    )
    config = load_config("mine.yaml")
    layout = images_here(config, Path("out"))
    runs_here(config, layout)
    (run,) = Path("out").rglob("predictions.parquet")
    predictions = pq.read_table(run).to_pandas()
    labels = rows().set_index("name").loc[predictions["path"]]
    assert len(predictions) == 20 and predictions["path"].is_unique
    assert (labels["place"].to_numpy() == predictions["place"]).all()


def test_photos_as_published_that_a_method_needs_are_counted_once_they_are_prepared(
    tmp_path, monkeypatch
):
    """No waterbird is in a field in the training photos; the rows do not say so."""
    monkeypatch.chdir(tmp_path)
    labels = rows(9)
    absent = labels["y"].eq("1") & labels["place"].eq("field") & labels["split"].eq("train")
    path = made(tmp_path, labels[~absent], split={})
    study = yaml.safe_load(STUDIES)
    study["studies"]["birds"]["as_published"] = True
    Path("studies.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    config = {"root": "birds", "studies": ["birds"], "studies_from": ["studies.yaml"]}
    config |= {"bindings": ["bird-place"], "baselines": ["group_dro"], "image_size": 64}
    Path("config.yaml").write_text(yaml.safe_dump(config))
    layout = Layout(load_config("config.yaml").root)
    scene = load_scene(path.name)
    scene.fetch(layout.raw(path.name), None)
    scene.make(layout.raw(path.name), layout.prepared(path.name), "official")
    says = "group_dro needs train images of every combination .* of the photos water-field has none"
    with refused(says):
        load_config("config.yaml")
    load_config("config.yaml", ["baselines=[erm]"])
