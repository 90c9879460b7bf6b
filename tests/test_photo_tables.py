"""Tables of photos as people have them: `new photos` reads them, or says what is in the way and how
to mend it."""

import json
import os
import re
import shlex
import shutil
import socket
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import diagvib
from conftest import refused
from diagvib.commands import unpack_photos
from diagvib.commands.new_photos import look, write
from diagvib.commands.photo_columns import Columns
from diagvib.commands.photo_proposal import Proposal, cells_text, with_counter_examples, write_sheet
from diagvib.commands.unpack_photos import unpack
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_yaml
from diagvib.foundation.validation import validated
from diagvib.scenes import load_scene
from diagvib.scenes.photos.decoding import open_photo
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import usable
from diagvib.scenes.photos.locate import locate
from killing import killed_at_each_change
from toy import contents

N = 12  # photos of each combination, four times that in all
SPLITS = np.array(["train", "validation", "test", "train"])


def labels(
    folder: Path, place: str = "images/{split}_{n:03d}.jpg", split: bool = True, n: int = N
) -> pd.DataFrame:
    """A folder with n photos of each bird and place, all different; their table. split: whether it
    has a column of this name."""
    cells = [(bird, ground) for bird in ("gull", "wren") for ground in ("land", "sea")]
    table = pd.DataFrame(cells * n, columns=["bird", "place"])
    splits = SPLITS[np.arange(len(table)) // 4 % 4]
    table.insert(0, "file", [place.format(split=s, n=row) for row, s in enumerate(splits)])
    for number, name in enumerate(table["file"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (16, 18), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return table.assign(split=splits) if split else table


def proposed(folder: Path, table: str | None = None, cues=("place",), **columns) -> Proposal:
    """What is proposed of birds and their place."""
    return look(folder, table, Columns(target="bird", cues=[*cues], **columns), "birds")


def as_json_lines(table: pd.DataFrame) -> str:
    return "".join(json.dumps(row) + "\n" for row in table.to_dict("records"))


def bare(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(file=table["file"].map(os.path.basename))


TABLES = {
    "semicolons.csv": lambda table: table.to_csv(index=False, sep=";"),
    "excel.csv": lambda table: "sep=;\r\n" + table.to_csv(index=False, sep=";"),
    "tabs.tsv": lambda table: table.to_csv(index=False, sep="\t"),
    "lines.jsonl": as_json_lines,
    "list.json": lambda table: table.to_json(orient="records", indent=1),
    "mark.csv": lambda table: "\ufeff" + table.to_csv(index=False),
    "windows.CSV": lambda table: table.to_csv(index=False).replace("\n", "\r\n"),
    "quotes.csv": lambda table: table.to_csv(index=False, quoting=1),
    "twice.csv": lambda table: pd.concat([table, table]).to_csv(index=False),
    "bare.csv": lambda table: bare(table).to_csv(index=False),
    "stems.csv": lambda table: bare(table).replace(r"\.jpg$", "", regex=True).to_csv(index=False),
    "upper.csv": lambda table: table.replace("jpg", "JPG", regex=True).to_csv(index=False),
    "backslashes.csv": lambda table: table.replace("/", r"\\", regex=True).to_csv(index=False),
    "elsewhere.csv": lambda table: table.assign(file="/home/me/birds/" + table["file"]).to_csv(),
    "drive.csv": lambda table: table.assign(
        file="C:\\birds\\" + table["file"].str.replace("/", "\\")
    ).to_csv(index=False),
    "home.csv": lambda table: table.assign(file="~/" + table["file"]).to_csv(index=False),
    "other_place.csv": lambda table: (
        bare(table).assign(file=lambda rows: "/old/photos/" + rows["file"]).to_csv(index=False)
    ),
    "dots.csv": lambda table: table.assign(file="./" + table["file"]).to_csv(index=False),
    "meta/labels.csv": lambda table: table.assign(file="../" + table["file"]).to_csv(index=False),
    "spaces.csv": lambda table: table.assign(place=table["place"] + "\u00a0 ").to_csv(index=False),
}


def test_photos_in_an_archive_are_to_be_unpacked(tmp_path):
    table = labels(tmp_path)
    table.to_csv(tmp_path / "labels.csv", index=False)
    for name in table["file"]:
        (tmp_path / name).unlink()
    (tmp_path / "photos.zip").touch()
    for _ in range(2):
        with refused("no photos in it, but photos.zip; unpack"):
            proposed(tmp_path)
        (tmp_path / "labels.csv").unlink(missing_ok=True)


@pytest.mark.parametrize("name", TABLES)
def test_each_of_these_tables_is_read(tmp_path, name):
    table = labels(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(TABLES[name](table).encode())
    option = name if name.endswith(".json") else None  # which may be something else
    proposal = proposed(tmp_path, option)
    merged = proposal.photos.merge(table, left_on="path", right_on="file", suffixes=("", "_wanted"))
    assert len(merged) == 4 * N
    expected = merged[["bird_wanted", "place_wanted"]].to_numpy()
    assert merged[["bird", "place"]].to_numpy().tolist() == expected.tolist()
    # The files that are written list the same.
    scene = load_scene(str(write(proposal, tmp_path / "out")["scene"]))
    scene.fetch(tmp_path / "raw", None)
    assert pq.read_table(tmp_path / "raw/files.parquet").num_rows == 4 * N


@pytest.mark.parametrize(
    ("name", "write_table"),
    [
        ("metadata.csv", lambda table, path: table.to_csv(path, index=False)),
        ("metadata.jsonl", lambda table, path: path.write_text(as_json_lines(table))),
        ("metadata.parquet", lambda table, path: table.to_parquet(path)),
    ],
)
@pytest.mark.parametrize("above", ["", "data/"])
def test_a_table_in_the_folder_of_each_split(tmp_path, name, write_table, above):
    table = labels(tmp_path, above + "{split}/{n:03d}.png", split=False)
    for folder, rows in table.groupby(table["file"].map(os.path.dirname)):
        write_table(bare(rows).rename(columns={"file": "file_name"}), tmp_path / folder / name)
    proposal = proposed(tmp_path)
    assert proposal.definition["split"]["val"] == "validation"
    assert dict(proposal.photos["split"].value_counts()) == {"train": 24, "val": 12, "test": 12}
    scene = load_scene(str(write(proposal, tmp_path / "out")["scene"]))
    before = scene.state(None)
    write_table(bare(rows).rename(columns={"file": "file_name"})[1:], tmp_path / folder / name)
    assert scene.state(None) != before


def test_one_table_for_each_split_beside_each_other(tmp_path):
    table = labels(tmp_path, split=False)
    split = table["file"].str.extract("(train|validation|test)")[0]
    for name, rows in table.groupby(split):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    with refused(r"such as --table '\*.csv'"):
        proposed(tmp_path)
    proposal = proposed(tmp_path, "*.csv")
    assert dict(proposal.photos["split"].value_counts()) == {"train": 24, "val": 12, "test": 12}


@pytest.mark.parametrize(
    ("record", "file"),
    [
        (True, "data/{}-00000-of-00001"),
        (False, "data/{}-00000-of-00002-f9d1dbd2dfb6a2e3"),
        (True, "default/{}/0000"),
    ],
)
def test_photos_inside_parquet_are_unpacked(tmp_path, record, file):
    table = labels(tmp_path / "files", split=False)
    names = {"info": {"features": {"bird": {"_type": "ClassLabel", "names": ["gull", "wren"]}}}}
    for split, rows in table.groupby(table["file"].str.extract("(train|validation|test)")[0]):
        data = [(tmp_path / "files" / name).read_bytes() for name in rows["file"]]
        images = [{"bytes": item, "path": None} for item in data] if record else data
        content = {
            "image": images,
            "bird": (rows["bird"] == "wren").astype(int),
            "place": rows["place"],
        }
        shard = pa.table(content).replace_schema_metadata({"huggingface": json.dumps(names)})
        path = tmp_path / f"inside/{file.format(split)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(shard, path)
    with refused("the photos are inside the table.*--unpack FOLDER"):
        proposed(tmp_path / "inside")
    unpack(tmp_path / "inside", tmp_path / "out")
    proposal = proposed(tmp_path / "out")
    assert proposal.cells("split").to_dict() == {
        (split, bird, place): 6 if split == "train" else 3
        for split in ("train", "val", "test")
        for bird in ("gull", "wren")
        for place in ("land", "sea")
    }
    with refused("files: has files; name a new folder"):
        unpack(tmp_path / "inside", tmp_path / "files")
    path.write_text("half a file")
    with refused(f"{path}: not a table that can be read"):
        unpack(tmp_path / "inside", tmp_path / "other")


def test_photos_are_unpacked_and_described_whole_whenever_that_is_killed(tmp_path, monkeypatch):
    inside, out, photos = tmp_path / "inside", tmp_path / "out", tmp_path / "out/photos"
    names = labels(tmp_path / "files")
    inside.mkdir()
    table = names.assign(image=[(tmp_path / "files" / name).read_bytes() for name in names["file"]])
    table.drop(columns="file").to_parquet(inside / "train.parquet")

    def describe() -> dict[str, bytes]:
        unpack(inside, photos)
        proposal = look(photos, None, Columns(target="bird", cues=["place"]), "birds")
        write(proposal, out)
        write_sheet(proposal, out / "cells.png")
        return contents(out)

    expected = describe()
    shutil.rmtree(out)
    monkeypatch.setattr(unpack_photos, "_ROWS", 7)
    for _ in killed_at_each_change(lambda: unpack(inside, photos), step=7):
        if (photos / "train").exists() and not (photos / "metadata.csv").exists():
            with refused("photos: not all of its photos were unpacked; run the command with --unp"):
                look(photos, None, Columns(levels=["split"], target="split"))
    for _ in killed_at_each_change(describe):
        pass
    assert contents(out) == expected
    (photos / "metadata.csv").write_text("mine")
    unpack(inside, photos)
    assert (photos / "metadata.csv").read_text() == "mine"
    os.utime(inside / "train.parquet")
    with refused("photos: has files; name a new folder"):
        unpack(inside, photos)


def test_the_last_folders_of_a_path_decide_between_photos_of_one_name():
    photos = ["a/1.png", "b/1.png", "b/2.png", "c/ä.png"]
    assert locate(["/old/a/1.png", "/old/b/1.png"], photos) == {
        "/old/a/1.png": "a/1.png",
        "/old/b/1.png": "b/1.png",
    }
    assert locate(["1.png", "x/2.png", "2"], photos) == {"2": "b/2.png"}
    assert locate([normalize("NFD", "Ä")], photos) == {normalize("NFD", "Ä"): "c/ä.png"}
    both = ["1.png", "images/1.png", "labels/1.png"]
    assert locate(["1.png"], both, ["images", "labels"]) == {"1.png": "images/1.png"}
    assert locate(["1.png"], both, ["", "labels"]) == {"1.png": "1.png"}


def test_the_cause_is_said_once(tmp_path, capsys):
    table = labels(tmp_path)
    table.assign(file="x" + table["file"]).to_csv(tmp_path / "t.csv", index=False)
    with refused(r"no column has names of photos.*file \(ximages/train_0"):
        proposed(tmp_path)
    with refused("of 48 names, such as ximages/train_000.jpg, none is"):
        proposed(tmp_path, file="file")
    table.to_csv(tmp_path / "t.csv", index=False)
    for name in table["file"][:15]:
        (tmp_path / name).unlink()
    proposed(tmp_path)
    lines = [line for line in capsys.readouterr().err.splitlines() if "No such file" in line]
    assert len(lines) == 11 and lines[-1].endswith("left out, 5 more files: No such file")


@pytest.mark.parametrize("column", ["Pleural Effusion", "AP/PA", "group", "split", "größe", "2nd"])
def test_the_name_that_a_message_proposes_for_a_factor_works(tmp_path, column):
    table = labels(tmp_path, split=False, n=60) if column == "split" else labels(tmp_path)
    table.rename(columns={"place": column}).to_csv(tmp_path / "t.csv", index=False)
    with refused("name it yourself, with --cue ") as error:
        proposed(tmp_path, cues=[column])
    (cue,) = shlex.split(str(error.value).rpartition("--cue ")[2])
    proposal = proposed(tmp_path, cues=[cue])
    assert proposal.classes == {"bird": ["gull", "wren"], cue.partition("=")[0]: ["land", "sea"]}
    load_scene(str(write(proposal, tmp_path / "out")["scene"])).fetch(tmp_path / "raw", None)


def test_classes_that_look_the_same_are_one_and_missing_values_none(tmp_path):
    table = labels(tmp_path)
    forms = [normalize("NFC", "wäl der"), normalize("NFD", "wäl\u00a0der "), " wäl  der", "nan"]
    table.loc[table["place"] == "land", "place"] = np.array(forms)[np.arange(2 * N) % 4]
    table["bird"] = table["bird"].map({"gull": 0, "wren": 1})
    table.to_csv(tmp_path / "t.csv", index=False)
    proposal = proposed(tmp_path)
    assert sorted(proposal.classes["place"]) == ["sea", "wäl der"]
    assert proposal.classes["bird"] == ["0", "1"] and len(proposal.photos) == 42
    table["place"] = table["place"].str.strip().replace("sea", normalize("NFD", "Wäl der"))
    table.to_csv(tmp_path / "t.csv", index=False)
    with refused("differ only in case"):
        proposed(tmp_path)


@pytest.mark.parametrize("alternative", ["wa\u0308l der", "wäl\u00a0der", "wäl der ", "Wäl der"])
def test_two_classes_of_a_set_that_look_the_same_are_refused(alternative):
    with refused("differ only in case or spaces, or in how letters are"):
        validated(
            PhotoSet, {"pattern": "{p}/*", "factors": {"p": ["wäl der", alternative]}}, "birds"
        )


def test_folders_without_a_table_need_levels(tmp_path):
    labels(tmp_path, "{split}/{n:03d}.png")
    with refused(r"--levels a \(level 1: test, train, validation\)"):
        proposed(tmp_path)


def test_what_could_be_read_without_end_is_left_out_and_links_are_named(
    tmp_path, capsys, monkeypatch
):
    photos = tmp_path / "photos"
    Image.new("RGB", (20, 20)).save(tmp_path / "outside.png")
    labels(photos, "in/{n:03d}.png")
    (photos / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(photos / "pipe.png")
    server = socket.socket(socket.AF_UNIX)
    (photos / "folder.jpg").mkdir()
    monkeypatch.chdir(photos)
    server.bind("socket.png")
    (photos / "link.png").symlink_to(tmp_path / "outside.png")
    (photos / "inner.png").symlink_to(photos / "in/000.png")
    names = ["zero.png", "pipe.png", "socket.png", "folder.jpg", "link.png", "inner.png"]
    assert [*usable(photos, names)] == ["link.png", "inner.png"]
    output = capsys.readouterr().err
    assert output.count("is a device or a pipe, not a file") == 3 and "Is a directory" in output
    assert f"{photos}: photos that are links to files outside of it: link.png\n" in output
    with refused("is a device or a pipe"):
        open_photo(photos / "zero.png")


def test_the_counts_that_are_offered_for_one_study_alone_can_be_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = labels(tmp_path / "birds", split=False, n=60)
    rare = (table["bird"] == "gull") == (table["place"] == "sea")
    table = table[~rare | (np.arange(len(table)) < 120)]
    table.to_csv(tmp_path / "birds/t.csv", index=False)
    proposal = proposed(tmp_path / "birds")
    paths = write(proposal, Path("out"))
    (study, additions) = re.search(
        r"birds-(\S+) alone could use (\d+):", cells_text(proposal)
    ).groups()
    text = paths["configuration"].read_text()
    counts = read_yaml(paths["configuration"])["counts"]
    single = {
        k: int(v) for k, v in re.findall(r"(\w+): (\d+)", re.search("# counts: (.*)", text)[1])
    }
    assert sum(single.values()) == int(additions) > sum(counts.values())
    options = {"studies_from": [paths["studies"]], "image_size": 64, "counts": single}
    assert len(diagvib.load(f"birds-{study}", "bird-place", "all", **options)) == int(additions)


def test_two_cues_end_in_files_or_in_a_message_about_the_photos(tmp_path):
    """Never in one about a file that is not kept."""
    for trial in range(20, 24):
        generator = np.random.default_rng([1, trial])
        shape = generator.integers(2, 5, 3)
        factors = {name: [*"abcd"][:k] for name, k in zip("xyz", shape, strict=True)}
        cells = generator.integers(0, 60, shape) * (generator.random(shape) > 0.2)
        index = np.repeat(np.arange(cells.size), cells.ravel())
        position = np.unravel_index(index, shape)
        photos = pd.DataFrame(
            {
                name: np.array(factors[name])[source]
                for name, source in zip(factors, position, strict=True)
            }
        ).assign(split="", unit="", path="")
        definition = {"pattern": "{x}/{y}/{z}/*", "factors": factors}
        proposal = Proposal("mine", tmp_path, definition, photos, {}, "")
        try:
            proposal = with_counter_examples(proposal)
        except DiagvibError as error:
            assert "add photos of" in str(error)
        else:
            paths = write(proposal, tmp_path / str(trial))
            assert all(path.exists() for path in paths.values())
