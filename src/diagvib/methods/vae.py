"""`vae`: images are first compressed to twelve numbers without labels; then a small network
classifies these."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.methods.method import Denormalise, Method, Phase, StepOutput, Unlabelled, Visualisation
from diagvib.methods.sizes import halvings

_HIDDEN = 256
# The values of a latent dimension in pictures: standard deviations of the prior.
_TRAVERSED = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)


class Vae(Method):
    """A variational autoencoder, then a classifier on the means of its latent code (paper, Sec. 4
    and A.2).

    Published: an architecture similar to Locatello et al. (2019), 12 latent dimensions, beta 1,
    batch 64, Adam with lr 1e-4. Choices where the paper is silent: their convolutions for 64 pixels
    get one more stage for 128, so that the code is again read from a map of 4 x 4; a Gaussian
    likelihood of unit variance on the z-scored inputs, summed over pixels (theirs, Bernoulli on
    pixels in 0..1, is the option `bernoulli`; docs/which_factor_wins.md compares them); the phase
    `encode` uses no labels and keeps the weights of lowest validation loss (reconstruction + beta
    KL, the negative ELBO, with one noise draw, the same in every epoch); in the phase `classify`
    encoder and decoder are frozen and an MLP with one hidden layer learns from the posterior means.
    That the encoder is not trained on labels is inferred: the paper explains the low texture
    accuracy by what the decoder cannot reconstruct. DiagvibError for an image size that cannot be
    halved to a map of 4 to 7 cells per side.
    """

    own_network = True
    halvings = "map"
    options = {
        "latent": {"minimum": 1, "maximum": 4096, "default": 12},
        "beta": {"minimum": 0, "maximum": 1.0e9, "default": 1.0},
        "likelihood": {"enum": ["gaussian", "bernoulli"], "default": "gaussian"},
        "vae_epochs": {
            "description": "null: as many as the classifier's",
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": 100_000,
            "default": None,
        },
        "head_width": {"minimum": 1, "maximum": 65_536, "default": 256},
        "head_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 1.0e-3},
    }

    def build(self):
        stages = halvings({"name": self.name}, self.halvings, self.image_size)
        cells = self.image_size // 2**stages
        latent, width = self.options.latent, self.options.head_width
        self.encoder = _encoder(stages, cells, latent)
        self.decoder = _decoder(stages, cells, latent)
        self.head = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, self.n_classes)
        )
        for module in (self.encoder, self.decoder):
            module.apply(_initialise)

    def phases(self, data):
        (classify,) = super().phases(data)
        return [Phase("encode", self.options.vae_epochs or classify.max_epochs), classify]

    def optimisers(self, phase):
        if phase == "classify":
            return {"head": self.optimiser(self.head, lr=self.options.head_lr)}
        return {"vae": self.optimiser(self.encoder, self.decoder)}

    def training_step(self, phase, batch, update):
        output = self.validation_step(phase, batch)
        update("head" if phase == "classify" else "vae", output.loss.mean())
        return output

    def validation_step(self, phase, batch):
        return (
            super().validation_step(phase, batch)
            if phase == "classify"
            else StepOutput(self.negative_elbo(batch)[0])
        )

    def predict(self, batch):
        # Frozen while the head learns; what a trained network looks at needs the gradient.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.training):
            mean, _ = self.posterior(self.observed(batch))
        return self.head(mean)

    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance float32[B, latent] of q(z | x), for `observed` images."""
        return self.encoder(images).float().chunk(2, 1)

    @property
    def gaussian(self) -> bool:
        return self.options.likelihood == "gaussian"

    def observed(self, batch: Unlabelled) -> Tensor:
        """What is compressed and reconstructed, float32[B, 3, H, W]: the inputs or, for a Bernoulli
        likelihood, the pixels in 0..1."""
        if self.gaussian:
            return batch.inputs
        return batch.pixels.permute(0, 3, 1, 2).float() / 255

    def reconstruction_error(self, reconstructions: Tensor, images: Tensor) -> Tensor:
        """Negative log likelihood, but for a constant, of each value of `observed` images under what
        the decoder made."""
        if self.gaussian:
            return (reconstructions - images).square() / 2
        return F.binary_cross_entropy_with_logits(reconstructions, images, reduction="none")

    def negative_elbo(self, batch: Unlabelled) -> tuple[Tensor, Tensor]:
        """Reconstruction + beta KL, float[B], and the latent code drawn for it, float[B, latent].

        The noise comes from torch's global generator, which the trainer seeds for every epoch.
        """
        images = self.observed(batch)
        mean, log_variance = self.posterior(images)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = self.reconstruction_error(self.decoder(code).float(), images)
        divergence = kl_per_dimension(mean, log_variance).sum(1)
        return error.sum((1, 2, 3)) + self.options.beta * divergence, code

    def visualisations(self, batch, denormalise):
        """Images next to their reconstructions; then each latent dimension traversed, the most
        informative first, by mean KL over these images (paper, Figs. A2, A3)."""
        mean, log_variance = self.posterior(self.observed(batch))
        information = kl_per_dimension(mean, log_variance).mean(0)
        pictures = [
            Visualisation("input", batch.pixels, self.head(mean)),
            Visualisation("reconstruction", self._drawn(mean, denormalise)),
        ]
        for dimension in information.argsort(descending=True).tolist():
            codes = mean[0].repeat(len(_TRAVERSED), 1)
            codes[:, dimension] = torch.tensor(_TRAVERSED, device=codes.device)
            decoded, kl = self._drawn(codes, denormalise), information[dimension].item()
            pictures.append(
                Visualisation("traversal", decoded, dimension=dimension, values=_TRAVERSED, kl=kl)
            )
        return pictures

    def _drawn(self, code: Tensor, denormalise: Denormalise) -> Tensor:
        """The decoder's mean pixels uint8[N, H, W, 3] of codes float[N, latent]."""
        decoded = self.decoder(code).float()
        if self.gaussian:
            return denormalise(decoded)
        return (decoded.sigmoid() * 255).round().to(torch.uint8).permute(0, 2, 3, 1)


def kl_per_dimension(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(q || standard normal) of each dimension of diagonal Gaussians, float[B, latent]."""
    return (mean.square() + log_variance.exp() - log_variance - 1) / 2


def _encoder(stages: int, cells: int, latent: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    widths = [3, 32, 32, *[64] * (stages - 2)]
    for stage, (before, after) in enumerate(pairwise(widths)):
        # Kernels of 4, then of 2, as in Locatello et al.'s code.
        layers += [
            nn.Conv2d(before, after, 4, 2, 1) if stage < 2 else nn.Conv2d(before, after, 2, 2),
            nn.ReLU(),
        ]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(64 * cells**2, _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, 2 * latent),
    )


def _decoder(stages: int, cells: int, latent: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise([64, *[64] * (stages - 3), 32, 32, 3]):
        layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.ReLU()]
    return nn.Sequential(
        nn.Linear(latent, _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, 64 * cells**2),
        nn.ReLU(),
        nn.Unflatten(1, (64, cells, cells)),
        *layers[:-1],
    )


def _initialise(module: nn.Module) -> None:
    # Glorot uniform and no bias, the defaults of the framework that Locatello et al. used.
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
