"""Datasets in the Hub's layout: read back by the Hub's own library, with the same pixels and
classes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from PIL import Image

from conftest import REPOSITORY, largest_file, refused
from diagvib.commands import export as module
from diagvib.commands.data_card import Exported, write_card
from diagvib.commands.export import export
from diagvib.commands.pngs import write_pngs
from diagvib.foundation.files import file_sha256, read_json
from diagvib.images.files import read_images
from diagvib.results.reader_tables import in_order
from diagvib.scenes import load_scene
from diagvib.scenes.digits.scene import Digits
from diagvib.settings.keys import Configuration
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.studies.study import SPLITS, load_study
from killing import killed_at_each_change
from synthetic_studies import changed_study
from test_photo_sets import COUNTS as PHOTO_COUNTS
from test_photo_sets import with_birds
from toy import contents, images_here

COUNTS = {"train": 30, "val": 12, "id": 9, "ood": 9}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> dict:
    """A configuration whose images have been rendered."""
    root = tmp_path_factory.mktemp("root")
    config = load_config(
        overrides=[
            "sources=embedded",
            "studies=[zso, zgo]",
            "bindings=[shape-hue]",
            "samples=2",
            "image_size=64",
            f"counts={json.dumps(COUNTS)}",
            "baselines=[small_cnn]",
            "tuning={study: zso, factors: [shape], samples: [0]}",
            f"root={root}",
        ]
    )
    images_here(config, root)
    return config


@pytest.fixture(scope="module")
def images(config) -> Path:
    """The folder with those of ZGO's two samples."""
    return Layout(Path(config.root)).images("zgo", "shape-hue")


