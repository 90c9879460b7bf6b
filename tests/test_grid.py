"""The real benchmark at tiny counts: real MNIST and textures, two baselines, through every stage."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from diagvib.foundation.files import definition_path
from diagvib.settings.config import load_config
from diagvib.settings.grid import runs
from toy import copy_of_the_repository, snakemake

STUDIES = ["zgo", "cgo-2"]
FEWER = [f"studies=[{','.join(STUDIES)}]", "samples=1"]


@pytest.fixture(scope="module")
def root(mirror, tmp_path_factory):
    """`config/ci.yaml` run by Snakemake in a copy of the repository."""
    folder = copy_of_the_repository(tmp_path_factory.mktemp("grid"))
    snakemake(
        folder,
        "--configfile",
        "config/ci.yaml",
        "--config",
        f"mirror={mirror}",
        *FEWER,
        cores=os.cpu_count(),
    )
    return folder / load_config(definition_path("ci.yaml")).root


@pytest.fixture(scope="module")
def images(root) -> pd.DataFrame:
    """The recipe columns of every image of ZGO shape-hue, sample 0."""
    files = (root / "data/images/zgo/shape-hue/0").glob("*.parquet")
    columns = ["split", "group", "shape", "hue", "digit"]
    return pd.concat([pd.read_parquet(file, columns=columns) for file in files])


def test_every_run_is_in_the_tables(root):
    table = pd.read_csv(root / "results/tables/runs.csv")
    assert len(table) == len(runs(load_config(definition_path("ci.yaml"), FEWER)))
    assert set(table["status"]) == {"ok"} and table["comparable"].all()
    assert set(table["baseline"]) == {"small_cnn", "resnet18"} and set(table["study"]) == set(
        STUDIES
    )


def test_no_digit_is_shared_between_splits(root, images):
    digits = pd.read_parquet(
        root / "data/prepared/digits/digits.parquet", columns=["label", "split", "file", "index"]
    )
    assert not digits.duplicated(["file", "index"]).any() and len(digits) == 70_000
    assert (digits.loc[images["digit"], "split"].to_numpy() == images["split"].to_numpy()).all()
    assert (
        digits.loc[images["digit"], "label"].to_numpy() == images["shape"].astype(int).to_numpy()
    ).all()
    used = [set(rows["digit"]) for _, rows in images.groupby("split")]
    assert sum(len(digits) for digits in used) == len(set.union(*used))


def test_zgo_cells(images):
    trained = images.query("group == 'id'").groupby(["shape", "hue"]).size()
    held_out = images.query("group == 'ood'").groupby(["shape", "hue"]).size()
    assert len(trained) == 3 and len(held_out) == 6 and not set(trained.index) & set(held_out.index)


def test_an_image_file_explains_itself(root):
    frame = pd.read_parquet(root / "data/images/cgo-2/shape-hue/0/test.parquet")
    image = np.frombuffer(frame["image"][0], np.uint8).reshape(128, 128, 3)
    assert (image[0, 0] == 127).all() and (image != 127).any()


def test_the_report_names_sources_and_settings(root):
    page = (root / "results/report.html").read_text()
    assert "resnet18" in page and "not comparable" not in page.lower().split("<main")[0]
    noted = json.loads((root / "results/runs/resnet18/zgo/shape-hue/0/run.json").read_text())
    assert (
        noted["settings"]["optimiser"]["lr"] == 2e-4
        and noted["seed"] == 1332
        and noted["versions"]["torch"]
    )


def test_nothing_depends_on_the_mirror_afterwards(root):
    folder = root.parents[1]
    other = ("--configfile", "config/ci.yaml", "--config", "mirror=elsewhere", *FEWER)
    said = snakemake(folder, "-n", *other)
    assert "Nothing to be done" in said
