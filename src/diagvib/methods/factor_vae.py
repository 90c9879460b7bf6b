"""`factor_vae`: the VAE with a penalty on the dependence between its latent dimensions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.methods.method import Optimiser, StepOutput
from diagvib.methods.vae import Vae


class FactorVae(Vae):
    """`vae` plus gamma times the total correlation of its code, estimated by a discriminator
    (paper, Sec. 4 and A.2).

    The discriminator tells codes of images from codes whose dimensions were shuffled separately
    over the batch. Published: gamma 20, discriminator lr 1e-5, else as the VAE. Choices where the
    paper is silent, all as in Locatello et al.'s code: six hidden layers of 1000 with
    LeakyReLU(0.2), Adam betas 0.5 and 0.9, the shuffled codes from the same batch, the
    discriminator's step after the VAE's. Its logits are computed in float32, since the estimate is
    a small difference; probabilities are not clipped, since log-softmax needs no clipping.
    Validation loss without the penalty.
    """

    options = {
        "gamma": {"minimum": 0, "maximum": 1.0e9, "default": 20.0},
        "discriminator_lr": {
            "exclusiveMinimum": 0,
            "maximum": 1000,
            "default": 1.0e-5,
        },
        "discriminator_betas": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "default": [0.5, 0.9],
            "items": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        },
        "discriminator_width": {
            "minimum": 1,
            "maximum": 65_536,
            "default": 1000,
        },
        "discriminator_layers": {"minimum": 1, "maximum": 100, "default": 6},
    }

    def build(self):
        super().build()
        self.discriminator = Discriminator(
            self.options.latent,
            self.options.discriminator_width,
            self.options.discriminator_layers,
        )

    def optimisers(self, phase):
        optimisers = super().optimisers(phase)
        if phase == "encode":
            optimisers["discriminator"] = Optimiser(
                list(self.discriminator.parameters()),
                {
                    "name": "adam",
                    "lr": self.options.discriminator_lr,
                    "betas": list(map(float, self.options.discriminator_betas)),
                    "weight_decay": 0.0,
                },
            )
        return optimisers

    def training_step(self, phase, batch, update):
        if phase == "classify":
            return super().training_step(phase, batch, update)
        loss, code = self.negative_elbo(batch)
        loss = loss + self.options.gamma * total_correlation(self.discriminator(code))
        update("vae", loss.mean())
        code = code.detach()
        update(
            "discriminator",
            discriminator_loss(self.discriminator(code), self.discriminator(shuffled(code))),
        )
        return StepOutput(loss.detach())


class Discriminator(nn.Module):
    """Codes float[B, latent] to logits float32[B, 2]: 0, of an image; 1, shuffled."""

    def __init__(self, latent: int, width: int, layers: int):
        super().__init__()
        hidden: list[nn.Module] = []
        for layer in range(layers):
            hidden += [nn.Linear(width if layer else latent, width), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 2))

    def forward(self, code: Tensor) -> Tensor:
        with torch.autocast(code.device.type, enabled=False):
            return self.layers(code.float())


def total_correlation(logits: Tensor) -> Tensor:
    """From the discriminator's logits: float[B], whose mean estimates KL(q(z) || product of the
    q(z_j))."""
    return logits[:, 0] - logits[:, 1]


def discriminator_loss(of_images: Tensor, of_shuffled: Tensor) -> Tensor:
    """Mean cross entropy of telling the two kinds of codes apart, from logits [B, 2] of each."""
    real = torch.zeros(len(of_images), dtype=torch.int64, device=of_images.device)
    return (F.cross_entropy(of_images, real) + F.cross_entropy(of_shuffled, real + 1)) / 2


def shuffled(code: Tensor) -> Tensor:
    """Every column of float[B, latent] permuted separately: a draw from the product of the
    marginals."""
    return code.gather(0, torch.rand_like(code).argsort(0))
