"""What only a GPU can show: it draws the CPU's bytes, it trains and encodes like the CPU, its steps wait
for nothing, and its memory may be too small.

TEST_DEVICE=cpu tries the tests that need nothing of CUDA.
"""

import math
import os
from dataclasses import replace
from io import StringIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from conftest import refused
from diagvib import stages
from diagvib.foundation.files import read_json
from diagvib.images import files
from diagvib.images.datasets import RenderedRecipes
from diagvib.images.features import FeatureFiles
from diagvib.images.files import write_images
from diagvib.methods.registry import METHODS, declaration, make_baseline
from diagvib.models.registry import make_network
from diagvib.scenes import load_scene
from diagvib.scenes.digits.renderer import Renderer
from diagvib.scenes.scene import Renderer as SceneRenderer
from diagvib.settings.baselines import load_settings
from diagvib.settings.frozen_networks import encoder_settings
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout, Run
from diagvib.settings.resolve import load_config
from diagvib.studies.study import SPLITS
from diagvib.training import batches
from diagvib.training.batches import Batches
from diagvib.training.callbacks import Callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.encode import Encoding, encode
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable
from synthetic_methods import changed, settings_of, two_phases
from test_gpu_kernel import cases
from test_methods import annotated, made
from test_renderer import random_recipes
from test_runs import train, write_dataset
from test_trainer import Interrupted, Interruption

GpuDrawing = pytest.importorskip("diagvib.scenes.digits.gpu_kernel").GpuDrawing
CPU, GPU = torch.device("cpu"), torch.device(os.environ.get("TEST_DEVICE", "cuda"))
pytestmark = pytest.mark.skipif(
    GPU.type == "cuda" and not torch.cuda.is_available(), reason="needs a GPU"
)

PROTOCOL = Protocol(max_epochs=2, patience=None, seed=3, precision="fp32")
STUDY, BINDING, SAMPLES = "zgo", "shape-hue", 3


def run(sample=0):
    return Run("small_cnn", "zso", "hue", sample)


def dataset(sample=0, n=160):
    train = Batches(*separable(n, seed=10 * sample), GPU)
    return train, Batches(*separable(40, seed=10 * sample + 1), GPU, train.scaling)


def make(name, **keys):
    return make_baseline(changed(name, **{"batch_size": 16, **keys}), 6, SIZE, 3)


def fit(method, data=None, *arguments, protocol=PROTOCOL, **keywords):
    return Trainer(method, *(data or dataset()), run(), protocol).fit(*arguments, **keywords)


def losses(fitted):
    return [row[key] for row in fitted.history for key in ("train_loss", "val_loss")]


@pytest.mark.parametrize("name", ["small_cnn", "resnet18", "asr"])
def test_it_trains_like_the_cpu(name):
    """Methods and models that draw random numbers are left out: a GPU has another generator."""
    results = []
    for device in (GPU, CPU):
        train = Batches(*separable(160), device)
        data = train, Batches(*separable(40, seed=1), device, train.scaling)
        results.append(
            losses(fit(make(name, lr=1e-5), data, protocol=replace(PROTOCOL, max_epochs=1)))
        )
    assert results[0] == pytest.approx(results[1], rel=1e-2)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains(name):
    """In bf16."""
    protocol = replace(PROTOCOL, precision="bf16")
    assert protocol.on(GPU) == "bf16"
    train = annotated(64, 0, device=GPU, stripes=bool(declaration(name).needs))
    val = annotated(24, 1, device=GPU, scaling=train.scaling)
    assert all(
        math.isfinite(loss) for loss in losses(fit(made(name), (train, val), protocol=protocol))
    )


def test_no_step_waits_for_the_gpu():
    class Strict(Callback):
        def __init__(self):
            self.steps = 0

        def on_step(self, images):
            self.steps += 1
            # From the sixth step to the second-to-last of the first epoch.
            torch.cuda.set_sync_debug_mode("error" if 5 < self.steps < 9 else "default")

    try:
        fit(make("resnet18"), callback=Strict())
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interrupted_run_continues(tmp_path, epoch):
    entire = losses(fit(two_phases()))
    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    with pytest.raises(Interrupted):
        fit(two_phases(), None, checkpoint, Interruption(epoch=epoch))
    assert losses(fit(two_phases(), None, checkpoint)) == pytest.approx(entire, rel=2e-3)


def test_images_that_do_not_fit_stay_on_the_host(monkeypatch):
    resident = losses(fit(make("small_cnn")))
    monkeypatch.setattr(batches, "fits_on", lambda device, size: False)
    assert dataset()[0].pixels.device.type == "cpu"
    assert losses(fit(make("small_cnn"))) == pytest.approx(resident, rel=2e-3)


def test_too_little_memory_says_what_to_lower(tmp_path):
    write_dataset(tmp_path / "images", "zgo", "hue-shape", 0)
    settings = {**load_settings("wide_resnet50_2"), "batch_size": 16}
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(GPU).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 600 * 2**20) / total)
    try:
        with refused("GPU's memory is too small; lower the batch_size of small_cnn"):
            train(tmp_path, "runs", samples=[0], device="cuda", settings=settings)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_images_are_drawn_in_the_same_bytes():
    """Also if the recipes are on the GPU."""
    for part in cases():
        sources, size = (part.pop("digits"), part.pop("textures")), part.pop("size")
        expected = Renderer(*sources, size=size).render(**part)
        renderer = Renderer(*sources, device="cuda", size=size)
        assert isinstance(renderer.draw, GpuDrawing)
        moved = {name: torch.as_tensor(column).cuda() for name, column in part.items()}
        for recipes in (part, moved):
            images = renderer.render(**recipes)
            assert images.is_cuda
            assert torch.equal(images.cpu(), expected)


