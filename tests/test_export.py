"""Datasets in the Hub's layout: read back by the Hub's own library, with the same pixels and
classes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from diagvib import stages
from diagvib.foundation.errors import DiagvibError
from diagvib.images.files import read_images
from diagvib.operations import export as module
from diagvib.operations.data_card import Exported, write_card
from diagvib.operations.export import export
from diagvib.scenes import load_scene
from diagvib.scenes.digits.scene import Digits
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout, datasets
from diagvib.settings.jobs import stage_settings
from diagvib.studies.study import SPLITS, load_studies

COUNTS = {"train": 30, "val": 12, "id": 9, "ood": 9}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> dict:
    """A configuration whose images have been rendered."""
    root = tmp_path_factory.mktemp("root")
    found = load_config(
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
    layout = Layout(root)
    stages.prepare(layout, stage_settings(found, "prepare"), "digits")
    for study, binding in datasets(found):
        stages.draw(layout, stage_settings(found, "draw", study=study), study, binding)
        stages.render(
            layout, stage_settings(found, "render", study=study), study, binding, "cpu", 1
        )
    return found


@pytest.fixture(scope="module")
def exported(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_GROUP", 10)  # so that a file has several row groups
        return folder, export(config, folder)


@pytest.mark.parametrize("name", ["zgo-shape-hue-1", "zso-shape-0"])
def test_the_hubs_library_reads_the_same_pixels_and_classes(config, exported, name, tmp_path):
    from datasets import load_dataset

    found = load_dataset(str(exported[0]), name, cache_dir=tmp_path)
    study, *binding, sample = name.split("-")
    assert set(found) == {"train", "validation", "test"}
    for split, own in {"train": "train", "validation": "val", "test": "test"}.items():
        images = read_images(
            Layout(Path(config.root)).images(study, "-".join(binding)) / f"{sample}/{own}.parquet"
        )
        assert found[split].num_rows == len(images.table)
        assert np.array_equal(
            np.stack([np.asarray(image) for image in found[split]["image"]]), images.pixels
        )
        assert found[split].features["shape"].names == list(images.factors["shape"])
        assert found[split]["shape"] == images.labels("shape").tolist()
        assert found[split]["group"] == images.table["group"].to_pylist()
        assert found[split]["hue_degrees"] == images.table["hue_degrees"].to_pylist()
        assert not {"sample", "split"} & set(found[split].column_names)


def test_the_card_names_every_dataset(exported):
    folder, made = exported
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert [entry["config_name"] for entry in card["configs"]] == [
        one.name for one in made
    ] and len(made) == 4
    assert all(
        list(folder.glob(files["path"]))
        for entry in card["configs"]
        for files in entry["data_files"]
    )
    for words in (
        "# 222 images",
        "zgo-shape-hue-1 | 30 | 12 | 18",
        "CC-BY-4.0: E. Alpaydin",
        "`hue_degrees`",
        "cannot be compared with a paper's",
    ):
        assert words in text, words


def test_what_is_there_is_kept_and_what_is_not_is_made(config, exported):
    folder, _ = exported
    files = sorted(folder.rglob("*.parquet"))
    before = {path: path.stat().st_mtime_ns for path in files}
    files[0].write_bytes(files[0].read_bytes()[:100])
    export(config, folder)
    assert [path for path in files if path.stat().st_mtime_ns != before[path]] == files[:1]
    assert sorted(folder.rglob("*.parquet")) == files and pd.read_parquet(files[0]).shape[0]


def test_a_configuration_that_makes_no_image_files_is_told_what_to_set(config, tmp_path):
    with pytest.raises(
        DiagvibError, match=r"^images: .*makes no image files; set `images: parquet`"
    ):
        export(config.model_copy(update={"images": "render"}), tmp_path)
    assert not any(tmp_path.iterdir())


def test_images_that_are_not_there_are_named(config, tmp_path):
    with pytest.raises(DiagvibError, match=r"zgo/shape-hue/2/train.parquet: no such file"):
        export(config.model_copy(update={"studies": ["zgo"], "samples": 3}), tmp_path)
    assert not (tmp_path / "README.md").exists()


def test_one_dataset_that_all_seeds_share_is_exported_once(config, tmp_path, monkeypatch):
    """As with photos, of which there is one set."""
    monkeypatch.setattr(Digits, "replicates", "seeds", raising=False)
    assert [made.name for made in export(config, tmp_path)] == ["zso-shape-0", "zgo-shape-hue-0"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"sources": "official"},
            "train.parquet: was made with sources embedded, but the configuration has official",
        ),
        (
            {"image_size": 128},
            "train.parquet: was made with image_size 64, but the configuration has 128",
        ),
    ],
)
def test_a_card_says_nothing_that_is_not_so(config, tmp_path, change, says):
    with pytest.raises(DiagvibError, match=says):
        export(config.model_copy(update=change), tmp_path)
    assert not any(tmp_path.iterdir())


def test_images_that_have_changed_are_not_exported(config, tmp_path):
    folder = Layout(Path(config.root)).images("zgo", "shape-hue")
    other, content = folder / "1/val.parquet", (folder / "0/val.parquet").read_bytes()
    try:
        (folder / "0/val.parquet").write_bytes(other.read_bytes())
        with pytest.raises(
            DiagvibError, match="shape-hue/0/val.parquet: changed since it was rendered"
        ):
            export(config.model_copy(update={"studies": ["zgo"]}), tmp_path)
    finally:
        (folder / "0/val.parquet").write_bytes(content)


def test_another_readme_is_not_lost(config, tmp_path):
    (tmp_path / "README.md").write_text("# Mine")
    with pytest.raises(
        DiagvibError,
        match=r"README.md: is not the data card of an export, and would be overwritten",
    ):
        export(config, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"README.md": "# Mine"}


@pytest.mark.parametrize(
    ("sources", "says", "not_said"),
    [
        (
            "official",
            [
                "made of photos",
                "that has the same photos.",
                "The terms on which the photos were obtained",
            ],
            ["synthetic", "One dataset"],
        ),
        ("embedded", ["images are synthetic", "- synthetic", "One training run"], ["photos."]),
    ],
)
def test_the_card_of_photos_does_not_call_them_synthetic(config, tmp_path, sources, says, not_said):
    name = next(study for study in load_studies() if study.startswith("dogs"))
    card = config.model_copy(update={"studies": [name], "sources": sources})
    exported = Exported(name, "breed-background", 0, dict.fromkeys(SPLITS, 9))
    write_card(tmp_path, card, load_scene("dogs"), [exported])
    text = (tmp_path / "README.md").read_text()
    assert all(words in text for words in says) and not any(words in text for words in not_said), (
        text
    )
