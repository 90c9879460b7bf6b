"""Exhibits and kept weights: what a run stores in addition to its numbers, and how it is shown."""

import io
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from diagvib.foundation.files import read_json, read_table
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import Images
from diagvib.methods.method import Visualisation
from diagvib.methods.registry import make_baseline
from diagvib.report.visualisation_sheets import looking_sheet, read_visualisations
from diagvib.scenes.digits.factors import FACTORS, classes
from diagvib.settings.baselines import load_settings
from diagvib.settings.layout import LOOKS, RUN_FILES, SMOOTH, Run
from diagvib.training import visualisations
from diagvib.training.batches import Batches, Scaling
from diagvib.training.job import Folders, Job
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.run import train_runs
from diagvib.training.visualisations import (
    IMAGES_SHOWN,
    denormalisation,
    shown_images,
    visualisation_table,
)
from synthetic_images import SIZE, separable, write_dataset

CPU = torch.device("cpu")
TRAINING = {"max_epochs": 1, "patience": None, "seed": 1, "precision": "bf16", "threads": 1}
ZGO = Run("vae", "zgo", "hue-shape", 0)


CELLS = [
    ("ood" if i != j else "id", hue, shape)
    for i, hue in enumerate(("green", "red", "blue"))
    for j, shape in enumerate("205")
]


def images_of(cells) -> Images:
    """The table of a test split with an image of each of these (group, hue, shape)."""
    names = ("group", "hue", "shape")
    table = pa.Table.from_pylist([dict(zip(names, cell, strict=True)) for cell in cells])
    return Images(torch.empty(len(table), 0), table, {"scene": "digits"})


def test_the_images_shown_are_spread_over_groups_classes_and_cells():
    images = images_of(CELLS * 5)
    display = images.table.take(shown_images(images, ZGO)).to_pandas()
    assert list(display["group"]) == ["id"] * 6 + ["ood"] * 6
    assert display.groupby(["group", "hue"]).size().tolist() == [2] * 6
    ood = display[display["group"] == "ood"]
    assert len(ood.drop_duplicates()) == 6, "each held-out cell once"
    assert list(dict.fromkeys(ood["hue"])) == ["red", "green", "blue"], "in the classes' order"


def test_a_rendered_image_is_kept_exactly_and_noise_in_few_bytes():
    with np.load(Path(__file__).parent / "golden_renders.npz") as golden:
        image = torch.from_numpy(golden["images"][:1])
    noise = torch.randint(0, 255, image.shape, dtype=torch.uint8)
    text = pa.table({"group": ["id"], **{name: classes(name)[:1] for name in FACTORS}})
    kinds = [Visualisation("input", image), Visualisation("lensed", noise)]
    files = visualisation_table(kinds, text, classes("hue"))["picture"].to_pylist()
    assert (np.array(Image.open(io.BytesIO(files[0]))) == image[0].numpy()).all()
    assert len(files[1]) < 30_000 < noise.numel()


@pytest.fixture(scope="module")
def batches():
    return Batches(*separable(6), CPU)


@pytest.fixture
def batch(batches):
    return batches.batch(torch.arange(6))


def made(name, **options):
    settings = load_settings(name)
    settings["method"] = settings["method"] | options
    return make_baseline(settings, 6, SIZE, 0).eval()


@torch.inference_mode()
def offered(model, batches, batch):
    return model.visualisations(batch, denormalisation(batches.scaling, CPU))


def test_a_lens_that_brightens_by_a_standard_deviation(batches, batch):
    model = made("asr", base_width=4)
    torch.nn.init.zeros_(model.lens.last.weight)
    torch.nn.init.constant_(model.lens.last.bias, 0.5)
    inputs, lensed, difference = offered(model, batches, batch)
    assert [inputs.what, lensed.what, difference.what] == ["input", "lensed", "difference"]
    step = 0.5 * torch.tensor(batches.scaling.std)
    expected = (batch.pixels + step).round().clamp(0, 255)
    assert torch.equal(lensed.pixels.float(), expected)
    assert torch.equal(
        difference.pixels, ((expected - batch.pixels) / 2 + 127.5).round().to(torch.uint8)
    )
    with torch.inference_mode():
        assert torch.equal(lensed.logits, model.predict(batch))


