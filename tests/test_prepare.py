"""The prepared folder: made completely and always the same, read fast, and never trusted when
damaged."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import refused
from diagvib import stages
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256, read_json, read_table, write_json
from diagvib.scenes import load_scene
from diagvib.scenes.digits.digits import prepare_digit, read_mnist
from diagvib.scenes.digits.embedded import embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.prepare import load_catalogue, load_pixels, prepare
from diagvib.scenes.digits.textures import write_texture
from diagvib.scenes.fetch import read_sources
from diagvib.scenes.prepared import is_prepared
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from synthetic_sources import assert_flat, write_definitions, write_sources


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded") / "prepared"
    prepare([], Path("nowhere"), folder, "embedded")
    return folder


@pytest.fixture
def copy(embedded, tmp_path):
    """A separate prepared folder to damage."""
    return Path(shutil.copytree(embedded, tmp_path / "prepared"))


@pytest.fixture
def raw(tmp_path):
    return write_sources(tmp_path / "raw")


def test_embedded_folder_holds_what_the_contract_says(embedded):
    described, catalogue = read_json(embedded / "sources.json"), load_catalogue(embedded)
    origin = catalogue.sources, catalogue.comparable, catalogue.digest
    assert origin == ("embedded", False, described["digest"])
    (digits, textures), table = load_pixels(embedded), read_table(embedded / "digits.parquet")
    assert table.column_names == ["digit", "label", "split", "file", "index"]
    assert digits.shape == (1797, 40, 40) and digits.dtype == np.uint8
    assert catalogue.label.dtype == np.int64 and set(catalogue.label) == set(range(10))
    assert table["digit"][17].as_py() == digits[17].tobytes()
    for texture, name in zip(textures, classes("texture"), strict=True):
        assert (texture == embedded_texture(name)).all()


def test_what_a_killed_job_of_another_machine_left_is_not_prepared(tmp_path):
    layout, job = Layout(tmp_path), stage_settings(load_config(None), "prepare")
    left = layout.prepared("digits") / ".digits.parquet.elsewhere.1.0a.tmp"
    left.parent.mkdir(parents=True)
    left.touch()
    stages.prepare(layout, job.model_copy(update={"sources": "embedded"}), "digits")
    assert left.name not in read_json(left.with_name("sha256.json")) and not left.exists()


def test_no_digit_is_in_two_splits(embedded):
    frame = read_table(embedded / "digits.parquet", ["file", "index", "split", "label"]).to_pandas()
    assert not frame.duplicated(["file", "index"]).any()
    counts = frame.groupby(["label", "split"]).size().unstack()
    assert (counts["train"] / (counts["train"] + counts["val"])).between(0.79, 0.81).all()
    assert (counts["test"] / counts.sum(axis=1)).between(0.19, 0.21).all()


@pytest.fixture
def definitions(raw, tmp_path):
    return read_sources(write_definitions(tmp_path / "sources.yaml", raw))


def test_official_folder(raw, definitions, tmp_path):
    prepare(definitions, raw, tmp_path / "prepared", "official")
    catalogue = load_catalogue(tmp_path / "prepared")
    assert catalogue.comparable and catalogue.sources == "official"
    digits, textures = load_pixels(tmp_path / "prepared")
    assert (digits[0] == prepare_digit(read_mnist(raw / "mnist")[0].images[0])).all()
    for texture in textures:
        assert_flat(texture)


def test_official_without_files_says_fetch(raw, definitions, tmp_path):
    (raw / "textures/wood.png").unlink()
    with refused(r"textures/wood\.png: no such file; run `diagvib fetch` first"):
        prepare(definitions, raw, tmp_path / "prepared", "official")
    assert not (tmp_path / "prepared").exists()


def test_a_file_that_is_not_the_listed_one_is_refused(raw, definitions, tmp_path):
    """Even if it can be read: a different label."""
    path = raw / "mnist/t10k-labels-idx1-ubyte.gz"
    expected = file_sha256(path)
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] = (content[-1] + 1) % 10
    path.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(DiagvibError) as error:
        prepare(definitions, raw, tmp_path / "prepared", "official")
    for part in (str(path), expected, file_sha256(path), "run `diagvib fetch`", "sources.yaml"):
        assert part in str(error.value)
    assert not (tmp_path / "prepared").exists()


def _swap_texture(folder):
    write_texture(folder / "textures/wood.png", embedded_texture("lava"))


def _swap_digits(folder):
    table = read_table(folder / "digits.parquet")
    digits = table["digit"].to_pylist()[::-1]
    pq.write_table(table.set_column(0, "digit", [digits]), folder / "digits.parquet")


def _change_sources(folder):
    path = folder / "sources.json"
    write_json(path, {**read_json(path), "digest": "0" * 64})


@pytest.mark.parametrize("damage", [_swap_texture, _swap_digits, _change_sources])
def test_a_damaged_folder_is_noticed_and_named(copy, damage):
    damage(copy)
    with refused("prepared") as error:
        load_catalogue(copy) if damage is _change_sources else load_pixels(copy)
    assert str(copy) in str(error.value) and "\n" not in str(error.value)


def test_interrupted_preparation_vouches_for_nothing(copy, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("diagvib.scenes.digits.prepare.write_table", fail)
    with pytest.raises(KeyboardInterrupt):
        load_scene("digits").make(Path("nowhere"), copy, "embedded")
    with refused("diagvib prepare"):
        load_pixels(copy)


@pytest.mark.parametrize("column", ["label", "split"])
def test_a_digit_of_another_label_or_split_is_noticed(copy, column):
    path = copy / "digits.parquet"
    table = pq.read_table(path)
    index = table.column_names.index(column)
    turned = table[column].combine_chunks().take(pa.array([*range(len(table))][::-1]))
    pq.write_table(table.set_column(index, table.schema.field(column), turned), path)
    with refused("the prepared digits and textures are not those"):
        load_pixels(copy)


def test_each_digit_names_its_file_and_its_place_there(raw, definitions, tmp_path):
    prepare(definitions, raw, tmp_path / "prepared", "official")
    table = read_table(tmp_path / "prepared/digits.parquet").to_pandas()
    for part in read_mnist(raw / "mnist"):
        rows = table[table["file"] == part.file]
        assert rows["index"].tolist() == [*range(len(part.labels))]
        assert rows["label"].tolist() == part.labels.tolist()


def test_a_folder_that_lacks_a_file_is_not_prepared(copy):
    load_scene("digits").make(Path("nowhere"), copy, "embedded")
    assert is_prepared(copy)
    (copy / "textures/wood.png").unlink()
    assert not is_prepared(copy)
