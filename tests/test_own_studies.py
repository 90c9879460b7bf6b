"""A user's own studies and scene, with two cues and with two environments: drawn, rendered and read
back."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from conftest import REPOSITORY
from diagvib.foundation.errors import DiagvibError
from diagvib.images.datasets import ImageFiles
from diagvib.scenes import load_scene
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout, datasets
from diagvib.studies.dataset_sample import dataset_sample
from toy import images_here

FILE = REPOSITORY / "tests" / "square_studies.yaml"
SQUARES = load_scene("squares:Squares")
CONFIG = f"""
root: squares
sources: embedded
studies: [two-cues, two-places]
studies_from: [{FILE}]
bindings: [corner-colour-extent, corner-colour]
samples: 2
counts: {{train: 300, val: 120, common: 30, neither: 24, new: 40}}
image_size: 64
baselines: [small_cnn]
"""
SAMPLE = 1
BINDINGS = {"two-cues": "corner-colour-extent", "two-places": "corner-colour"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    root = tmp_path_factory.mktemp("squares")
    (root / "squares.yaml").write_text(CONFIG)
    return images_here(load_config(root / "squares.yaml"), root)


def frame(layout: Layout, study: str) -> pd.DataFrame:
    files = ImageFiles(layout.images(study, BINDINGS[study]))
    return pd.concat(
        [files.load(SAMPLE, split).table.to_pandas() for split in ("train", "val", "test")]
    )


def in_order(table: pd.DataFrame, **classes: int) -> pd.DataFrame:
    """The table with class indices of the dataset sample instead of names; classes: factor -> their
    number."""
    drawn = dataset_sample(SAMPLE, SQUARES.factors)
    return table.assign(
        **{
            factor: table[factor].map(drawn.chosen(factor, count, SQUARES.factors[factor]).index)
            for factor, count in classes.items()
        }
    )


def test_two_cues(layout):
    table = in_order(frame(layout, "two-cues"), corner=3, colour=3, extent=3)
    assert "environment" not in table
    counts = table.groupby(["split", "group", "corner", "colour", "extent"]).size().to_dict()
    every = [(t, a, b) for t in range(3) for a in range(3) for b in range(3)]
    of_agreement = {(True, True): 64, (True, False): 8, (False, True): 8, (False, False): 1}
    for t, a, b in every:
        assert counts.pop(("train", "seen", t, a, b)) == of_agreement[a == t, b == t]
        tested = {(True, True): ("common", 10), (False, False): ("neither", 2)}.get(
            (a == t, b == t)
        )
        if tested:
            assert counts.pop(("test", tested[0], t, a, b)) == tested[1]
    assert {split for split, *_ in counts} == {"val"} and sum(counts.values()) == 120


def test_two_environments(layout):
    table = in_order(frame(layout, "two-places"), corner=4, colour=4)
    counts = table.groupby(["split", "group", "environment", "corner", "colour"]).size().to_dict()
    validation = {key: counts.pop(key) for key in list(counts) if key[0] == "val"}
    assert counts == {
        **{("train", "seen", "home", c, c): 50 for c in range(4)},
        **{("train", "seen", "abroad", c, (c + 1) % 4): 25 for c in range(4)},
        **{("test", "new", "main", c, (c + 2) % 4): 10 for c in range(4)},
    }
    assert validation == {
        **{("val", "seen", "home", c, c): 20 for c in range(4)},
        **{("val", "seen", "abroad", c, (c + 1) % 4): 10 for c in range(4)},
    }


def test_images_show_what_their_recipe_says(layout):
    images = ImageFiles(layout.images("two-places", "corner-colour")).load(SAMPLE, "test")
    assert images.pixels.shape == (40, 64, 64, 3)
    assert images.labels("corner").tolist() == [
        SQUARES.factors["corner"].index(name) for name in images.table["corner"].to_pylist()
    ]
    for pixels, row in zip(images.pixels, images.table.to_pylist(), strict=True):
        top, left = (
            {"north": 16, "south": 48}[row["corner"][:5]],
            {"west": 16, "east": 48}[row["corner"][6:]],
        )
        bright = pixels[top, left] > 127
        assert (
            bright.tolist()
            == {
                "red": [True, False, False],
                "green": [False, True, False],
                "blue": [False, False, True],
                "white": [True] * 3,
            }[row["colour"]]
        )
        assert (pixels[64 - top, 64 - left] == 127).all()


def test_a_path_of_studies_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(FILE.read_text())
    (tmp_path / "squares-only.yaml").write_text(CONFIG.replace(str(FILE), "mine.yaml"))
    monkeypatch.chdir(tmp_path)
    assert datasets(load_config("squares-only.yaml")) == list(BINDINGS.items())


def test_two_scenes_of_one_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        shutil.copy2(REPOSITORY / "tests/squares.py", f"{name}.py")
        text = FILE.read_text().replace("squares:Squares", f"{name}:Squares")
        Path(f"{name}.yaml").write_text(text.replace("two-", f"{name}-"))
    Path("mine.yaml").write_text(
        CONFIG.replace("[two-cues, two-places]", "[one-cues, two-cues]")
        .replace(f"[{FILE}]", "[one.yaml, two.yaml]")
        .replace("[corner-colour-extent, corner-colour]", "all")
    )
    with pytest.raises(
        DiagvibError,
        match="one-cues and two-cues: their scenes one:Squares and two:Squares would "
        "share the folder Squares; rename one class",
    ):
        load_config(Path("mine.yaml"))
