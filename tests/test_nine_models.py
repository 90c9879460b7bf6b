"""What the paper's models must learn: each step moves what it should, and a short training on squares
that differ in colour and place succeeds."""

import pytest
import torch

from diagvib.methods.asr import Asr, change, least_likely_loss
from diagvib.methods.factor_vae import FactorVae
from diagvib.methods.method import Method, initialised
from diagvib.methods.registry import make_baseline
from diagvib.methods.vae import Vae, kl_per_dimension
from diagvib.settings.baselines import load_settings
from diagvib.settings.layout import Run
from diagvib.training.batches import Batches
from diagvib.training.optimisers import make_optimiser
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE
from synthetic_methods import settings_of

CPU = torch.device("cpu")
SMALL = {"name": "factor_vae", "discriminator_width": 16, "discriminator_layers": 2}


def squares(n: int, seed: int) -> Batches:
    """A red, green or blue square, the label, in one of two corners, on black."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=generator)
    corners = torch.randint(0, 2, (n,), generator=generator).tolist()
    pixels = torch.zeros(n, SIZE, SIZE, 3, dtype=torch.uint8)
    for image, label, corner in zip(pixels, labels, corners, strict=True):
        position = slice(32 * corner, 32 * corner + 32)
        image[position, position, label] = 255
    return Batches(pixels, labels, CPU)


TRAIN, VAL = squares(256, 0), squares(64, 1)
HELD_OUT = VAL.batch(torch.arange(64))


@pytest.mark.parametrize(
    "name", ["small_cnn", "alexnet", "resnet18", "densenet161", "asr", "vae", "factor_vae"]
)
def test_each_step_moves_all_that_its_optimiser_holds_and_nothing_else(name):
    method = make_baseline(load_settings(name), 6, SIZE, 0)
    batch, held_out = TRAIN.batch(torch.arange(6)), set()
    for phase in method.train().phases(TRAIN.training_data()):
        for optimiser, inputs in method.optimisers(phase.name).items():
            adam, subject = make_optimiser(inputs), set(map(id, inputs.parameters))
            before = [value.clone() for value in method.parameters()]

            def update(name, loss, request=optimiser, inputs=inputs, adam=adam):
                if name == request:
                    loss.backward(inputs=list(inputs.parameters))
                    adam.step()

            method.training_step(phase.name, batch, update)
            for (key, value), former in zip(method.named_parameters(), before, strict=True):
                assert torch.equal(value, former) != (id(value) in subject), (optimiser, key)
            held_out |= subject
    assert held_out == set(map(id, method.parameters()))


def trained(kind: type[Method], method: dict, model: str | None, epochs: int, lr: float) -> Method:
    """In fp32: in bf16, which some processors have, FactorVae learns less from one seed in four."""
    settings = settings_of(model, method, lr)
    output = initialised(lambda: kind(settings, 6, SIZE), 0)
    run = Run("mine", "zso", "hue", 0)
    Trainer(output, TRAIN, VAL, run, Protocol(epochs, None, 3, "fp32")).fit()
    return output.eval()


def accuracy(method: Method) -> float:
    return (method.predict(HELD_OUT).argmax(1) == HELD_OUT.labels).float().mean().item()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Vae, {"name": "vae"}),
        (Vae, {"name": "vae", "likelihood": "bernoulli"}),
        # With the published gamma of 20, the rounding of the processor decides: 0.75 to 1.
        (FactorVae, {**SMALL, "gamma": 1.0}),
    ],
)
@torch.no_grad()
def test_an_autoencoder_learns_colour_and_place(kind, options):
    """It beats the mean image by a quarter, its code holds something, and the head reads the
    colour."""
    options = {**options, "vae_epochs": 20, "head_lr": 1e-2}
    with torch.enable_grad():
        method = trained(kind, options, None, 15, 2e-3)
    images = method.observed(HELD_OUT)
    mean, log_variance = method.posterior(images)
    image = method.observed(TRAIN.batch(torch.arange(256))).mean(0)
    if not method.gaussian:
        image = image.logit(1e-4)
    errors = [
        method.reconstruction_error(decoded, images).mean()
        for decoded in (method.decoder(mean).float(), image.expand_as(images))
    ]
    assert errors[0] < 0.75 * errors[1]
    assert kl_per_dimension(mean, log_variance).mean(0).max() > 0.5
    assert accuracy(method) > 0.9


def test_the_classifier_learns_and_the_lens_learns_to_mislead_it():
    """Trained alone at the end, the lens makes the least likely class likelier, and changes the
    image little."""
    options = {"name": "asr", "base_width": 8, "levels": 2}
    method = trained(Asr, options, "small_cnn", 3, 1e-3)
    inputs = method.optimisers("classify")["lens"]
    adam = make_optimiser(inputs)

    def update(name, loss):
        if name == "lens":
            adam.zero_grad()
            loss.backward(inputs=list(inputs.parameters))
            adam.step()

    def misled() -> float:
        return least_likely_loss(method.predict(HELD_OUT)).mean().item()

    assert accuracy(method) > 0.9
    before = misled()
    for index in torch.arange(256).split(16):
        method.training_step("classify", TRAIN.batch(index), update)
    with torch.no_grad():
        changed = change(method.lens(HELD_OUT.inputs), HELD_OUT.inputs).mean().item()
    assert misled() < 0.9 * before and 0.001 < changed < 2
