"""The examples that users copy do what they say, also through the whole workflow."""

import shutil

import pytest
import torch
from torch.nn import functional as F

from conftest import REPOSITORY, refused
from diagvib.methods.registry import make_baseline
from diagvib.settings.baselines import load_settings
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, small_batches
from synthetic_methods import small_cnn
from test_trainer import PROTOCOL, RUN, Interrupted, Interruption, fit, fitted
from toy import run_here


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The examples, copied into the current folder."""
    folder = shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    monkeypatch.chdir(folder)
    return folder


def example(name: str, **options):
    settings = load_settings(name, ["baselines.yaml"])
    settings["method"] |= options
    return make_baseline(settings, 3, SIZE, seed=0)


def steps(method, data, count: int) -> list[float]:
    """Losses of some steps on the first 16 images, as the trainer makes them."""
    trainer = Trainer(method, *data, RUN, PROTOCOL)
    method.setup(trainer.data)
    trainer.phases = method.phases(trainer.data)
    trainer._make_optimisers()
    trainer._updated = False
    batch = data[0].batch(torch.arange(16))
    return [method.training_step("classify", batch, trainer._update).loss for _ in range(count)]


def test_sam_steps_along_the_gradient_at_the_raised_weights():
    """By hand: g at w, then w - lr * gradient(w + rho g / |g|), as momentum starts at zero."""
    data, rho, lr = small_batches(100), 0.5, 0.05
    method, copy = example("sam", rho=rho), example("sam", rho=rho)
    batch = data[0].batch(torch.arange(16))

    def gradients():
        loss = F.cross_entropy(copy.model(batch.inputs), batch.labels)
        return torch.autograd.grad(loss, [*copy.model.parameters()])

    weights = [p.detach().clone() for p in copy.model.parameters()]
    ascent = gradients()
    norm = sum(g.square().sum() for g in ascent).sqrt()
    with torch.no_grad():
        for p, g in zip(copy.model.parameters(), ascent, strict=True):
            p += rho * g / norm
    expected = [w - lr * g for w, g in zip(weights, gradients(), strict=True)]
    steps(method, data, 1)
    for p, value, start in zip(method.model.parameters(), expected, weights, strict=True):
        assert torch.allclose(p, value, atol=1e-6) and not torch.equal(p, start)
    plain = [w - lr * g for w, g in zip(weights, ascent, strict=True)]
    assert not torch.allclose(expected[0], plain[0], atol=1e-4), "rho matters here"


def test_a_step_needs_gradients_and_gradients_alone_are_no_training():
    data = small_batches(100)
    method = small_cnn()
    method.training_step = lambda phase, batch, update: update("model")
    with refused(r"method: erm calls update\('model'\) without a loss, but there are no gradients"):
        fit(method, data)

    def gradients_alone(phase, batch, update):
        output = method.validation_step(phase, batch)
        update("model", output.loss.mean(), step=False)
        return output

    method.training_step = gradients_alone
    with refused("training_step of erm never called update in the phase"):
        fit(method, data)


def test_a_memory_bank_holds_the_latest_images_and_forgets_the_oldest():
    data = small_batches(100)
    method = example("memory_bank", slots=24)
    steps(method, data, 2)
    labels = data[0].labels[:16]
    assert method.memory["oldest"] == 8
    assert method.memory["labels"].tolist() == [*labels[8:], *labels[8:], *labels[:8]]
    norms = method.memory["features"].norm(dim=1)
    assert torch.allclose(norms, torch.ones(24), atol=1e-5)


def test_the_loss_of_a_bank_is_that_of_supervised_contrast():
    """A feature equal to one of two of its class, at right angles to the other and to a third."""
    method = example("memory_bank", slots=4, weight=1.0, temperature=1.0)
    bank = torch.eye(4)
    labels = torch.tensor([0, 0, 1, -1])
    method.memory |= {"features": bank, "labels": labels, "oldest": torch.tensor(0)}
    batch = small_batches(100)[0].batch(torch.arange(1))
    batch.labels[:] = 0
    shares = torch.tensor([1.0, 0.0, 0.0]).softmax(0)
    expected = -(shares[0].log() + shares[1].log()) / 2
    assert method.penalty(2 * bank[:1], batch) == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("name", ["sam", "memory_bank"])
def test_a_killed_run_of_an_example_continues_as_if_nothing_had_happened(name, tmp_path):
    data = small_batches(100)
    checkpoint = Checkpoint(tmp_path / "run.pt", "a")
    with pytest.raises(Interrupted):
        fit(example(name), data, checkpoint=checkpoint, callback=Interruption(epoch=2))
    result = fitted(example(name), data, checkpoint=checkpoint)
    assert result == fitted(example(name), data)


def test_the_examples_run_in_a_workflow(tmp_path):
    smaller = "counts={train: 63, val: 18, id: 18, ood: 18}", "training.max_epochs=1"
    layout = run_here("methods.yaml", *smaller, root=tmp_path / "root")
    text = (layout.tables / "tables.md").read_text()
    assert "sam" in text and "memory_bank" in text and "small_cnn" in text
