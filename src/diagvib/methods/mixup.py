"""`mixup`: images and labels are blended with those of another image (Zhang et al., 2018)."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.distributions import Beta

from diagvib.methods.method import Batch, Method


class Mixup(Method):
    """x = s x_i + (1 - s) x_j, and likewise the one-hot labels, with one s ~ Beta(alpha, alpha) per
    batch; j is the previous image in the batch, whose order is random. Published for UrbanCars:
    alpha 0.1."""

    pixels = True
    options = {
        "alpha": {"minimum": 0.05, "maximum": 1000, "default": 0.1},
    }

    def augment(self, batch):
        share = random_share(self.options.alpha, batch.inputs.device)
        partners = batch.inputs.roll(1, 0), batch.labels.roll(1)
        return blended(batch, *partners, share, self.n_classes)


def blended(batch: Batch, inputs: Tensor, labels: Tensor, share: Tensor, n_classes: int) -> Batch:
    """The batch with images s x_i + (1 - s) x_j, and labels likewise; x_j: `inputs`, with their
    `labels`. share: s, float[] or float[B]."""
    return replace(
        batch,
        inputs=batch.inputs.lerp(inputs, (1 - share).view(-1, 1, 1, 1)),
        labels=mixed_labels(batch.labels, labels, share, n_classes),
    )


def random_share(alpha: float, device: torch.device, *shape: int) -> Tensor:
    """Draws of Beta(alpha, alpha), float[shape]."""
    alpha = torch.full(shape, alpha, device=device)
    return Beta(alpha, alpha, validate_args=False).sample()


def mixed_labels(labels: Tensor, partner_labels: Tensor, share: Tensor, n_classes: int) -> Tensor:
    """float[B, n_classes]: `share`, float[] or float[B], of each image's own label int64[B], the
    rest of the other's."""
    # Not one_hot, which inspects the values on the CPU.
    label_hot, partner_hot = (
        (indices[:, None] == torch.arange(n_classes, device=labels.device)).float()
        for indices in (labels, partner_labels)
    )
    share = share.reshape(-1, 1)
    return share * label_hot + (1 - share) * partner_hot
