"""Image files: what is written is what was rendered, complete or absent."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.images import files as images_module
from diagvib.images.files import class_indices, read_images, render_batches, write_images
from diagvib.scenes import load_scene
from diagvib.scenes.digits.prepare import DigitCatalogue
from diagvib.scenes.digits.renderer import Renderer as DigitRenderer
from diagvib.scenes.digits.scene import RecipeRenderer
from diagvib.scenes.scene import Renderer
from diagvib.studies.binding import bind
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.studies.recipes import draw_recipes
from diagvib.studies.study import load_study

DIGITS = load_scene("digits")
SAMPLE = dataset_sample(0, DIGITS.factors, DIGITS.published_samples)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    g = np.random.default_rng(4)
    digits, textures = (
        g.integers(0, 256, shape, dtype=np.uint8) for shape in ((60, 40, 40), (5, 256, 256))
    )
    return RecipeRenderer(DigitRenderer(digits, textures, size=64))


@pytest.fixture(scope="module")
def recipes():
    pool = DigitCatalogue(
        "synthetic", False, "0", np.tile(np.arange(10), 6), np.repeat(["train", "val", "test"], 20)
    )
    study = load_study("zgo")
    counts = {"train": 300, "val": 9, "id": 9, "ood": 9}
    binding = bind(study, "shape-hue", DIGITS.factors)
    return draw_recipes(study, binding, [SAMPLE], counts, DIGITS, pool).slice(0, 300)


def test_read_back_is_what_was_rendered(tmp_path, monkeypatch, renderer, recipes):
    monkeypatch.setattr(images_module, "BATCH", 128)
    path, counted = tmp_path / "train.parquet", []
    write_images(path, recipes, renderer, {"study": "zgo", "scene": "digits"}, counted.append)
    images = read_images(path)
    assert torch.equal(images.pixels, torch.cat(list(render_batches(recipes, renderer))))
    assert images.table.equals(recipes.replace_schema_metadata(images.table.schema.metadata))
    assert images.metadata["image_shape"] == [64, 64, 3] and images.metadata["study"] == "zgo"
    assert sum(counted) == 300
    assert pq.ParquetFile(path).num_row_groups == 3
    assert images.labels("shape").tolist() == [int(s) for s in recipes["shape"].to_pylist()]


def test_no_images(tmp_path, renderer, recipes):
    write_images(tmp_path / "a.parquet", recipes.slice(0, 0), renderer, {})
    assert read_images(tmp_path / "a.parquet").pixels.shape == (0, 64, 64, 3)


def test_threads_do_not_change_what_is_read(tmp_path, monkeypatch, renderer, recipes):
    monkeypatch.setattr(images_module, "BATCH", 64)
    write_images(tmp_path / "a", recipes, renderer, {})
    usual, whole = torch.get_num_threads(), read_images(tmp_path / "a")
    try:
        torch.set_num_threads(3)
        assert torch.equal(read_images(tmp_path / "a").pixels, whole.pixels)
    finally:
        torch.set_num_threads(usual)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_files_are_named(tmp_path, renderer, recipes, damage):
    path = tmp_path / "train.parquet"
    write_images(path, recipes, renderer, {})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    content[100:200] = bytes(100)
    path.write_bytes(content if damage == "flip" else content[:-1000])
    with pytest.raises(
        DiagvibError, match="train.parquet: damaged or not a Parquet file.*delete it and run again"
    ):
        read_images(path)


def test_an_unknown_class_is_named_with_its_row(recipes):
    column = ["red"] * 3 + ["rod"]
    broken = recipes.slice(0, 4).set_column(recipes.schema.get_field_index("hue"), "hue", [column])
    with pytest.raises(DiagvibError, match="row 3: hue has no class 'rod'; known: red"):
        class_indices(broken, "hue", DIGITS.factors["hue"])
