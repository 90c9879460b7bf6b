"""`cutmix`: a box of each image is replaced by another image's, and the label in proportion (Yun et
al., 2019)."""

from dataclasses import replace

import torch
from torch import Tensor

from diagvib.methods.method import Method
from diagvib.methods.mixup import mixed_labels, random_share


class CutMix(Method):
    """One box per batch: its sides are sqrt(1 - s) of the image's, s ~ Beta(alpha, alpha), its
    centre is uniform, and what extends beyond the edge is cut off. It shows the previous image in
    the batch, whose label gets the share of pixels that the box actually covers. Published, also
    for UrbanCars: alpha 1."""

    pixels = True
    options = {
        "alpha": {"minimum": 0.05, "maximum": 1000, "default": 1.0},
    }

    def augment(self, batch):
        side = (1 - random_share(self.options.alpha, batch.inputs.device)).sqrt()
        box = _span(side, batch.inputs.shape[2])[:, None] & _span(side, batch.inputs.shape[3])
        return replace(
            batch,
            inputs=torch.where(box, batch.inputs.roll(1, 0), batch.inputs),
            labels=mixed_labels(
                batch.labels, batch.labels.roll(1), 1 - box.float().mean(), self.n_classes
            ),
        )


def _span(side: Tensor, size: int) -> Tensor:
    """Which of `size` pixels are in a stretch of side x size pixels around a random one,
    bool[size]."""
    centre, half = torch.randint(size, (), device=side.device), (side * size / 2).floor()
    pixels = torch.arange(size, device=side.device)
    return (pixels >= centre - half) & (pixels < centre + half)