def test_image_files_are_the_same_bytes(tmp_path):
    g, rows = np.random.default_rng(1), 5_000  # more than are copied at a time
    digits, textures = (g.integers(0, 256, (5, side, side), dtype=np.uint8) for side in (40, 256))
    random_rows = random_recipes(rows, digits=5, textures=5)
    table = pa.table({"row": np.arange(rows)})
    for device in ("cpu", "cuda"):
        renderer = Renderer(digits, textures, device)

        def render(recipes, renderer=renderer):
            numbers = recipes["row"].to_numpy()
            return renderer.render(
                **{name: column[numbers] for name, column in random_rows.items()}
            )

        scene_renderer = SceneRenderer("digits", 128, torch.device(device), render)
        write_images(tmp_path / device, table, scene_renderer, {})
    assert (tmp_path / "cpu").read_bytes() == (tmp_path / "cuda").read_bytes()


@pytest.fixture(scope="module")
def config():
    counts = "counts={train: 90, val: 45, id: 54, ood: 54}"
    training = "training={max_epochs: 1, precision: fp32}"
    chosen = [f"studies=[{STUDY}]", f"samples={SAMPLES}", "baselines=[small_cnn]", "images=render"]
    return load_config(None, ["sources=embedded", "image_size=64", counts, training, *chosen])


@pytest.fixture(scope="module")
def layout(config, tmp_path_factory) -> Layout:
    """A root with recipes."""
    layout = Layout(tmp_path_factory.mktemp("root"))
    stages.prepare(layout, stage_settings(config, "prepare"), "digits")
    stages.draw(layout, stage_settings(config, "draw", STUDY), STUDY, BINDING)
    return layout


def rendered(layout: Layout, device: torch.device) -> RenderedRecipes:
    sources = load_scene("digits"), layout.prepared("digits")
    return RenderedRecipes(layout.recipes(STUDY, BINDING), *sources, SIZE, device)


@pytest.mark.parametrize("fits", [True, False])
def test_datasets_in_the_gpus_memory_are_the_cpus(layout, monkeypatch, fits):
    if not fits:
        monkeypatch.setattr(files, "fits_on", lambda device, size: False)
    for split in SPLITS:
        expected = rendered(layout, CPU).load(1, split)
        images = rendered(layout, GPU).load(1, split)
        assert images.pixels.device.type == (GPU.type if fits else "cpu")
        assert torch.equal(images.pixels.cpu(), expected.pixels)
        assert images.table.equals(expected.table) and images.metadata == expected.metadata


def test_runs_side_by_side_are_those_of_one_after_the_other(layout, config):
    """From recipes to predictions and pictures, all on one GPU."""
    histories, names = [], ("small_cnn", STUDY, BINDING)
    for processes in (SAMPLES, 1):
        job = stage_settings(config, "train", STUDY, "small_cnn")
        stages.train(layout, job, *names, device=GPU.type, processes=processes)
        folders = [layout.runs(*names) / str(sample) for sample in range(SAMPLES)]
        for folder in folders:
            assert ("NVIDIA" in read_json(folder / "run.json")["device"]) == (GPU.type == "cuda")
            (folder / "run.json").unlink()
        lines = [(folder / "history.jsonl").read_text() for folder in folders]
        histories.append([pd.read_json(StringIO(text), lines=True) for text in lines])
    for together, alone in zip(*histories, strict=True):
        assert [*together["val_loss"]] == pytest.approx([*alone["val_loss"]], rel=1e-2)


@pytest.mark.parametrize(
    ("model", "close"), [({}, 1e-4), ({"dtype": "float16"}, 2e-3), ({"compute": "bf16"}, 3e-2)]
)
def test_features_are_the_cpus(layout, tmp_path, model, close):
    entry = {"name": "resnet18", "frozen": True, "input": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    parts = []
    for name, device, options in (("cpu", CPU, {}), ("gpu", GPU, model)):
        encoding = Encoding(encoder_settings(settings_of(entry | options)), device)
        encode(encoding, rendered(layout, device), 1, tmp_path / name)
        parts.append(FeatureFiles(tmp_path / name).load(0, "test").pixels.float())
    expected, features = parts
    assert (features - expected).abs().max() <= close * expected.abs().max()


def test_clips_towers_are_the_cpus(tmp_path):
    """Which reads its words there and its images after it is moved there."""
    from test_clip import SIDE, settings, tiny_clip, zero_shot

    file, model = tiny_clip(tmp_path)
    options = {"templates": ["a photo of a {}"], "words": {"b": "red thing"}}
    entry = settings(file, options=options) | {"classes": ("cat", "b")}
    network = make_network(entry, 2, SIDE).eval().to(GPU)
    images = torch.rand(5, 3, SIDE, SIDE)
    expected = zero_shot(model, [["a photo of a cat"], ["a photo of a red thing"]], images)
    with torch.no_grad():
        logits = network(images.to(GPU)).cpu()
        torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
        with torch.autocast(GPU.type, torch.bfloat16):
            assert network(images.to(GPU)).isfinite().all()
