"""VAE and Factor-VAE: their losses, the estimate of total correlation, the frozen encoder,
resuming."""

import math
from dataclasses import replace

import pytest
import torch

from diagvib.methods.factor_vae import (
    Discriminator,
    discriminator_loss,
    shuffled,
    total_correlation,
)
from diagvib.methods.registry import make_baseline
from diagvib.methods.vae import halvings, kl_per_dimension
from diagvib.settings.baselines import load_settings
from diagvib.settings.grid import Run
from diagvib.training.batches import Batches
from diagvib.training.callbacks import Callback
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE, separable

CPU = torch.device("cpu")
RUN = Run("factor_vae", "zso", "hue", "hue", (), 0)
SMALL = {"factor_vae": {"discriminator_width": 16, "discriminator_layers": 2}}


def made(name="vae", size=SIZE, **options):
    settings = load_settings(name)
    settings["method"] |= {**SMALL.get(name, {}), **options}
    return make_baseline({**settings, "batch_size": 8}, 6, size, 0)


@pytest.fixture(scope="module")
def data():
    train = Batches(*separable(32), CPU)
    return train, Batches(*separable(12, seed=1), CPU, train.scaling)


@pytest.fixture
def batch(data):
    return data[0].batch(torch.arange(8))


def test_kl_against_torch():
    mean, log_variance = torch.randn(5, 12), torch.randn(5, 12)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    expected = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum(
        1
    )
    assert torch.allclose(kl_per_dimension(mean, log_variance).sum(1), expected, atol=1e-5)
    assert kl_per_dimension(torch.zeros(1, 3), torch.zeros(1, 3)).tolist() == [[0, 0, 0]]


def test_loss_sums_bernoulli_over_all_pixels(batch):
    model = made(beta=0.0)
    for parameter in model.decoder[-1].parameters():
        torch.nn.init.zeros_(parameter)  # every pixel is then as likely dark as bright
    loss, code = model.negative_elbo(batch)
    assert loss.tolist() == pytest.approx([3 * SIZE**2 * math.log(2)] * 8, rel=1e-5)
    assert code.shape == (8, 12)


def test_beta_weighs_the_divergence(batch):
    losses = []
    for beta in (0.0, 3.0):
        model = made(beta=beta)
        torch.manual_seed(0)
        losses.append(model.negative_elbo(batch)[0])
    divergence = kl_per_dimension(*model.posterior(batch.pixels.permute(0, 3, 1, 2) / 255)).sum(1)
    assert torch.allclose(losses[1] - losses[0], 3 * divergence, atol=0.01)


@pytest.mark.parametrize(("size", "stages"), [(64, 4), (96, 4), (128, 5), (224, 5)])
def test_shapes_follow_the_image_size(size, stages):
    assert halvings(size, "vae") == stages
    model = made(size=size)
    kernels = [
        layer.kernel_size[0] for layer in model.encoder if isinstance(layer, torch.nn.Conv2d)
    ]
    assert kernels == [4, 4] + [2] * (stages - 2)
    with torch.inference_mode():
        assert model.decoder(torch.zeros(1, 12)).shape == (1, 3, size, size)


def test_pixels_not_z_scores_are_compressed(data, batch):
    """It does not depend on the scaling of the inputs."""
    model = made().eval()
    unscaled = replace(batch, inputs=batch.inputs * 0)
    with torch.inference_mode():
        assert torch.equal(model.predict(batch), model.predict(unscaled))


def fitted(model, data, **keywords):
    result = Trainer(model, *data, RUN, Protocol(max_epochs=3, patience=None, seed=3)).fit(
        **keywords
    )
    return result, {key: value.tolist() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("name", ["vae", "factor_vae"])
def test_phases_and_the_frozen_encoder(name, data):
    model, first = made(name, vae_epochs=2), {}

    class Epochs(Callback):
        def on_epoch(self, row):
            if row["phase"] == "classify":
                first.setdefault("weights", {k: v.clone() for k, v in model.state_dict().items()})

    result, _ = fitted(model, data, callback=Epochs())
    assert [row["phase"] for row in result.history] == ["encode"] * 2 + ["classify"] * 3
    assert (
        result.history[0]["val_accuracy"] is None and result.history[2]["val_accuracy"] is not None
    )
    assert result.selected_epoch > 2 and result.val_loss < 10
    moved = {
        key.split(".")[0]
        for key, value in model.state_dict().items()
        if not torch.equal(value, first["weights"][key])
    }
    assert moved == {"head"}


def test_shuffling_keeps_every_dimension_and_breaks_their_relation():
    torch.manual_seed(0)
    first = torch.randn(2000)
    code = torch.stack([first, first, -first], 1)
    mixed = shuffled(code)
    assert torch.equal(mixed.sort(0).values, code.sort(0).values)
    assert mixed.T.corrcoef().triu(1).abs().max() < 0.1


def estimate(correlation):
    """The estimate for two Gaussians, after a discriminator has been trained on them."""
    torch.manual_seed(1)
    discriminator = Discriminator(latent=2, width=32, layers=2)
    adam = torch.optim.Adam(discriminator.parameters(), lr=3e-3)

    def draw(n):
        a, b = torch.randn(2, n)
        return torch.stack([a, correlation * a + math.sqrt(1 - correlation**2) * b], 1)

    for _ in range(500):
        code = draw(512)
        adam.zero_grad()
        discriminator_loss(discriminator(code), discriminator(shuffled(code))).backward()
        adam.step()
    with torch.inference_mode():
        return total_correlation(discriminator(draw(20_000))).mean().item()


def test_total_correlation_of_correlated_and_independent_gaussians():
    assert estimate(0.0) == pytest.approx(0, abs=0.03)
    for correlation in (0.5, 0.9):
        assert estimate(correlation) == pytest.approx(-math.log(1 - correlation**2) / 2, rel=0.2)


def test_gamma_weighs_the_estimate(batch):
    losses = {}
    for gamma in (0.0, 50.0):
        model = made("factor_vae", gamma=gamma).train()

        def update(name, loss, gamma=gamma):
            losses[name, gamma] = loss.item()

        torch.manual_seed(0)
        model.training_step("encode", batch, update)
        torch.manual_seed(0)
        penalty = (
            total_correlation(model.discriminator(model.negative_elbo(batch)[1])).mean().item()
        )
    assert losses["vae", 50.0] - losses["vae", 0.0] == pytest.approx(50 * penalty, abs=0.02)
    assert losses["discriminator", 0.0] == losses["discriminator", 50.0]
