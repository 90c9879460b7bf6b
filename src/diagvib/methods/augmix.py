"""`augmix`: predictions should agree on an image and two mixtures of chains of changes (Hendrycks
et al., 2020)."""

import torch
from torch import Tensor
from torch.distributions import Dirichlet
from torch.nn import functional as F
from torchvision.transforms.v2 import functional as changes

from diagvib.methods.method import Batch, Method, StepOutput, Update
from diagvib.methods.mixup import random_share


class AugMix(Method):
    """The loss is the cross entropy of the clean image plus js_weight times the Jensen-Shannon
    divergence of the three predictions. A mixture is m x + (1 - m) sum_k w_k chain_k(x): `width`
    chains of 1 to `depth` operations, w from a Dirichlet and m from a Beta distribution with
    parameter alpha.

    Lengths and operations are assigned to a batch's chains in equal shares, at random. Published
    for UrbanCars: severity 1, which is also AugMix's own for ImageNet (3 for CIFAR), js_weight 12,
    and images flipped at random; flip is false here, since a mirrored digit is another shape.
    """

    pixels = True
    options = {
        "severity": {
            "description": "how strong an operation may be, of 10",
            "type": "number",
            "minimum": 0.1,
            "maximum": 10,
            "default": 1.0,
        },
        "width": {"minimum": 1, "maximum": 100, "default": 3},
        "depth": {"minimum": 1, "maximum": 100, "default": 3},
        "alpha": {"minimum": 0.05, "maximum": 1000, "default": 1.0},
        "js_weight": {"minimum": 0, "maximum": 1.0e9, "default": 12.0},
        "flip": {
            "description": "mirror half of the images, left to right",
            "default": False,
        },
    }

    def training_step(self, phase, batch, update):
        pixels = batch.pixels
        if self.options.flip:
            mirrored = torch.rand(len(pixels), 1, 1, 1, device=pixels.device) < 0.5
            pixels = torch.where(mirrored, pixels.flip(2), pixels)
        logits = self.model(self.views(pixels).flatten(0, 1))
        return consistent_step(self, logits, self.options.js_weight, batch, update)

    def views(self, pixels: Tensor) -> Tensor:
        """Inputs float[3, B, 3, H, W] of uint8[B, H, W, 3]: the clean images, and two mixtures of
        each."""
        clean, width, alpha = self.data.inputs(pixels), self.options.width, self.options.alpha
        # Without autocast: coordinates of pixels need more than bf16.
        with torch.autocast(pixels.device.type, enabled=False):
            chains = pixels.permute(0, 3, 1, 2).repeat(2 * width, 1, 1, 1)
            change_in_chains(chains, self.options.depth, self.options.severity / 10)
        inputs = self.data.inputs(chains.permute(0, 2, 3, 1)).unflatten(0, (2, width, -1))
        parameters = torch.full((width,), alpha, device=pixels.device)
        weights = (
            Dirichlet(parameters, validate_args=False).sample((2, len(pixels))).transpose(1, 2)
        )
        clean_share = random_share(alpha, pixels.device, 2, len(pixels))[..., None, None, None]
        mixtures = clean_share * clean + (1 - clean_share) * (
            weights[..., None, None, None] * inputs
        ).sum(1)
        return torch.cat([clean[None], mixtures])


def consistent_step(
    method: Method, logits: Tensor, js_weight: float, batch: Batch, update: Update
) -> StepOutput:
    """A step whose loss is the cross entropy of the clean images plus js_weight times the divergence
    of all views' predictions. logits: [views * B, classes], those of the clean images first."""
    logits = logits.float().unflatten(0, (-1, len(batch.labels)))
    losses = method.losses(logits[0], batch.labels) + js_weight * jensen_shannon(logits)
    update("model", losses.mean())
    return StepOutput(losses, logits[0])


def jensen_shannon(logits: Tensor) -> Tensor:
    """Mean over the views of the divergence of each from their mean, in nats, float[B]; the mean is
    at least 1e-7.

    logits: float[views, B, classes].
    """
    logs = logits.log_softmax(-1)
    mean = logs.exp().mean(0).clamp(min=1e-7).log()
    return (logs.exp() * (logs - mean)).sum(-1).mean(0)


def change_in_chains(images: Tensor, depth: int, strength: float) -> None:
    """Change uint8[N, 3, H, W] in place by chains of operations: lengths from 1 to `depth` occur
    equally often, and so does every operation at each position in a chain. strength: the largest,
    out of 1."""
    n, device = len(images), images.device
    order = torch.rand(n, device=device).argsort()
    for length in range(depth):
        longer = order[: n - n * length // depth]
        shuffled = longer[torch.rand(len(longer), device=device).argsort()]
        for operation, chain_images in zip(
            OPERATIONS, shuffled.tensor_split(len(OPERATIONS)), strict=True
        ):
            if len(chain_images):
                images[chain_images] = operation(
                    images[chain_images],
                    torch.empty(len(chain_images), device=device).uniform_(0.01, strength),
                )


def _posterize(images: Tensor, strength: Tensor) -> Tensor:
    bits = 4 - (4 * strength).floor()
    return images & (256 - 2 ** (8 - bits)).to(torch.uint8)[:, None, None, None]


def _solarize(images: Tensor, strength: Tensor) -> Tensor:
    threshold = 256 - (256 * strength).floor()
    return torch.where(images >= threshold[:, None, None, None], 255 - images, images)


def _signed(strength: Tensor) -> Tensor:
    return torch.where(torch.rand_like(strength) < 0.5, strength, -strength)


def _rotate(images: Tensor, strength: Tensor) -> Tensor:
    angle = (30 * _signed(strength)).trunc().deg2rad()
    return _moved(images, angle.cos(), -angle.sin(), 0, angle.sin(), angle.cos(), 0)


def _shear_x(images: Tensor, strength: Tensor) -> Tensor:
    slope = 0.3 * _signed(strength)
    return _moved(images, 1, slope, slope, 0, 1, 0)  # the first row of pixels is fixed


def _translate_x(images: Tensor, strength: Tensor) -> Tensor:
    size = images.shape[3]
    return _moved(images, 1, 0, 2 / size * (size / 3 * _signed(strength)).trunc(), 0, 1, 0)


def _moved(images: Tensor, *entries: Tensor | float) -> Tensor:
    """A 2 x 3 matrix on coordinates from -1 to 1 says where each pixel's colour comes from; black
    from outside."""
    ones = torch.ones(len(images), device=images.device)
    matrix = torch.stack([entry * ones for entry in entries], 1).unflatten(1, (2, 3))
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)


def _upright(operation):
    """The same operation along the other axis."""
    return lambda images, strength: operation(images.mT, strength).mT


OPERATIONS = (
    lambda images, strength: changes.autocontrast(images),
    lambda images, strength: changes.equalize(images),
    _posterize,
    _solarize,
    _rotate,
    _shear_x,
    _upright(_shear_x),
    _translate_x,
    _upright(_translate_x),
)