@pytest.fixture(scope="module")
def exported(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_PER_GROUP", 10)  # so that a file has several row groups
        return folder, export(config, folder, png=True)


@pytest.mark.integration
def test_the_hubs_library_reads_the_same_pixels_and_classes(images, exported, tmp_path):
    from datasets import load_dataset

    dataset = load_dataset(str(exported[0]), "zgo-shape-hue-1", cache_dir=tmp_path)
    for split, part in {"train": "train", "validation": "val", "test": "test"}.items():
        rendered, hub = read_images(images / f"1/{part}.parquet"), dataset[split]
        pixels = np.stack([np.asarray(image) for image in hub["image"]])
        assert np.array_equal(pixels, rendered.pixels)
        assert hub.features["shape"].names == list(rendered.factors["shape"])
        assert hub["shape"] == rendered.labels("shape").tolist()
        for column in ("group", "hue_degrees"):
            assert hub[column] == rendered.table[column].to_pylist()
        assert not {"sample", "split"} & set(hub.column_names)


def test_the_card_names_every_dataset(exported):
    folder, output = exported
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    configs = yaml.safe_load(front)["configs"]
    assert [entry["config_name"] for entry in configs] == [item.name for item in output]
    assert len(output) == 4
    for files in (files for entry in configs for files in entry["data_files"]):
        assert (folder / files["path"]).is_file()
    assert "# 222 images" in text and "zgo-shape-hue-1 | 30 | 12 | 18" in text
    assert "CC-BY-4.0: E. Alpaydin" in text and "cannot be compared with a paper's" in text


@pytest.mark.integration
def test_croissant_has_the_same_pixels_and_what_the_card_says(images, exported):
    import mlcroissant

    folder, output = exported
    result = mlcroissant.Dataset(folder / "croissant.json")
    assert not result.metadata.ctx.issues.errors
    assert len(result.metadata.record_sets) == len(output) * len(SPLITS)
    rendered = read_images(images / "1/test.parquet")
    rows = [*result.records("zgo-shape-hue-1/test")]
    pixels = np.stack([np.asarray(row["zgo-shape-hue-1/test/image"]) for row in rows])
    assert np.array_equal(pixels, rendered.pixels)
    assert [row["zgo-shape-hue-1/test/shape"] for row in rows] == rendered.labels("shape").tolist()
    card = " ".join((folder / "README.md").read_text().split())
    description = result.metadata
    for fact in [
        description.data_collection,
        *description.data_biases,
        *description.data_limitations,
    ]:
        assert len(fact) > 60 and fact in card
    assert (
        description.license == ["Apache-2.0", "CC-BY-4.0"] and "E. Alpaydin" in description.cite_as
    )


def test_png_files_are_photos_of_the_same_classes_and_splits(images, exported, tmp_path):
    folder = exported[0] / "zgo/shape-hue/1/png"
    scene = load_scene(str(folder / "photos.yaml"))
    scene.fetch(tmp_path / "raw", None)
    scene.make(tmp_path / "raw", tmp_path / "prepared", "official")
    photos = scene.catalogue(tmp_path / "prepared").photos.set_index("path")
    table = pd.read_csv(folder / "metadata.csv").set_index("img_filename")
    parts = {split: read_images(images / f"1/{split}.parquet") for split in SPLITS}
    names = pa.concat_tables([part.table for part in parts.values()]).to_pandas()
    folder_ = {factor: in_order(names[factor], scene.factors[factor]) for factor in scene.factors}
    for number, (split, part) in enumerate(parts.items()):
        paths = [f"{split}/{n:06}.png" for n in range(len(part.pixels))]
        assert list(photos.index[photos["split"] == split]) == paths
        assert (table.loc[paths, "split"] == number).all()
        for column, factor in {"y": "shape", "place": "hue"}.items():
            numbers = {name: position for position, name in enumerate(folder_[factor])}
            assert table.loc[paths, column].tolist() == [
                numbers[name] for name in part.table[factor].to_pylist()
            ]
        for factor in scene.factors:
            assert photos.loc[paths, factor].tolist() == part.table[factor].to_pylist()
        last = np.asarray(Image.open(folder / paths[-1]))
        assert np.array_equal(last, part.pixels[-1])


@pytest.mark.integration
def test_the_hubs_imagefolder_reads_the_png_files_labels(exported, tmp_path):
    from datasets import load_dataset

    folder = exported[0] / "zgo/shape-hue/1/png"
    dataset = load_dataset("imagefolder", data_dir=str(folder), cache_dir=tmp_path)
    table = pd.read_csv(folder / "metadata.csv")
    assert {*dataset} == {"train", "validation", "test"}
    for number, split in enumerate(("train", "validation", "test")):
        rows = table[table["split"] == number]
        for column in ("y", "place", "shape", "hue_degrees"):
            assert dataset[split][column] == rows[column].tolist()
        last = np.asarray(Image.open(folder / rows["file_name"].iloc[-1]))
        assert np.array_equal(np.asarray(dataset[split][-1]["image"]), last)


@pytest.mark.integration
def test_wilds_reads_the_png_files_as_waterbirds(exported, tmp_path):
    from wilds.datasets.waterbirds_dataset import WaterbirdsDataset

    folder = shutil.copytree(exported[0] / "zgo/shape-hue/1/png", tmp_path / "waterbirds_v1.0")
    (folder / "RELEASE_v1.0.txt").touch()  # or the loader wants to download
    table = pd.read_csv(folder / "metadata.csv")
    result = WaterbirdsDataset(root_dir=str(tmp_path))
    assert result.y_array.tolist() == table["y"].tolist()
    assert result.metadata_array[:, 0].tolist() == table["place"].tolist()
    image, _, _ = result.get_subset("val")[0]
    file_name = table[table["split"] == 1].iloc[0]["file_name"]
    assert np.array_equal(np.asarray(image), np.asarray(Image.open(folder / file_name)))


def test_classes_of_the_png_table_are_numbered_without_gaps(exported, tmp_path):
    """As SubpopBench's converter of Waterbirds counts them: group = y * len(set(place)) + place."""
    folder, datasets = exported
    for item in datasets:
        table = pd.read_csv(folder / item.folder / "png/metadata.csv")
        for column in ("img_id", "y", "place", *Digits.factors):
            assert {*table[column]} == {*range(table[column].nunique())}, (item.name, column)
        assert (table["place"].nunique() > 1) == (item.study == "zgo")
    two = Exported("zgo", "shape-hue-lightness", 0, dict.fromkeys(SPLITS, 9))
    shutil.copytree(folder / datasets[-1].folder, tmp_path / two.folder)
    write_pngs(tmp_path, two, Digits(), 64, [])
    table = pd.read_csv(tmp_path / two.folder / "png/metadata.csv")
    pairs = table.groupby("place")[["hue", "lightness"]].nunique()
    assert (pairs == 1).all().all() and len(pairs) > table["hue"].nunique()


def copy_changed(folder, copy, dataset, change) -> None:
    """Copy a dataset of an export to another folder, with its tables changed."""
    (copy / dataset.folder).mkdir(parents=True)
    for split in SPLITS:
        path = f"{dataset.folder}/{split}.parquet"
        change(pd.read_parquet(folder / path)).to_parquet(copy / path)


def test_a_factor_that_no_image_varies_is_none_of_the_photos(exported, tmp_path):
    """As a watermark that is absent from all of them."""
    folder, datasets = exported
    copy_changed(folder, tmp_path, datasets[-1], lambda table: table.assign(texture=2))
    write_pngs(tmp_path, datasets[-1], Digits(), 64, [])
    photos = load_scene(str(tmp_path / datasets[-1].folder / "png/photos.yaml"))
    assert {*photos.factors} == {*Digits.factors} - {"texture"}


def test_what_is_there_is_kept_and_what_is_not_is_made(config, exported):
    folder, _ = exported
    files = sorted(folder.rglob("*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in files}
    files[0].write_bytes(files[0].read_bytes()[:100])
    export(config, folder)
    assert [path for path in files if path.stat().st_mtime_ns != before[path]] == files[:1]
    assert sorted(folder.rglob("*.parquet")) == files and pd.read_parquet(files[0]).shape[0]


def test_a_picture_that_cannot_be_written_is_not_taken_for_a_damaged_file(
    config, exported, tmp_path
):
    folder = shutil.copytree(exported[0], tmp_path / "out")
    with (
        refused(r"png\.new\.tmp/train/000000\.png: cannot be written \(File too large\)"),
        largest_file(2**8),
    ):
        export(config, folder, png=True)


def turn_hues(monkeypatch) -> None:
    turned = tuple(reversed(Digits.factors["hue"]))
    monkeypatch.setattr(Digits, "factors", Digits.factors | {"hue": turned})


def test_classes_in_another_order_are_exported_again(config, exported, tmp_path, monkeypatch):
    """Image files hold names, exported ones numbers."""
    folder, datasets = exported
    shutil.copytree(folder, tmp_path / "out")
    turn_hues(monkeypatch)
    export(config, tmp_path / "out")
    path = f"{datasets[0].folder}/test.parquet"
    before, after = (pd.read_parquet(base / path)["hue"] for base in (folder, tmp_path / "out"))
    assert (after == len(Digits.factors["hue"]) - 1 - before).all()


DOGS = "dogs-o2o-easy", "breed-background"


def card_of(folder, config, scene, study, binding, **changed) -> str:
    """The card of one dataset of a study. changed: in the configuration."""
    single = config.model_copy(update={"studies": [study], **changed})
    write_card(folder, single, scene, [Exported(study, binding, 0, dict.fromkeys(SPLITS, 9))])
    return (folder / "README.md").read_text()


def test_one_dataset_that_all_seeds_share_is_exported_once(config, tmp_path, monkeypatch):
    """As with photos, of which there is one set."""
    monkeypatch.setattr(Digits, "replicates", "seeds", raising=False)
    assert [outputs.name for outputs in export(config, tmp_path)] == [
        "zso-shape-0",
        "zgo-shape-hue-0",
    ]
    card = card_of(tmp_path, config, Digits(), "zso", "shape", sources="official")
    assert "From photos of whoever made this dataset." in card and "official" not in card


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": "render"}, "images: .*makes no image files; set `images: parquet`"),
        ({"studies": ["zgo"], "samples": 3}, "zgo/shape-hue/2/train.parquet: no such file"),
        ({"sources": "official"}, "was made with sources embedded, but the configuration has off"),
        ({"image_size": 96}, "was made with image_size 64, but the configuration has 96"),
    ],
)
def test_a_card_says_nothing_that_is_not_so(config, tmp_path, change, says):
    with refused(says):
        export(config.model_copy(update=change), tmp_path)
    assert not (tmp_path / "README.md").exists()


def test_images_that_have_changed_are_not_exported(config, images, tmp_path):
    path, alternative = (images / f"{number}/val.parquet" for number in (0, 1))
    content = path.read_bytes()
    try:
        path.write_bytes(alternative.read_bytes())
        with refused("hue/0/val.parquet: changed since it was rendered"):
            export(config.model_copy(update={"studies": ["zgo"]}), tmp_path)
    finally:
        path.write_bytes(content)


def test_another_readme_is_not_lost(config, tmp_path):
    (tmp_path / "README.md").write_text("# Mine")
    with refused(r"README.md: is not the data card of an export"):
        export(config, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"README.md": "# Mine"}


def test_the_card_of_photos_does_not_call_them_synthetic(config, tmp_path):
    text = card_of(tmp_path, config, load_scene("dogs"), *DOGS, sources="official")
    assert "images are made of photos, and share" in text and "synthetic" not in text


def test_a_bar_in_a_meaning_or_a_class_ends_no_cell_of_the_cards_tables(
    config, tmp_path, monkeypatch
):
    barred = load_study("zgo").model_copy(update={"meaning": "hue | shape"})
    monkeypatch.setattr(Configuration, "study", lambda *_: barred)
    monkeypatch.setattr(Digits, "factors", {**Digits.factors, "hue": ("a|b", "c")})
    text = card_of(tmp_path, config, Digits(), "zgo", "shape-hue")
    assert r"| zgo | hue \| shape | shortcut |" in text and r"| hue | a\|b, c |" in text


def test_texts_of_a_scene_and_a_study_end_no_line_of_the_card_and_are_no_html(
    config, tmp_path, monkeypatch
):
    texts = {"title": "a\n\n# b", "meaning": "c\n\n# <b>d</b>"}
    study = changed_study("zgo", "zgo", **texts)
    assert study.title == "a # b"
    monkeypatch.setattr(Configuration, "study", lambda *_: study)
    licences = [("X\n\n# Y", "<script>e</script>\n- f")]
    monkeypatch.setattr(Digits, "licences", lambda *_: licences)
    text = card_of(tmp_path, config, Digits(), "zgo", "shape-hue")
    assert "| zgo | c # &#60;b>d&#60;/b> |" in text
    assert "- X  # Y: &#60;script>e&#60;/script> - f" in text.splitlines()


def test_png_files_have_their_size_and_the_licences_of_all_sources(exported):
    content = yaml.safe_load((exported[0] / "zgo/shape-hue/1/png/photos.yaml").read_text())
    assert (content["size"], content["licence"]) == (64, "CC-BY-4.0 AND Apache-2.0")
    assert "E. Alpaydin" in content["citation"] and "textures computed" in content["citation"]


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (
            {"train": 33},
            "0/train.parquet: has 30 images, but the configuration has counts.train: 33",
        ),
        ({"id": 18}, "0/test.parquet: has 9 images of the group id, but .* has counts.id: 18; run"),
    ],
)
def test_more_or_fewer_images_than_configured_are_not_exported(config, tmp_path, counts, says):
    with refused(says):
        export(config.model_copy(update={"counts": {**COUNTS, **counts}}), tmp_path)


