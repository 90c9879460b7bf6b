"""Image files and recipes rendered on the fly are the same datasets; recipes for other sources are
refused."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from conftest import largest_file, refused
from diagvib import stages
from diagvib.foundation.files import read_metadata, write_table
from diagvib.images import made_from
from diagvib.images.datasets import ImageFiles, RenderedRecipes, study_as_drawn
from diagvib.images.files import class_indices, read_chunks, read_images
from diagvib.provenance.expected import expected_provenance
from diagvib.provenance.finished import differing, digest_of_images
from diagvib.scenes import load_scene
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.preference import cue_label_names
from diagvib.studies.recipes import read_recipes
from diagvib.studies.study import load_study
from synthetic_studies import changed_study
from toy import images_here


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    """A root with embedded sources and the files of ZGO shape-hue."""
    return images_here(configured(), tmp_path_factory.mktemp("root"))


def configured(train: int = 600, size: int = 64, images: str = "parquet"):
    counts = f"counts={{train: {train}, val: 9, id: 9, ood: 9}}"
    names = ("studies=[zgo]", "bindings=[shape-hue]", "baselines=[small_cnn]")
    options = ["sources=embedded", "samples=1", f"image_size={size}", f"images={images}"]
    return load_config(None, [*options, counts, *names])


def rendered(layout: Layout, recipes=None) -> RenderedRecipes:
    return RenderedRecipes(
        recipes or layout.recipes("zgo", "shape-hue"),
        load_scene("digits"),
        layout.prepared("digits"),
        64,
        torch.device("cpu"),
    )


@pytest.mark.parametrize("split", ["train", "test"])
def test_both_ways_give_the_same(layout, split):
    """Also of more images than are rendered at a time."""
    files, on_the_spot = (
        ImageFiles(layout.images("zgo", "shape-hue")).load(0, split),
        rendered(layout).load(0, split),
    )
    assert torch.equal(files.pixels, on_the_spot.pixels)
    assert files.table.to_pydict() == on_the_spot.table.to_pydict()
    assert files.metadata.items() >= on_the_spot.metadata.items()


def test_files_say_what_made_them(layout):
    record = ImageFiles(layout.images("zgo", "shape-hue")).metadata(0, "test")
    assert record["roles"] == {"target": "shape", "cue": "hue"}
    assert (record["study"], record["scene"], record["comparable"]) == ("zgo", "digits", False)
    recipes = read_metadata(layout.recipes("zgo", "shape-hue"))
    assert record["sources_digest"] == recipes["sources_digest"]


def test_a_study_as_drawn_lacks_what_its_file_has_now(layout):
    record = ImageFiles(layout.images("zgo", "shape-hue")).metadata(0, "test")
    now = changed_study("zgo", "zgo", spread={"cue": 0.5})
    assert study_as_drawn(now, record, Path("test.parquet")) == load_study("zgo")


def test_recipes_for_other_sources_are_refused(layout, tmp_path):
    table, record = read_recipes(layout.recipes("zgo", "shape-hue"))
    alternative = tmp_path / "other.parquet"
    write_table(alternative, table, record | {"sources": "official", "sources_digest": "0" * 64})
    with refused(r"other.parquet: drawn for other sources \(official.*draw the recipes"):
        rendered(layout, alternative)


def test_a_file_that_is_not_the_rendered_one_is_refused(layout, tmp_path):
    folder = shutil.copytree(layout.images("zgo", "shape-hue"), tmp_path / "images")
    shutil.copy(folder / "0/val.parquet", folder / "0/train.parquet")
    with refused("0/train.parquet: changed since it was rendered: .*sha256.json"):
        ImageFiles(folder).load(0, "train")


@pytest.mark.parametrize("way", ["parquet", "render"])
def test_a_runs_images_are_known_without_reading_them(layout, way):
    """The same digests from what lies on disk as from the datasets that a training reads."""
    (run,) = expected_provenance(layout, configured(images=way))
    request = run["provenance"]
    images = ImageFiles(layout.images("zgo", "shape-hue"))
    read = images if way == "parquet" else rendered(layout)
    assert request["images"] == {
        split: digest_of_images(read.metadata(0, split)) for split in ("train", "val", "test")
    }
    assert len(set(request["images"].values())) == 3
    for alternative in {"train": 300}, {"size": 96}:
        (run,) = expected_provenance(layout, configured(images=way, **alternative))
        assert differing(request, run["provenance"]) == ["images"]
    metadata = read.metadata(0, "val")
    if way == "render":
        alternatives = {"recipe_digest": "x"}, {"sources_digest": "x"}, {"image_shape": [1, 1, 3]}
        digests = [digest_of_images({**metadata, **alternative}) for alternative in alternatives]
        assert len({digest_of_images(metadata), *digests}) == 4


def test_images_of_a_study_as_it_was_are_not_those_asked_for(layout, tmp_path):
    root = Layout(shutil.copytree(layout.root, tmp_path / "root"))
    assert expected_provenance(root, configured())[0]["provenance"]["images"]
    recipes = root.recipes("zgo", "shape-hue")
    record = read_metadata(recipes)
    definition = {**record["definition"], "spread": {"cue": 0.5}}
    write_table(recipes, pq.read_table(recipes), {**record, "definition": definition})
    assert expected_provenance(root, configured())[0]["provenance"]["images"] == {}


def test_a_missing_sample_is_named(layout):
    with refused(
        "no recipes for dataset sample 4, split val; the file has the samples up to 0",
    ):
        rendered(layout).load(4, "val")


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_files_are_named(layout, tmp_path, damage):
    path = Path(shutil.copy(layout.images("zgo", "shape-hue") / "0/train.parquet", tmp_path))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content if damage == "flip" else content[:-1000])
    message = "train.parquet: damaged or not a Parquet file.*delete it and run again"
    with refused(message):
        read_images(path)


def test_an_unknown_class_is_named_with_its_row(layout):
    recipes, _ = read_recipes(layout.recipes("zgo", "shape-hue"))
    column = pa.array(["red"] * 3 + ["rod"])
    broken = recipes.slice(0, 4).set_column(recipes.schema.get_field_index("hue"), "hue", column)
    with refused("row 3: hue has no class 'rod'; known: red"):
        class_indices(broken, "hue", load_scene("digits").factors["hue"])


def test_chunks_go_on_where_earlier_ones_ended(layout, tmp_path):
    for way in (ImageFiles(layout.images("zgo", "shape-hue")), rendered(layout)):
        pixels = way.load(0, "train").pixels
        for start in (0, 512):
            assert torch.equal(torch.cat([*way.chunks(0, "train", start)]), pixels[start:])
    path = layout.images("zgo", "shape-hue") / "0/train.parquet"
    pq.write_table(pq.read_table(path), tmp_path / "a.parquet")  # one row group
    assert torch.equal(torch.cat([*read_chunks(tmp_path / "a.parquet", 512)]), pixels[512:])


def test_images_of_other_sources_are_other_images():
    record = {"digests": {"0/train": "x"}, "sources_digest": "a"}
    alternatives = {"digests": {"0/train": "y"}}, {"sources_digest": "b"}
    all_items = [made_from(record, 64), made_from(record, 96)]
    all_items += [made_from(record | alternative, 64) for alternative in alternatives]
    assert len({json.dumps(item) for item in all_items}) == 4


def test_digests_do_not_vouch_for_images_of_which_some_are_drawn_anew(layout, tmp_path):
    shutil.copytree(layout.root, tmp_path, dirs_exist_ok=True)
    job = stage_settings(configured(size=128), "render", study="zgo")
    with refused("train.parquet: cannot be written"), largest_file(2**18):
        stages.render(Layout(tmp_path), job, "zgo", "shape-hue", 1)
    assert not Layout(tmp_path).digests("zgo", "shape-hue").exists()


def test_images_without_their_digests_are_not_read(layout, tmp_path):
    """They may be half of those that are asked for."""
    folder = shutil.copytree(layout.images("zgo", "shape-hue"), tmp_path / "images")
    assert len(ImageFiles(folder).together(load_study("zgo"), 0, ["val", "test"])[1].pixels) == 27
    (folder / "sha256.json").unlink()
    with refused("images: its images are being rendered, or are left"):
        ImageFiles(folder).together(load_study("zgo"), 0, ["val"])


def test_each_sample_notes_what_its_own_cue_points_to(layout, tmp_path):
    """The same rows under another number, of other classes."""
    digits, zgo, path = load_scene("digits"), load_study("zgo"), tmp_path / "a.parquet"
    table, record = read_recipes(layout.recipes("zgo", "shape-hue"))
    samples = [dataset_sample(number, digits) for number in (1, 0)]
    record["dataset_samples"] = [item.model_dump(mode="json") for item in samples]
    write_table(path, table, record)
    result = rendered(layout, path).metadata(0, "test")["speaks_for"]
    assert result == cue_label_names(zgo, record["roles"], samples[1], digits.factors, {})
    assert result != cue_label_names(zgo, record["roles"], samples[0], digits.factors, {})
