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
from diagvib.settings.grid import Layout
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


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    root = tmp_path_factory.mktemp("squares")
    (root / "squares.yaml").write_text(CONFIG)
    return images_here(
        load_config(root / "squares.yaml", ["studies=[two-places]", "bindings=[corner-colour]"]),
        root,
    )


def test_two_environments(layout):
    files = ImageFiles(layout.images("two-places", "corner-colour"))
    splits = ("train", "val", "test")
    table = pd.concat([files.load(SAMPLE, split).table.to_pandas() for split in splits])
    drawn = dataset_sample(SAMPLE, SQUARES.factors)
    for factor in ("corner", "colour"):  # indices instead of names
        names = drawn.chosen(factor, 4, SQUARES.factors[factor])
        table[factor] = table[factor].map(names.index)
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
