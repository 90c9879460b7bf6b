"""VAE and Factor-VAE: their losses, the estimate of total correlation, the frozen encoder."""

import math
from dataclasses import replace

import pytest
import torch

from diagvib.methods.factor_vae import (
    discriminator_loss,
    shuffled,
    total_correlation,
)
from diagvib.methods.registry import make_baseline
from diagvib.methods.vae import kl_per_dimension
from diagvib.settings.baselines import load_settings
from diagvib.training.batches import Batches
from diagvib.training.optimisers import make_optimiser
from synthetic_images import SIZE, separable

SMALL = {"factor_vae": {"discriminator_width": 16, "discriminator_layers": 2}}


def made(name="vae", size=SIZE, **options):
    settings = load_settings(name)
    settings["method"] |= {**SMALL.get(name, {}), **options}
    return make_baseline({**settings, "batch_size": 8}, 6, size, 0)


@pytest.fixture
def batch():
    return Batches(*separable(32), torch.device("cpu")).batch(torch.arange(8))


def test_kl_against_torch():
    mean, log_variance = torch.randn(2, 5, 12)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    expected = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0))
    assert torch.allclose(kl_per_dimension(mean, log_variance), expected, atol=1e-5)


def silent(**options):
    """Its decoder answers 0 for every value: the mean image, or as likely dark as bright."""
    model = made(beta=0.0, **options)
    for parameter in model.decoder[-1].parameters():
        torch.nn.init.zeros_(parameter)
    return model


def test_loss_sums_bernoulli_over_all_pixels(batch):
    loss, code = silent(likelihood="bernoulli").negative_elbo(batch)
    assert loss.tolist() == pytest.approx([3 * SIZE**2 * math.log(2)] * 8, rel=1e-5)
    assert code.shape == (8, 12)


def test_loss_sums_gaussian_over_all_inputs(batch):
    """But for the normalising constant, which no weight changes."""
    normal = torch.distributions.Normal(0.0, 1.0)
    expected = -(normal.log_prob(batch.inputs) + math.log(2 * math.pi) / 2).sum((1, 2, 3))
    loss, _ = silent().negative_elbo(batch)
    assert torch.allclose(loss, expected, rtol=1e-5)


def test_beta_weighs_the_divergence(batch):
    losses = []
    for beta in (0.0, 3.0):
        model = made(beta=beta)
        torch.manual_seed(0)
        model.training_step("encode", batch, lambda name, loss: losses.append(loss))
    divergence = kl_per_dimension(*model.posterior(model.observed(batch))).sum(1)
    assert torch.allclose(losses[1] - losses[0], 3 * divergence.mean(), atol=0.01)
    torch.manual_seed(0)
    assert torch.equal(losses[1], model.negative_elbo(batch)[0].mean())


@pytest.mark.parametrize(("size", "stages"), [(64, 4), (96, 4), (224, 5)])
def test_shapes_follow_the_image_size(size, stages):
    model = made(size=size)
    layers = [layer for layer in model.encoder if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.kernel_size[0] for layer in layers] == [4, 4] + [2] * (stages - 2)
    with torch.inference_mode():
        assert model.decoder(torch.zeros(1, 12)).shape == (1, 3, size, size)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_what_is_reconstructed_is_compressed_by_a_frozen_encoder(batch, likelihood):
    """z-scores or pixels, not both; and it learns nothing from labels."""
    model = made(likelihood=likelihood).train()
    logits = model.predict(batch)
    alternatives = [
        replace(batch, **{name: getattr(batch, name) * 0}) for name in ("inputs", "pixels")
    ]
    equal = [torch.equal(logits, model.predict(alternative)) for alternative in alternatives]
    assert equal == [likelihood == "bernoulli", likelihood == "gaussian"]
    logits.sum().backward()
    reached = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert reached == {f"head.{name}" for name, _ in model.head.named_parameters()}


def test_shuffling_keeps_every_dimension_and_breaks_their_relation():
    torch.manual_seed(0)
    code = torch.randn(2000, 1) * torch.tensor([1.0, 1.0, -1.0])
    mixed = shuffled(code)
    assert torch.equal(mixed.sort(0).values, code.sort(0).values)
    assert mixed.T.corrcoef().triu(1).abs().max() < 0.1


def test_the_discriminator_tells_codes_of_images_from_shuffled_ones():
    """Probabilities of 3/4 and 1/4, and of 1/2."""
    images, alternatives = torch.tensor([[3.0, 1.0]]).log(), torch.zeros(1, 2)
    assert total_correlation(images).item() == pytest.approx(math.log(3))
    expected = (math.log(4 / 3) + math.log(2)) / 2
    assert discriminator_loss(images, alternatives).item() == pytest.approx(expected)
    expected = (math.log(2) + math.log(4)) / 2
    assert discriminator_loss(alternatives, images).item() == pytest.approx(expected)


def test_the_discriminators_betas_may_be_whole_numbers():
    inputs = made("factor_vae", discriminator_betas=[0, 0.9]).optimisers("encode")["discriminator"]
    assert make_optimiser(inputs).param_groups[0]["betas"] == (0.0, 0.9)


def test_head_and_discriminator_have_optimisers_of_their_own():
    settings = load_settings("factor_vae")
    settings["optimiser"] |= {"lr": 0.5, "weight_decay": 0.1}
    settings["method"] |= SMALL["factor_vae"] | {"head_lr": 0.25, "discriminator_lr": 0.125}
    model = make_baseline(settings, 6, SIZE, 0)
    options = {**model.optimisers("encode"), **model.optimisers("classify")}
    case = {name: make_optimiser(row).param_groups[0] for name, row in options.items()}
    assert {name: group["lr"] for name, group in case.items()} == {
        "vae": 0.5,
        "discriminator": 0.125,
        "head": 0.25,
    }
    assert case["discriminator"]["weight_decay"] == 0 and case["vae"]["weight_decay"] == 0.1


def test_gamma_weighs_the_estimate(batch):
    """In the loss, beside the ELBO, and in the gradient that reaches the encoder."""
    losses, gradients = {}, {}
    for gamma in (0.0, 50.0):
        model = made("factor_vae", gamma=gamma).train()
        last = model.encoder[-1].weight

        def update(name, loss, gamma=gamma, last=last):
            losses[name, gamma] = loss.item()
            if name == "vae":
                gradients[gamma] = torch.autograd.grad(loss, last)[0]

        torch.manual_seed(0)
        model.training_step("encode", batch, update)
        torch.manual_seed(0)
        elbo, code = model.negative_elbo(batch)
        penalty = total_correlation(model.discriminator(code)).mean()
    expected = 50 * torch.autograd.grad(penalty, last)[0]
    assert losses["vae", 0.0] == pytest.approx(elbo.mean().item())
    assert losses["vae", 50.0] - losses["vae", 0.0] == pytest.approx(50 * penalty.item(), abs=0.02)
    assert (gradients[50.0] - gradients[0.0] - expected).norm() < 0.1 * expected.norm()
    assert losses["discriminator", 0.0] == losses["discriminator", 50.0]
