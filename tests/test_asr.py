"""ASR: what the lens learns, and that the two networks do not affect each other's parameters."""

import pytest
import torch
from torch.nn import functional as F

from diagvib.methods.asr import UNetLens, change, least_likely_loss
from diagvib.methods.registry import make_baseline
from diagvib.training.batches import Batches
from synthetic_images import SIZE, separable
from synthetic_methods import settings_of


@pytest.fixture
def batch():
    return Batches(*separable(6), torch.device("cpu")).batch(torch.arange(6))


def made(**options):
    return make_baseline(
        settings_of("small_cnn", {"name": "asr", "base_width": 8, "levels": 2, **options}),
        6,
        SIZE,
        0,
    ).train()


def test_the_losses_of_the_lens():
    """Low where the classifier gives its least likely class; a mean over pixels and channels."""
    logits = torch.tensor([[2.0, 0.0, 1.0]], requires_grad=True)
    loss = least_likely_loss(logits)
    assert loss.item() == pytest.approx(-logits.log_softmax(1)[0, 1].item())
    loss.sum().backward()
    assert logits.grad[0, 1] < 0 < logits.grad[0, 0], "descent raises the least likely class"
    images = torch.zeros(2, 3, 8, 8)
    assert change(images + torch.tensor([1.0, 2.0]).view(2, 1, 1, 1), images).tolist() == [1, 4]
    lensed = UNetLens(8, 3)(images + 1)
    assert lensed.shape == images.shape and 0 < change(lensed, images + 1).max() < 0.01


def test_the_classifier_learns_from_lensed_images_and_the_lens_from_its_own_loss(batch):
    model, calls = made(), {}
    outcome = model.training_step(
        "classify", batch, lambda name, loss: calls.update({name: loss.item()})
    )
    assert list(calls) == ["model", "lens"]
    lensed = model.lens(batch.inputs)
    logits = model.model(lensed)
    assert calls["model"] == pytest.approx(F.cross_entropy(logits, batch.labels).item(), rel=1e-4)
    assert calls["lens"] == pytest.approx(
        (least_likely_loss(logits) + change(lensed, batch.inputs)).mean().item(), rel=1e-4
    )
    assert outcome.loss.mean().item() == pytest.approx(calls["model"])


def test_validation_and_prediction_look_through_the_lens(batch):
    model = made().eval()
    model.lens.last.bias.data.fill_(5.0)
    with torch.inference_mode():
        assert torch.equal(model.predict(batch), model.model(model.lens(batch.inputs)))
        assert not torch.allclose(model.predict(batch), model.model(batch.inputs))
        loss = model.validation_step("classify", batch).loss
        assert torch.equal(
            loss, F.cross_entropy(model.predict(batch), batch.labels, reduction="none")
        )
