"""Image files and recipes rendered on the fly are the same datasets; recipes for other sources are
refused."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_metadata, write_table
from diagvib.images import made_from
from diagvib.images.datasets import ImageFiles, RenderedRecipes, study_as_drawn
from diagvib.images.files import class_indices, read_chunks, read_images
from diagvib.provenance.expected import expected_provenance
from diagvib.provenance.finished import differing, digest_of_images
from diagvib.scenes import load_scene
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.preference import cue_label_names
from diagvib.studies.recipes import read_recipes
from diagvib.studies.study import load_study, parse_study
from toy import images_here


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    """A root with embedded sources and the files of ZGO shape-hue."""
    return images_here(configured(), tmp_path_factory.mktemp("root"))


def configured(train: int = 600, size: int = 64, images: str = "parquet"):
    counts = f"counts={{train: {train}, val: 9, id: 9, ood: 9}}"
    names = ("studies=[zgo]", "bindings=[shape-hue]", "baselines=[small_cnn]")
    given = ["sources=embedded", "samples=1", f"image_size={size}", f"images={images}"]
    return load_config(None, [*given, counts, *names])


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
    noted = ImageFiles(layout.images("zgo", "shape-hue")).metadata(0, "test")
    assert noted["roles"] == {"target": "shape", "cue": "hue"}
    assert (noted["study"], noted["scene"], noted["comparable"]) == ("zgo", "digits", False)
    recipes = read_metadata(layout.recipes("zgo", "shape-hue"))
    assert noted["sources_digest"] == recipes["sources_digest"]


def test_a_study_as_drawn_lacks_what_its_file_has_now(layout):
    noted = ImageFiles(layout.images("zgo", "shape-hue")).metadata(0, "test")
    zgo = load_study("zgo")
    now = {**zgo.model_dump(exclude={"name"}), "spread": {"cue": 0.5}}
    assert study_as_drawn(parse_study("zgo", now), noted, Path("test.parquet")) == zgo


def test_recipes_for_other_sources_are_refused(layout, tmp_path):
    table, noted = read_recipes(layout.recipes("zgo", "shape-hue"))
    other = tmp_path / "other.parquet"
    write_table(other, table, noted | {"sources": "official", "sources_digest": "0" * 64})
    with pytest.raises(
        DiagvibError, match=r"other.parquet: drawn for other sources \(official.*draw the recipes"
    ):
        rendered(layout, other)


def test_a_file_that_is_not_the_rendered_one_is_refused(layout, tmp_path):
    folder = shutil.copytree(layout.images("zgo", "shape-hue"), tmp_path / "images")
    shutil.copy(folder / "0/val.parquet", folder / "0/train.parquet")
    with pytest.raises(
        DiagvibError, match="0/train.parquet: changed since it was rendered: .*sha256.json"
    ):
        ImageFiles(folder).load(0, "train")


@pytest.mark.parametrize("way", ["parquet", "render"])
def test_a_runs_images_are_known_without_reading_them(layout, way):
    """The same digests from what lies on disk as from the datasets that a training reads."""
    (run,) = expected_provenance(layout, configured(images=way))
    asked = run["provenance"]
    images = ImageFiles(layout.images("zgo", "shape-hue"))
    read = images if way == "parquet" else rendered(layout)
    assert asked["images"] == {
        split: digest_of_images(read.metadata(0, split)) for split in ("train", "val", "test")
    }
    assert len(set(asked["images"].values())) == 3
    for other in {"train": 300}, {"size": 96}:
        (run,) = expected_provenance(layout, configured(images=way, **other))
        assert differing(asked, run["provenance"]) == ["images"]
    metadata = read.metadata(0, "val")
    if way == "render":
        others = {"recipe_digest": "x"}, {"sources_digest": "x"}, {"image_shape": [1, 1, 3]}
        digests = [digest_of_images({**metadata, **other}) for other in others]
        assert len({digest_of_images(metadata), *digests}) == 4


def test_images_of_a_study_as_it_was_are_not_those_asked_for(layout, tmp_path):
    root = Layout(shutil.copytree(layout.root, tmp_path / "root"))
    assert expected_provenance(root, configured())[0]["provenance"]["images"]
    recipes = root.recipes("zgo", "shape-hue")
    noted = read_metadata(recipes)
    definition = {**noted["definition"], "spread": {"cue": 0.5}}
    write_table(recipes, pq.read_table(recipes), {**noted, "definition": definition})
    assert expected_provenance(root, configured())[0]["provenance"]["images"] == {}


def test_a_missing_sample_is_named(layout):
    with pytest.raises(
        DiagvibError,
        match="no recipes for dataset sample 4, split val; the file has the samples up to 0",
    ):
        rendered(layout).load(4, "val")


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_files_are_named(layout, tmp_path, damage):
    path = Path(shutil.copy(layout.images("zgo", "shape-hue") / "0/train.parquet", tmp_path))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content if damage == "flip" else content[:-1000])
    said = "train.parquet: damaged or not a Parquet file.*delete it and run again"
    with pytest.raises(DiagvibError, match=said):
        read_images(path)


def test_an_unknown_class_is_named_with_its_row(layout):
    recipes, _ = read_recipes(layout.recipes("zgo", "shape-hue"))
    column = pa.array(["red"] * 3 + ["rod"])
    broken = recipes.slice(0, 4).set_column(recipes.schema.get_field_index("hue"), "hue", column)
    with pytest.raises(DiagvibError, match="row 3: hue has no class 'rod'; known: red"):
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
    noted = {"digests": {"0/train": "x"}, "sources_digest": "a"}
    others = {"digests": {"0/train": "y"}}, {"sources_digest": "b"}
    every = [made_from(noted, 64), made_from(noted, 96)]
    every += [made_from(noted | other, 64) for other in others]
    assert len({json.dumps(one) for one in every}) == 4


def test_images_without_their_digests_are_not_read(layout, tmp_path):
    """They may be half of those that are asked for."""
    folder = shutil.copytree(layout.images("zgo", "shape-hue"), tmp_path / "images")
    assert len(ImageFiles(folder).together(load_study("zgo"), 0, ["val", "test"])[1].pixels) == 27
    (folder / "sha256.json").unlink()
    with pytest.raises(DiagvibError, match="images: its images are being rendered, or are left"):
        ImageFiles(folder).together(load_study("zgo"), 0, ["val"])


def test_each_sample_notes_what_its_own_cue_points_to(layout, tmp_path):
    """The same rows under another number, of other classes."""
    digits, zgo, path = load_scene("digits"), load_study("zgo"), tmp_path / "a.parquet"
    table, noted = read_recipes(layout.recipes("zgo", "shape-hue"))
    samples = [dataset_sample(number, digits) for number in (1, 0)]
    noted["dataset_samples"] = [one.model_dump(mode="json") for one in samples]
    write_table(path, table, noted)
    found = rendered(layout, path).metadata(0, "test")["cue_label"]
    assert found == cue_label_names(zgo, noted["roles"], samples[1], digits.factors, {})
    assert found != cue_label_names(zgo, noted["roles"], samples[0], digits.factors, {})