@pytest.mark.parametrize("name", ["vae", "factor_vae"])
def test_every_latent_dimension_is_traversed_the_most_informative_first(name, batches, batch):
    model = made(name)
    with torch.no_grad():
        model.encoder[-1].bias[:12] = torch.tensor(
            [0, 0, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0]
        )  # means that differ from 0
        model.decoder[0].weight[:, 4] = 0  # and a number that the decoder ignores
    inputs, reconstruction, *traversals = offered(model, batches, batch)
    assert torch.equal(inputs.pixels, batch.pixels)
    assert sorted(t.dimension for t in traversals) == list(range(12))
    assert [t.dimension for t in traversals[:3]] == [2, 8, 4]
    assert all(t.values == (-3, -2, -1, 0, 1, 2, 3) and len(t.pixels) == 7 for t in traversals)
    still, moved = traversals[2].pixels, traversals[0].pixels
    assert (still == reconstruction.pixels[0]).all() and not torch.equal(moved[0], moved[-1])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_dataset(folder / "images", "zgo", "hue-shape", 0)
    return folder


def train(root, name, out, **changed):
    settings = {**load_settings(name), "batch_size": 16, **changed.pop("settings", {})}
    train_runs(
        Job(settings, Protocol(**TRAINING), CPU, ImageFiles(root / "images"), **changed),
        [Run(name, "zgo", "hue-shape", 0)],
        Folders(root / out, root / "checkpoints"),
    )
    return root / out / "0"


def test_a_run_on_photos_also_has_pictures_by_smooth_grad_cam(root, monkeypatch):
    monkeypatch.setattr(
        visualisations, "load_scene", lambda name: SimpleNamespace(replicates="seeds")
    )
    frame = read_visualisations(train(root, "small_cnn", "photos") / "exhibits.parquet")
    kinds = {"input": IMAGES_SHOWN, LOOKS: IMAGES_SHOWN, SMOOTH: IMAGES_SHOWN}
    assert frame["what"].value_counts().to_dict() == kinds
    looks, smooth = (frame[frame["what"] == kind] for kind in (LOOKS, SMOOTH))
    assert smooth["prediction"].to_list() == looks["prediction"].to_list()
    assert not all(map(np.array_equal, smooth["picture"], looks["picture"]))
    (axes,) = looking_sheet({"small_cnn": root / "photos/0"}, ["hue", "shape"], "a title").axes
    assert f"small_cnn\n{SMOOTH}" in [text.get_text() for text in axes.texts]


def test_a_run_keeps_its_pictures(root):
    vae, cnn = train(root, "vae", "vae"), train(root, "small_cnn", "cnn")
    assert {path.name for path in vae.iterdir()} == set(RUN_FILES)
    path = vae / "exhibits.parquet"
    table, plain = read_table(path), read_table(cnn / "exhibits.parquet")
    options = {"input": IMAGES_SHOWN, "reconstruction": IMAGES_SHOWN, "traversal": 12 * 7}
    assert Counter(table["what"].to_pylist()) == {**options, LOOKS: IMAGES_SHOWN}
    assert Counter(plain["what"].to_pylist()) == {"input": IMAGES_SHOWN, LOOKS: IMAGES_SHOWN}
    assert plain.schema.names == table.schema.names
    looks = read_json(cnn / "metrics.json")["saliency"]
    assert looks["hue"]["area"] > 0.99 and looks["shape"]["share"] > 0.99, "noise is no canvas"
    assert (train(root, "vae", "again") / path.name).read_bytes() == path.read_bytes()
    # Below each picture is what was predicted.
    display = table.to_pandas().query("what == 'input'")
    predictions = read_table(vae / "predictions.parquet")
    index = shown_images(Images(torch.empty(0), predictions, {"scene": "digits"}), ZGO)
    assert list(display["prediction"]) == predictions["prediction"].take(index).to_pylist()


def test_kept_weights_are_the_model_that_was_tested_and_do_not_outlive_it(root):
    """As docs/baselines.md says to load them."""
    folder = train(root, "small_cnn", "kept", keep_weights=True)
    facts, test = read_json(folder / "run.json"), ImageFiles(root / "images").load(0, "test")
    hues = classes("hue")
    model = make_baseline(facts["settings"], len(hues), test.pixels.shape[1], facts["seed"])
    model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    scaling = Scaling(facts["pixel_mean"], facts["pixel_std"])
    images = Batches(test.pixels, test.labels("hue"), CPU, scaling)
    index, _ = predict(model, images, Protocol(**TRAINING))
    message = read_table(folder / "predictions.parquet")["prediction"].to_pylist()
    assert [hues[position] for position in index] == message
    train(root, "small_cnn", "kept", settings={"batch_size": 8})
    assert not (folder / "weights.pt").exists()