def test_croissant_has_the_hash_of_every_file(exported):
    content = read_json(exported[0] / "croissant.json")
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert content["datePublished"] == citation["date-released"]
    content = content["distribution"]
    assert len(content) == 12
    for item in content:
        assert item["sha256"] == file_sha256(exported[0] / item["contentUrl"])


def test_the_card_of_stand_ins_for_photos_says_so(config, tmp_path):
    text = card_of(tmp_path, config, load_scene("dogs"), *DOGS)
    assert "synthetic" in text and "images are made of photos" not in text


def test_photos_of_which_some_are_left_out_are_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(with_birds(tmp_path))
    (tmp_path / "photos/0/000.jpg").write_bytes(b"")
    config = load_config(
        overrides=[
            "studies=[birds]",
            "studies_from=[birds_studies.yaml]",
            "bindings=[bird-place]",
            "samples=1",
            "tuning.samples=[0]",
            "image_size=64",
            f"counts={json.dumps(PHOTO_COUNTS)}",
            "baselines=[small_cnn]",
            "root=root",
        ]
    )
    images_here(config, Path("root"))
    (single,) = export(config, Path("out"))
    assert single.images == {"train": 20, "val": 10, "test": 20}


def test_no_column_of_a_scene_replaces_the_targets_class(exported, tmp_path):
    folder, datasets = exported
    columns = {"hue_degrees": "y"}
    copy_changed(folder, tmp_path, datasets[0], lambda table: table.rename(columns=columns))
    with refused("metadata.csv has a column y of its own"):
        write_pngs(tmp_path, datasets[0], Digits(), 64, [])


def test_a_killed_export_leaves_nothing_that_describes_or_shows_other_images(
    config, exported, tmp_path, monkeypatch
):
    single = config.model_copy(update={"studies": ["zgo"], "samples": 1})
    out, expected, dataset = tmp_path / "out", tmp_path / "expected", "zgo/shape-hue/0"
    export(single, out, png=True)
    (out / dataset / "png/train/999999.png").write_bytes(b"of an earlier export")
    turn_hues(monkeypatch)
    export(single, expected, png=True)
    before, after = contents(out), contents(expected)

    def part(files: dict[str, bytes], name: str) -> dict[str, bytes]:
        return {path: content for path, content in files.items() if name in path}

    for _ in killed_at_each_change(lambda: export(single, out, png=True), step=9):
        now = {path: content for path, content in contents(out).items() if ".tmp" not in path}
        parquet = part(now, ".parquet").items()
        for name in ("/png/", "README.md", "croissant.json"):
            written = part(now, name)
            states = [written == part(of, name) and parquet <= of.items() for of in (before, after)]
            assert any(states) or not written
    assert contents(out) == after
