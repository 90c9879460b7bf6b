"""What only a GPU can show: it draws the CPU's bytes, it trains like the CPU, its steps wait for
nothing, and its memory may be too small."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from conftest import refused
from diagvib.images.files import write_images
from diagvib.methods.registry import METHODS, declaration, make_baseline
from diagvib.scenes.digits.renderer import Renderer
from diagvib.scenes.scene import Renderer as SceneRenderer
from diagvib.settings.baselines import load_settings
from diagvib.settings.layout import Run
from diagvib.training import batches
from diagvib.training.batches import Batches
from diagvib.training.callbacks import Callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable
from synthetic_methods import changed, two_phases
from test_gpu_kernel import cases
from test_methods import annotated, made
from test_renderer import random_recipes
from test_runs import train, write_dataset
from test_trainer import Interrupted, Interruption

GpuDrawing = pytest.importorskip("diagvib.scenes.digits.gpu_kernel").GpuDrawing
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")
PROTOCOL = Protocol(max_epochs=2, patience=None, seed=3, precision="fp32")


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
    for device in (GPU, torch.device("cpu")):
        train = Batches(*separable(160), device)
        data = train, Batches(*separable(40, seed=1), device, train.scaling)
        results.append(
            losses(fit(make(name, lr=1e-5), data, protocol=replace(PROTOCOL, max_epochs=1)))
        )
    assert results[0] == pytest.approx(results[1], rel=1e-2)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains(name):
    train = annotated(64, 0, device=GPU, stripes=bool(declaration(name).needs))
    val = annotated(24, 1, device=GPU, scaling=train.scaling)
    assert all(math.isfinite(loss) for loss in losses(fit(made(name), (train, val))))


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
