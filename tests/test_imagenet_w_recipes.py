"""Recipes of Tables 1 and 6 of ImageNet-W: every row, and files in the published layout."""

from argparse import Namespace

import pandas as pd
import pytest
import timm
import torch
import torchvision

from conftest import MIRROR, refused
from diagvib.foundation.files import definition_path, file_sha256
from diagvib.models.registry import make_network
from diagvib.papers.imagenet_w.published import UNTRAINED, paper_number
from diagvib.settings.baselines import complete, load_settings
from diagvib.settings.resolve import load_config

FILES = [definition_path(f"imagenet_w/{name}.yaml") for name in ("baselines", "foundation_models")]
TABLES = load_config(definition_path("tables/imagenet_w_1_6.yaml"))


def published(name: str, **model) -> dict:
    settings = load_settings(name, FILES)
    return {**settings, "model": {**settings["model"], **model}}


def test_every_row_has_a_recipe():
    names = [baseline.name for baseline in TABLES.baselines]
    assert len(names) == 27 and len(set(names)) == 27  # 19 rows, and of 18 others 10 that are new
    recipes = [published(name) for name in names]
    assert all(recipe["model"]["head"] == "published" for recipe in recipes)
    keys = {(r["model"]["name"], str(r["model"]["weights"])) for r in recipes}
    assert len(keys) == 27
    # Numbers of the paper are beside those alone whose weights are theirs for certain.
    row = {"method": UNTRAINED, "metric": "in1k_accuracy"}
    numbers = {
        name: paper_number({**row, "baseline": name}, None, published(name)) for name in names
    }
    with_numbers = {name for name, number in numbers.items() if number}
    files = {name for name in names if isinstance(published(name)["model"]["weights"], dict)}
    assert with_numbers == {*names} - files | {"sin_resnet50"}
    assert numbers["clip_vit_l_14_openai"]["paper"] == pytest.approx(0.7657)
    sin = {"file": "any", "package": None, "sha256": "c8e5653e" + "0" * 56}
    ours = paper_number({**row, "baseline": "sin"}, None, published("sin_resnet50", weights=sin))
    assert ours["paper"] == pytest.approx(0.601)


@pytest.mark.skipif(not MIRROR.is_dir(), reason="needs the papers' tables")
@pytest.mark.parametrize(("table", "rows"), [(1, 19), (6, 18)])
def test_the_tables_are_whole(table, rows):
    theirs = pd.read_csv(MIRROR / f"paper/imagenet_w_table{table}.csv")
    ours = pd.read_csv(definition_path("papers/imagenet_w.csv"), keep_default_na=False)
    ours = ours[ours["table"] == table]
    networks = ours.groupby(["model", "weights"], sort=False)
    theirs = theirs[theirs.iloc[:, 0] != "average"]
    assert len(networks) == len(theirs) == rows
    for (_, values), (_, row) in zip(networks, theirs.iterrows(), strict=True):
        for metric, value in zip(values["metric"], values["value"], strict=True):
            assert float(value) == pytest.approx(row[metric])


def save(path, net, key, prefix="module."):
    """As the authors of the networks saved them."""
    state = {f"{prefix}{name}": value for name, value in net.state_dict().items()}
    torch.save({key: state, "args": Namespace(epochs=1), "epoch": 3}, path)
    return {"file": str(path), "key": key, "sha256": "recorded"}


def entry(name: str, weights: dict, **options) -> dict:
    model = {
        "name": name,
        "weights": weights,
        "options": options,
        "frozen": True,
        "head": "published",
    }
    remainder = {
        "method": UNTRAINED,
        "optimiser": {"name": "sgd", "lr": 1},
        "batch_size": 2,
        "origin": "a test",
    }
    return complete({"model": model, **remainder})["model"]


@pytest.mark.parametrize(
    ("name", "make", "options", "key", "prefix"),
    [
        (
            "resnet18",
            lambda: torchvision.models.resnet18(num_classes=1000),
            {},
            "state_dict",
            "module.",
        ),
        (
            "timm/vit_tiny_patch16_224",
            lambda: timm.create_model("vit_tiny_patch16_224", global_pool="avg"),
            {"global_pool": "avg"},
            "model",
            "",
        ),
        (
            "timm/vit_tiny_patch16_224",
            lambda: timm.create_model("vit_tiny_patch16_224"),
            {},
            "state_dict",
            "module.",
        ),
    ],
    ids=["resnet50 of CutMix", "MAE", "MoCo v3"],
)
def test_files_in_the_published_layout(tmp_path, name, make, options, key, prefix):
    net = make().eval()
    weights = save(tmp_path / "net.pth", net, key, prefix)
    model = entry(name, weights, **options)
    assert model["weights"]["sha256"] == file_sha256(tmp_path / "net.pth")
    network, images = make_network(model, 1000, 224).eval(), torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(network(images), net(images))
    with refused("net.pth: holds no weights"):
        make_network(entry(name, {**weights, "key": "weights"}, **options), 1000, 224)


def test_a_missing_file_is_named_when_it_is_needed(tmp_path):
    model = entry("resnet18", {"file": str(tmp_path / "none.pth"), "sha256": "recorded"})
    with refused("none.pth: no such file"):
        make_network(model, 1000, 224)
