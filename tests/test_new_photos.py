"""`diagvib new photos`: what it writes can be drawn, and it asks where a guess is not safe."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skimage
from PIL import Image

import diagvib
from conftest import refused
from diagvib.commands.new_photos import look, write
from diagvib.commands.photo_columns import Columns, column_values, split_names
from diagvib.commands.photo_proposal import Proposal, cells_text, write_sheet
from diagvib.foundation.files import read_yaml
from diagvib.scenes import load_scene
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.labels import read_labels
from diagvib.scenes.photos.tables import labelled_photos
from diagvib.settings.resolve import load_config


def photos(folder: Path, cells: dict[tuple[str, str], int], table: str | None = "labels.csv"):
    """A folder with so many photos of each (animal, ground), all different; with a table, or in
    folders `ground/animal`."""
    rows = [cell for cell, n in cells.items() for _ in range(n)]
    result = pd.DataFrame(rows, columns=["animal", "ground"])
    number = np.arange(len(result))
    place = result["ground"] + "/" + result["animal"] if table is None else "photos"
    result["path"] = place + "/" + pd.Series(number).map("{:04d}.png".format)
    for path, colour in zip(result["path"], number, strict=True):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (20, 16), (int(colour) % 256, int(colour) // 256, 90))
        image.save(folder / path)
    if table:
        result.assign(person=number // 4, id=number).to_csv(folder / table, index=False)
    return result


def proposed(folder: Path, name: str | None = None, table: str | None = None) -> Proposal:
    """What is proposed of animals and their ground."""
    return look(folder, table, Columns(target="animal", cues=["ground"]), name)


EVEN = {(animal, ground): 40 for animal in ("bird", "cow") for ground in ("sea", "land")}
THREE = {(animal, ground): 60 for animal in ("bird", "cow", "car") for ground in ("sea", "land")}


@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize(
    "cells",
    [
        EVEN | {("bird", "land"): 90, ("cow", "sea"): 75},  # the cue's classes in another order
        THREE,  # more classes than the cue has
    ],
)
def test_as_many_photos_are_drawn_as_there_are(tmp_path, monkeypatch, cells, unit):
    monkeypatch.chdir(tmp_path)
    cells = {cell: n * (3 if unit else 1) for cell, n in cells.items()}
    photos(tmp_path / "mine", cells)
    columns = Columns(target="animal", cues=["ground"], unit=unit)
    proposal = look(tmp_path / "mine", None, columns)
    assert dict(proposal.cells()) == {cell: cells.get(cell, 0) for cell in proposal.cells().index}
    paths = write(proposal, tmp_path)
    definition = read_yaml(paths["configuration"])
    for study in definition["studies"]:
        options = {key: definition[key] for key in ("counts", "studies_from")}
        data = diagvib.load(study, definition["bindings"][0], "all", image_size=64, **options)
        assert len(data) == sum(definition["counts"].values())
        assert data.table["photo"].to_pandas().is_unique
        table = data.table.to_pandas()
        trained = table[table["split"] == "train"].groupby(["animal", "ground"]).size()
        if study == "mine-no-shortcut":
            assert (
                trained.max() - trained.min() <= 2 and len(trained) == (proposal.cells() > 0).sum()
            )
    agree = table.loc[table["split"] == "train", "group"] == "agree"
    assert agree.mean() == pytest.approx(proposal.agree, abs=0.05)
    assert len(data) / sum(cells.values()) > 0.2
    assert load_config(paths["configuration"]).studies == definition["studies"]


def test_the_cue_agrees_where_photos_say_so_most_often(tmp_path):
    photos(tmp_path, EVEN | {("bird", "land"): 90, ("cow", "sea"): 75})
    proposal = proposed(tmp_path).classes
    assert proposal == {"animal": ["bird", "cow"], "ground": ["land", "sea"]}


def test_a_proposed_shortcut_is_stronger_than_none(tmp_path):
    """Or no study would show what it costs."""
    names = "abcdefghijkl"
    cells = {(name, name.upper()): 30 for name in names} | {("a", "B"): 30, ("c", "D"): 30}
    photos(tmp_path, cells)
    proposal = proposed(tmp_path)
    (_, even, _), (_, agree, _) = proposal.studies()
    assert even == pytest.approx(12 / 14) and agree > even
    photos(tmp_path / "more", {(str(n), f"in {n}"): 3 for n in range(40)} | {("1", "in 2"): 3})
    with refused("in 98 % of the combinations ground gives animal away"):
        proposed(tmp_path / "more")


def test_the_cues_classes_serve_several_of_the_targets_if_it_has_more(tmp_path):
    """Sea, the ground of birds, is also that of cows, the third class."""
    often = {("bird", "sea"), ("car", "land"), ("cow", "sea")}
    cells = {
        (animal, ground): 40 for animal in ("bird", "car", "cow") for ground in ("sea", "land")
    }
    photos(tmp_path, cells | dict.fromkeys(often, 120) | {("cow", "sea"): 130})
    proposal = proposed(tmp_path)
    assert set(proposal.cells()[proposal.agreeing()].index) == often


def test_a_cue_may_be_called_split_and_files_be_written_beyond_a_link(tmp_path, monkeypatch):
    result = photos(tmp_path / "mine", EVEN)
    result.rename(columns={"ground": "split_tail"}).to_csv(
        tmp_path / "mine/labels.csv", index=False
    )
    proposal = look(tmp_path / "mine", None, Columns(target="animal", cues=["split_tail"]))
    assert "split" not in proposal.definition
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real/deep")
    monkeypatch.chdir(tmp_path)
    scene = write(proposal, Path("link/out"))["scene"]
    assert load_scene(str(scene)).folder(None).samefile(tmp_path / "mine")


def test_files_are_named_relative_to_the_file_that_names_them(tmp_path, monkeypatch):
    """So that a folder with all of them can be moved."""
    photos(tmp_path / "mine", EVEN)
    monkeypatch.chdir(tmp_path)
    proposal = proposed(Path("mine"))
    for path in write(proposal, Path("08:15")).values():
        path.write_text(path.read_text().replace(f"{tmp_path}/08:15/", ""))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(tmp_path / "08:15/mine_config.yaml")
    assert config.studies_from == [str(tmp_path / "08:15/mine_studies.yaml")]
    assert config.study("mine-shortcut").scene == str(tmp_path / "08:15/mine.yaml")


def test_a_photo_that_cannot_be_used_does_not_count_for_that(tmp_path):
    result = photos(tmp_path, dict.fromkeys(EVEN, 40))
    outlier = result.query("animal == 'bird' and ground == 'land'")["path"].iloc[0]
    (tmp_path / outlier).write_text("no photo")
    proposal = proposed(tmp_path)
    assert proposal.classes == {"animal": ["bird", "cow"], "ground": ["sea", "land"]}


def test_a_published_split_is_kept(tmp_path, monkeypatch):
    """Every photo once, in its own split; the files say so."""
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "mine", EVEN)
    table = read_labels(tmp_path / "mine/labels.csv", "")
    table["split"] = np.array(["train", "val", "test", "train"])[np.arange(160) % 4]
    table.drop(columns="person").to_csv(tmp_path / "mine/labels.csv", index=False)
    proposal = look(tmp_path / "mine", None, Columns(target="animal"))
    paths = write(proposal, Path())
    definition = read_yaml(paths["configuration"])
    assert definition["studies"] == ["mine-published"] and "counts" not in definition
    options = {"studies_from": definition["studies_from"], "image_size": 64}
    for split, n in (("train", 80), ("val", 40), ("test", 40)):
        data = diagvib.load("mine-published", "animal-ground", split, **options)
        assert len(data) == n and data.table["photo"].to_pandas().is_unique
    assert len(definition["baselines"]) == 2, "also group DRO"


def test_group_dro_is_proposed_only_if_it_can_be_trained(tmp_path, monkeypatch):
    """It needs training images of every combination; there are none of cows at sea."""
    monkeypatch.chdir(tmp_path)
    table = photos(tmp_path / "mine", EVEN)
    train = (np.arange(160) % 2 == 0) & ((table["animal"] != "cow") | (table["ground"] != "sea"))
    table["split"] = np.where(train, "train", np.where(np.arange(160) % 4 < 3, "test", "val"))
    table.to_csv(tmp_path / "mine/labels.csv", index=False)
    proposal = proposed(tmp_path / "mine")
    paths = write(proposal, Path())
    assert len(read_yaml(paths["configuration"])["baselines"]) == 1
    assert "none to train with" not in cells_text(proposal)
    cows = (proposal.photos["animal"] == "cow") & (proposal.photos["split"] == "train")
    proposal.photos = proposal.photos[~cows]
    assert "animal cow: has test photos, but none to train with" in cells_text(proposal)


def test_folders_are_labels_and_the_sheet_shows_a_photo_of_each_cell(tmp_path):
    photos(tmp_path / "mine", EVEN | {("cow", "sea"): 0}, table=None)
    columns = Columns(levels=["ground", "animal"], target="animal")
    proposal = look(tmp_path / "mine", None, columns)
    assert proposal.definition["pattern"] == "{ground}/{animal}/*"
    assert "no photo of: cow, sea" in cells_text(proposal)
    proposal.photos = proposal.photos.replace({"ground": {"sea": "$_^$"}})  # no formula
    proposal.definition["factors"]["ground"] = ["$_^$", "land"]
    write_sheet(proposal, tmp_path / "cells.png")
    picture = np.asarray(Image.open(tmp_path / "cells.png").convert("RGB")).reshape(-1, 3)
    display = proposal.photos.groupby(["animal", "ground"])["path"].first()
    colours = [Image.open(tmp_path / "mine" / path).getpixel((0, 0)) for path in display]
    assert all((picture == colour).all(1).sum() > 500 for colour in colours)
    with refused("lie 2 folders deep, but --levels names 1"):
        look(tmp_path / "mine", None, Columns(levels=["animal"]))
    with refused("--levels names animal twice"):
        look(tmp_path / "mine", None, Columns(levels=["animal", "animal"]))


def test_spaces_around_names_and_after_commas_do_not_count(tmp_path):
    (tmp_path / "t.csv").write_text("path, ground ,\n1.png, sea,\n")
    pd.DataFrame({"path": ["1.png"], " ground": ["sea"]}).to_parquet(tmp_path / "t.parquet")
    table = read_labels(tmp_path / "t.csv", "")
    assert table.to_dict("list") == {"path": ["1.png"], "ground": ["sea"], "column_3": [""]}
    assert [*read_labels(tmp_path / "t.parquet", "")] == ["path", "ground"]


def test_a_missing_number_leaves_the_others_whole(tmp_path):
    pd.DataFrame({"y": [10, None]}).astype("Int64").to_parquet(tmp_path / "t.parquet")
    assert read_labels(tmp_path / "t.parquet", "")["y"].to_list() == ["10", ""]


def test_it_asks_where_a_guess_is_not_safe(tmp_path):
    photos(tmp_path, EVEN)
    for inputs, message in (
        (
            {},
            r"--target; columns with 2 to 50 values: animal \(2 values\), ground \(2 values\), pers",
        ),
        ({"target": "animal"}, r"--cue; columns with 2 to 50 values: ground \(2 values\), person"),
        ({"target": "id", "cues": ["ground"]}, "id has 160 values, but a factor has 2 to 50"),
        ({"target": "animal", "split": "ground"}, "ground has the values .*; a split names train"),
        ({"target": "animal", "cues": ["ground"], "file": "where"}, "unknown column 'where'"),
    ):
        with refused(message):
            look(tmp_path, None, Columns(**inputs))
    (tmp_path / "other.csv").write_text("a,b\n")
    with refused(r"has the tables labels.csv, other.csv; choose one"):
        look(tmp_path, None, Columns())
    proposed(tmp_path, table="labels.csv")
    for text, message in (
        (b"animal;ground;path\n", "has no rows"),
        (
            b"animal,path\ncow,1.png\n",
            "such as photos/0000.png; name it with --file.*: animal .cow., path .1.png",
        ),
        (
            b"animal,ground,path\nbird,s,photos/0000.png\nBird,t,photos/0001.png\n",
            "case or spaces",
        ),
        (
            "animal,größe,path\nx,a,photos/0000.png\ny,b,photos/0001.png\n".encode(),
            "'größe' cannot",
        ),
        ("tier\nk\xe4fer\n".encode("utf-16"), "use Parquet, or CSV with commas in UTF-8"),
    ):
        (tmp_path / "other.csv").write_bytes(text)
        with refused(message):
            look(tmp_path, "other.csv", Columns(target="animal"))
    equals = tmp_path / "alike"
    photos(equals, {("bird", "sea"): 30, ("cow", "land"): 30})
    with refused("each animal has its own ground, so nothing tells"):
        proposed(equals)


@pytest.mark.parametrize(
    ("column", "values", "with_names"),
    [
        ("split", ["train", "val", "test", "test"], True),
        ("split", ["train", "val", "test", "train"], False),
        ("unit", ["a", "b", "c", "a"], False),
    ],
)
def test_photos_that_look_alike_are_named_unless_they_share_a_split(
    tmp_path, capsys, column, values, with_names
):
    """The last photo is the first one, smaller and lighter."""
    source = Path(skimage.__file__).parent / "data"
    text = [Image.open(source / f"{name}.png") for name in ("chelsea", "coffee", "astronaut")]
    text.append(text[0].resize((150, 100)).point(lambda value: min(255, int(value * 1.2))))
    for number, image in enumerate(text):
        image.save(tmp_path / f"{number}.png")
    table = {"file": [f"{n}.png" for n in range(4)], "kind": list("abab"), "column": values}
    pd.DataFrame(table).to_csv(tmp_path / "t.csv")
    options = {"split": {"column": "column"}, "unit": "column"}
    definition = PhotoSet(table="t.csv", factors={"kind": ["a", "b"]}, **{column: options[column]})
    labelled_photos(definition, tmp_path, "mine")
    output = capsys.readouterr().err
    assert ("0.png: looks like 3.png" in output) == with_names
    assert ("different splits: 1;" in output) == with_names


def test_none_of_the_three_files_is_overwritten(tmp_path):
    photos(tmp_path, EVEN)
    proposal = proposed(tmp_path, "mine")
    paths = write(proposal, tmp_path)
    for path in paths.values():
        for alternative in {*paths.values()} - {path}:
            alternative.unlink(missing_ok=True)
        path.write_text("mine")
        with refused(f"{path.name}: already exists"):
            write(proposal, tmp_path)
        assert path.read_text() == "mine"


def test_a_published_split_is_found_beside_an_empty_column_but_not_guessed(tmp_path):
    photos(tmp_path, EVEN)
    table = pd.read_csv(tmp_path / "labels.csv")
    with_names = np.array(["train", "val", "test", "train"])[np.arange(len(table)) % 4]
    table.assign(split=with_names, notes="").to_csv(tmp_path / "labels.csv", index=False)
    assert proposed(tmp_path).definition["split"]["column"] == "split"
    table.assign(split=with_names, split_id=with_names).to_csv(tmp_path / "labels.csv", index=False)
    with refused("split, split_id could each be the published split"):
        proposed(tmp_path)


def test_numbers_stand_for_splits_as_in_wilds_and_are_sorted_by_size():
    assert split_names(pd.Series(["2", "0", "1"])) == {"train": "0", "val": "1", "test": "2"}
    assert split_names(pd.Series(["train", "dev", "testing"])) == {
        "train": "train",
        "val": "dev",
        "test": "testing",
    }
    assert (
        split_names(pd.Series(["0", "1"])) == split_names(pd.Series(["val", "dev", "0", "2"])) == {}
    )
    assert column_values(pd.Series(["10", "9", "", "b", "a", "9"])) == ["a", "b", "9", "10"]
