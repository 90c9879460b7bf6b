"""What only a GPU can show: recorded steps agree with step-by-step training, wait for nothing, and serve several runs.

On the CPU `test_steps` and `test_runs` test the same with recorded operations in the place of CUDA graphs, bit for bit.
"""

import pytest
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Baseline, Optimiser, Outcome, initialised
from diagvib.methods.registry import load_settings, make_baseline
from diagvib.settings.grid import Run
from diagvib.training import batches
from diagvib.training import run as runs
from diagvib.training.batches import Batches
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import determined
from diagvib.training.trainer import Protocol, Trainer, Watcher
from synthetic_images import SIZE, separable
from test_runs import train, write_dataset
from test_trainer import Interrupted, Interruption, two_phases

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda")
PROTOCOL = Protocol(max_epochs=2, patience=None, seed=3, precision="fp32")


def run(sample=0):
    return Run("small_cnn", "zso", "hue", "hue", None, sample)


def dataset(sample=0, n=160):
    train = Batches(*separable(n, seed=10 * sample), GPU)
    return train, Batches(*separable(40, seed=10 * sample + 1), GPU, train.scaling)


def make(name, **changed):
    settings = {**load_settings(name), "batch_size": 16, **changed}
    return make_baseline(settings, 6, SIZE, 3)


def losses(fitted):
    return [row[key] for row in fitted.history for key in ("train_loss", "val_loss")]


@pytest.mark.parametrize("name", ["small_cnn", "resnet18", "alexnet", "asr", "vae", "factor_vae"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_and_step_by_step_agree(name, precision, capsys):
    protocol = Protocol(max_epochs=1, patience=None, seed=3, precision=precision)
    found = []
    for graphs in (True, False):
        trainer = Trainer(make(name, lr=1e-5), protocol, GPU, cuda_graphs=graphs)
        found.append(losses(trainer.fit(*dataset(), run())))
        assert len(trainer._steps) == (len(trainer.model.phases()) if graphs else 0)
    assert found[0] == pytest.approx(found[1], rel=2e-2 if precision == "bf16" else 2e-3)
    assert "without CUDA graphs" not in capsys.readouterr().err


class Noise(Baseline):
    """Its training loss is the noise that it draws."""

    def __init__(self):
        super().__init__({"batch_size": 16, "lr": 1e-3, "betas": [0.9, 0.999]})
        self.net = torch.nn.Linear(1, 3)

    def optimisers(self, phase):
        return {"net": Optimiser(list(self.net.parameters()), 1e-3)}

    def training_step(self, phase, batch, update):
        noise = torch.randn(len(batch.labels), device=batch.labels.device)
        update("net", self.net(noise[:, None]).square().mean())
        return Outcome(noise.square())

    def predict(self, batch):
        return self.net(batch.inputs.mean((1, 2, 3))[:, None])


def test_a_recorded_step_draws_the_random_numbers_of_its_epoch():
    found = [losses(Trainer(initialised(Noise, 3), PROTOCOL, GPU, graphs).fit(*dataset(), run()))[::2]
             for graphs in (True, False)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0][0] != pytest.approx(found[0][1], rel=1e-3), "each epoch has noise of its own"


@pytest.mark.parametrize("graphs", [True, False])
def test_no_step_waits_for_the_gpu(graphs):
    class Strict(Watcher):
        def __init__(self):
            self.steps = 0

        def on_step(self, images):
            self.steps += 1
            # From the sixth step to the last but one of the first epoch; recording itself may wait.
            torch.cuda.set_sync_debug_mode("error" if 5 < self.steps < 9 else "default")

    try:
        Trainer(make("resnet18"), PROTOCOL, GPU, graphs).fit(*dataset(), run(), watcher=Strict())
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_five_runs_in_one_trainer():
    trainer = Trainer(two_phases(), PROTOCOL, GPU)
    train, val = dataset()
    for sample in (0, 1, 2, 3, 4):
        train.refill(*separable(160, seed=10 * sample))
        val.refill(*separable(40, seed=10 * sample + 1), train.scaling)
        steps = dict(trainer._steps)
        reused = losses(trainer.fit(train, val, run(sample)))
        assert sample == 0 or trainer._steps == steps, "recorded once"
        fresh = losses(Trainer(two_phases(), PROTOCOL, GPU, cuda_graphs=False).fit(*dataset(sample), run(sample)))
        assert reused == pytest.approx(fresh, rel=2e-3)


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interrupted_run_continues(tmp_path, epoch):
    whole = losses(Trainer(two_phases(), PROTOCOL, GPU).fit(*dataset(), run()))
    checkpoint = Checkpoint(tmp_path / "run.pt", "d")
    trainer = Trainer(two_phases(), PROTOCOL, GPU)
    with pytest.raises(Interrupted):
        trainer.fit(*dataset(), run(), checkpoint, Interruption(epoch=epoch))
    assert losses(trainer.fit(*dataset(), run(), checkpoint)) == pytest.approx(whole, rel=2e-3)


def test_images_that_do_not_fit_stay_on_the_host(monkeypatch, capsys):
    resident = losses(Trainer(make("small_cnn"), PROTOCOL, GPU).fit(*dataset(), run()))
    monkeypatch.setattr(batches, "_fits", lambda pixels, device: False)
    assert not dataset()[0].resident
    assert losses(Trainer(make("small_cnn"), PROTOCOL, GPU).fit(*dataset(), run())) == pytest.approx(resident, rel=2e-3)
    assert "without CUDA graphs, step by step: the images do not fit" in capsys.readouterr().err


def test_a_job_of_several_samples(tmp_path):
    for sample in (0, 1, 2):
        write_dataset(tmp_path / "images", "zgo", "hue-shape", sample)
    trainers = []

    class Noted(Trainer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            trainers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "Trainer", Noted)
        out = train(tmp_path, "runs", samples=(0, 1, 2), device="cuda")
    assert len(trainers) == 1 and trainers[0]._steps
    assert sorted(path.name for path in out.iterdir()) == ["0", "1", "2"]
    assert not (tmp_path / "checkpoints").exists()


def test_too_little_memory_says_what_to_lower(tmp_path):
    write_dataset(tmp_path / "images", "zgo", "hue-shape", 0)
    settings = {**load_settings("wide_resnet50_2"), "batch_size": 16}
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(GPU).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 600 * 2**20) / total)
    try:
        with pytest.raises(DiagvibError, match="GPU's memory is too small; lower batch_size of small_cnn"):
            train(tmp_path, "runs", samples=[0], device="cuda", settings=settings)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_fp32_is_fp32():
    """TF32 rounds to 10 bits: a relative error near 1e-3, where that of fp32 is near 1e-6."""
    g = torch.Generator().manual_seed(0)
    images, kernel = torch.randn(8, 64, 32, 32, generator=g), torch.randn(64, 64, 3, 3, generator=g)
    left, right = torch.randn(512, 512, generator=g), torch.randn(512, 512, generator=g)

    def error(operation, *given):
        exact = operation(*(value.double() for value in given))
        found = operation(*(value.to(GPU) for value in given)).double().cpu()
        return ((found - exact).norm() / exact.norm()).item()

    with determined(GPU, 1):
        assert error(torch.nn.functional.conv2d, images, kernel) < 1e-5
        assert error(torch.matmul, left, right) < 1e-5
