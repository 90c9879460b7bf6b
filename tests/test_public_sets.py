"""The definitions of public photo sets, on small folders in the published layout."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import diagvib
from conftest import REPOSITORY
from diagvib.foundation.files import read_yaml
from diagvib.foundation.validation import validated
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.tables import labelled_photos
from diagvib.settings.config import load_config

# Of each (target, cue) in train, val and test.
COUNTS = [(0, 0, 6), (0, 1, 2), (1, 0, 2), (1, 1, 6)]


def made(folder, name):
    """Photos and tables as in the published folder; returns rows of (split, target, cue)."""
    rows = [
        (split, target, cue)
        for split in range(3)
        for target, cue, n in COUNTS
        for _ in range(n if split == 0 else 3)
    ]
    photos = folder / name / ("img_align_celeba" if name == "celeba" else "001.Bird")
    photos.mkdir(parents=True)
    for number in range(len(rows)):
        pixels = np.random.default_rng(number).integers(0, 256, (24, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number:06d}.jpg")
    files = [f"{number:06d}.jpg" for number in range(len(rows))]
    split, y, cue = map(list, zip(*rows, strict=True))
    if name == "celeba":
        signed = {"Blond_Hair": [2 * v - 1 for v in y], "Male": [2 * v - 1 for v in cue]}
        attributes = pd.DataFrame({"image_id": files, **signed, "Young": 1})
        attributes.sample(frac=1, random_state=0).to_csv(
            folder / name / "list_attr_celeba.csv", index=False
        )
        partition = pd.DataFrame({"image_id": files, "partition": split})
        partition.to_csv(folder / name / "list_eval_partition.csv", index=False)
    else:
        paths = [f"001.Bird/{file}" for file in files]
        table = {"img_id": range(len(rows)), "img_filename": paths, "y": y, "split": split}
        pd.DataFrame({**table, "place": cue, "place_filename": "/forest/1.jpg"}).to_csv(
            folder / name / "metadata.csv", index=False
        )
    return rows


@pytest.mark.parametrize("name", ["waterbirds", "celeba"])
def test_every_photo_is_in_its_published_split_with_its_classes(name, tmp_path, capsys):
    rows = made(tmp_path, name)
    config = load_config(REPOSITORY / f"config/{name}.yaml")
    (study,), (binding,) = config.studies, config.bindings
    definition = read_yaml(REPOSITORY / f"config/{name}/{name}.yaml")
    its = validated(PhotoSet, definition, name)
    target, cue = its.factors
    listed, every = labelled_photos(its, tmp_path / name, name)
    assert every == len(rows) == len(listed)
    splits, classes = ("train", "val", "test"), [*its.classes.values()]
    wanted = [(splits[s], classes[0][t], classes[1][c]) for s, t, c in rows]
    number = listed["path"].str[-10:-4].astype(int)
    found = list(zip(listed["split"], listed[target], listed[cue], strict=True))
    assert found == [wanted[at] for at in number]
    options = {"studies_from": config.studies_from, "mirror": tmp_path, "image_size": 64}
    data = {
        split: diagvib.load(study, binding, split, **options, sources="official")
        for split in ("train", "test")
    }
    assert len(data["train"]) == 16 and len(data["test"]) == 12
    said = capsys.readouterr().err
    if name == "waterbirds":
        assert "train, landbird-water: 2 photos, published 184" in said
        assert not data["train"].comparable
    # Who predicts the cue is right on average as often as in training, and never in the worst cell.
    cues = data["test"].table[cue].to_pandas()
    scores = data["test"].evaluate([classes[1].index(one) for one in cues])
    assert scores["worst_cell"] == 0 and scores["accuracy"] == 0.5
