"""What the paper's models must learn, and that defects planted in them are noticed: by one step, or
by a short training on squares that differ in colour and place."""

import pytest
import torch
from torch.nn import functional as F

from diagvib.methods import asr
from diagvib.methods.asr import Asr, change, least_likely_loss
from diagvib.methods.erm import Erm
from diagvib.methods.factor_vae import FactorVae, total_correlation
from diagvib.methods.method import Batch, Method, initialised
from diagvib.methods.vae import Vae, kl_per_dimension
from diagvib.settings.baselines import load_settings
from diagvib.settings.grid import Run
from diagvib.training.batches import Batches
from diagvib.training.optimisers import make_optimiser
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer
from synthetic_images import SIZE
from synthetic_methods import settings_of

CPU = torch.device("cpu")
KINDS = {"erm": Erm, "asr": Asr, "vae": Vae, "factor_vae": FactorVae}
SMALL = {"name": "factor_vae", "discriminator_width": 16, "discriminator_layers": 2}


def squares(n: int, seed: int) -> Batches:
    """A red, green or blue square, the label, in one of two corners, on black."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=generator)
    corners = torch.randint(0, 2, (n,), generator=generator).tolist()
    pixels = torch.zeros(n, SIZE, SIZE, 3, dtype=torch.uint8)
    for image, label, corner in zip(pixels, labels, corners, strict=True):
        at = slice(32 * corner, 32 * corner + 32)
        image[at, at, label] = 255
    return Batches(pixels, labels, CPU)


TRAIN, VAL = squares(256, 0), squares(64, 1)
HELD_OUT = VAL.batch(torch.arange(64))


def unit(batch: Batch) -> torch.Tensor:
    return batch.pixels.permute(0, 3, 1, 2).float() / 255


def expected_loss(method: Method, optimiser: str, phase: str, batch: Batch) -> torch.Tensor | None:
    """The loss that an optimiser's first step should lower; None for those that other tests check."""
    if optimiser == "vae":
        mean, log_variance = method.encoder(unit(batch)).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = F.binary_cross_entropy_with_logits(
            method.decoder(code), unit(batch), reduction="sum"
        )
        loss = error / len(mean) + kl_per_dimension(mean, log_variance).sum(1).mean()
        if isinstance(method, FactorVae):
            loss = loss + 20 * total_correlation(method.discriminator(code)).mean()
        return loss
    return F.cross_entropy(method.predict(batch), batch.labels) if optimiser == "head" else None


def defects(method: Method, batch: Batch) -> set[str]:
    """What is wrong with a model's first step, optimiser by optimiser."""
    found, held = set(), set()
    for phase in method.train().phases(TRAIN.training_data()):
        for optimiser, given in method.optimisers(phase.name).items():
            adam, losses = make_optimiser(given), {}
            before = {key: value.clone() for key, value in method.named_parameters()}
            torch.manual_seed(0)
            with torch.no_grad():
                expected = expected_loss(method, optimiser, phase.name, batch)

            def update(name, loss, asked=optimiser, given=given, adam=adam, losses=losses):
                losses[name] = loss.detach()
                if name == asked:
                    loss.backward(inputs=list(given.parameters))
                    adam.step()

            torch.manual_seed(0)
            output = method.training_step(phase.name, batch, update)
            if optimiser == "model":
                expected = F.cross_entropy(output.logits, batch.labels)
            own = {id(parameter) for parameter in given.parameters}
            held |= own
            for key, value in method.named_parameters():
                if torch.equal(value, before[key]) == (id(value) in own):
                    verb = "does not move" if id(value) in own else "moves"
                    found.add(f"{optimiser} {verb} {key.split('.')[0]}")
            if expected is not None and not torch.allclose(losses[optimiser], expected, rtol=1e-3):
                found.add(f"{optimiser} lowers another loss")
    for key, value in method.named_parameters():
        if id(value) not in held:
            found.add(f"nothing moves {key.split('.')[0]}")
    return found


def made(name: str, kind: type[Method] | None = None) -> Method:
    settings = load_settings(name)
    kind = kind or KINDS[settings["method"]["name"]]
    method = initialised(lambda: kind(settings, 6, SIZE), 0)
    if isinstance(method, FactorVae):  # a penalty that can be seen beside the reconstruction
        method.discriminator.layers[-1].weight.data *= 1e5
    return method


@pytest.fixture(scope="module")
def batch() -> Batch:
    return TRAIN.batch(torch.arange(6))


@pytest.mark.parametrize(
    "name",
    [
        "small_cnn",
        "alexnet",
        "resnet18",
        "resnet50",
        "wide_resnet50_2",
        "densenet161",
        "asr",
        "vae",
        "factor_vae",
    ],
)
def test_each_step_moves_all_that_its_optimiser_holds_and_nothing_else(name, batch):
    assert defects(made(name), batch) == set()


class Detached(Vae):
    def posterior(self, images):
        return tuple(part.detach() for part in super().posterior(images))


class TenTimes(Vae):
    def negative_elbo(self, batch):
        loss, code = super().negative_elbo(batch)
        return 10 * loss, code


class NoPenalty(FactorVae):
    def build(self):
        super().build()
        self.options.gamma = 0.0


class FrozenDecoder(Vae):
    def optimisers(self, phase):
        return {
            name: self.optimiser(self.encoder) if name == "vae" else given
            for name, given in super().optimisers(phase).items()
        }


class FrozenLens(Asr):
    def optimisers(self, phase):
        return {"model": super().optimisers(phase)["model"], "lens": self.optimiser(self.lens.up)}


class DetachedBody(Erm):
    def training_step(self, phase, batch, update):
        logits = self.model.head(self.model.features(batch.inputs).detach())
        losses = self.losses(logits, batch.labels)
        update("model", losses.mean())
        return super().validation_step(phase, batch)


class TenTimesCrossEntropy(Erm):
    def combine(self, losses, batch):
        return 10 * losses.mean()


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("vae", Detached, "vae does not move encoder"),
        ("vae", TenTimes, "vae lowers another loss"),
        ("vae", FrozenDecoder, "nothing moves decoder"),
        ("factor_vae", NoPenalty, "vae lowers another loss"),
        ("asr", FrozenLens, "nothing moves lens"),
        ("resnet18", DetachedBody, "model does not move model"),
        ("resnet18", TenTimesCrossEntropy, "model lowers another loss"),
    ],
)
def test_a_planted_defect_is_seen_in_the_first_step(name, kind, found, batch):
    assert found in defects(made(name, kind), batch)


def trained(kind: type[Method], method: dict, model: str | None, epochs: int, lr: float) -> Method:
    settings = settings_of(model, method, lr)
    made = initialised(lambda: kind(settings, 6, SIZE), 0)
    run = Run("mine", "zso", "hue", "hue", (), 0)
    Trainer(made, TRAIN, VAL, run, Protocol(epochs, None, 3)).fit()
    return made.eval()


def accuracy(method: Method) -> float:
    return (method.predict(HELD_OUT).argmax(1) == HELD_OUT.labels).float().mean().item()


class Averaged(Vae):
    """The reconstruction is averaged over pixels, so the KL divergence weighs 12,288 times as
    much."""

    def negative_elbo(self, batch):
        loss, code = super().negative_elbo(batch)
        divergence = kl_per_dimension(*self.posterior(unit(batch))).sum(1)
        return (loss - divergence) / batch.pixels[0].numel() + divergence, code


@pytest.mark.parametrize(
    ("kind", "options", "learns"),
    [(Vae, {"name": "vae"}, True), (FactorVae, SMALL, True), (Averaged, {"name": "vae"}, False)],
)
@torch.no_grad()
def test_an_autoencoder_learns_colour_and_place(kind, options, learns):
    """It beats the mean image by a quarter, its code holds something, and the head reads the
    colour."""
    options = {**options, "vae_epochs": 10, "head_lr": 1e-2}
    with torch.enable_grad():
        method = trained(kind, options, None, 15, 2e-3)
    images = unit(HELD_OUT)
    mean, log_variance = method.posterior(images)
    image = unit(TRAIN.batch(torch.arange(256))).mean(0)
    of_mean = F.binary_cross_entropy(image.expand_as(images), images)
    reconstruction = F.binary_cross_entropy_with_logits(method.decoder(mean).float(), images)
    found = (
        (reconstruction < 0.75 * of_mean).item(),
        (kl_per_dimension(mean, log_variance).mean(0).max() > 0.5).item(),
        accuracy(method) > 0.9,
    )
    assert found == ((True,) * 3 if learns else (False,) * 3)


@pytest.mark.parametrize("adversary", [True, False])
def test_the_classifier_learns_and_the_lens_learns_to_mislead_it(adversary, monkeypatch):
    """Trained alone at the end, the lens makes the least likely class likelier, and changes the
    image little."""
    if not adversary:
        monkeypatch.setattr(asr, "least_likely_loss", lambda logits: 0 * logits.sum(1))
    options = {"name": "asr", "base_width": 8, "levels": 2}
    method = trained(Asr, options, "small_cnn", 3, 1e-3)
    given = method.optimisers("classify")["lens"]
    adam = make_optimiser(given)

    def update(name, loss):
        if name == "lens":
            adam.zero_grad()
            loss.backward(inputs=list(given.parameters))
            adam.step()

    def misled() -> float:
        return least_likely_loss(method.predict(HELD_OUT)).mean().item()

    assert accuracy(method) > 0.9
    before = misled()
    for index in torch.arange(256).split(16):
        method.training_step("classify", TRAIN.batch(index), update)
    with torch.no_grad():
        changed = change(method.lens(HELD_OUT.inputs), HELD_OUT.inputs).mean().item()
    assert (misled() < 0.9 * before) == adversary
    assert (0.001 < changed < 2) == adversary


@torch.no_grad()
def test_resnet18_learns_colour():
    with torch.enable_grad():
        method = trained(Erm, {"name": "erm"}, "resnet18", 2, 1e-3)
    assert accuracy(method) > 0.9
