"""Images on the training device: z-scored and cut into batches there."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from diagvib.baselines.base import Batch

# Images per step where nothing is learned; any value gives the same losses up to rounding.
_EVALUATION_BATCH = 256


@dataclass(frozen=True)
class Scaling:
    """Per-channel mean and standard deviation that z-score the pixels (0..255) of one dataset."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def measured(cls, pixels: Tensor) -> "Scaling":
        """Over all images, uint8[N, H, W, C]; exact, hence the same in any order and on any device."""
        channels = pixels.shape[-1]
        total = torch.zeros(2, channels, dtype=torch.float64)
        # float32 holds the sum of 256 squares of bytes, below 2**24, exactly.
        for part in pixels.split(256):
            values = part.flatten(1).float()
            sums = torch.stack([values.sum(0), values.square_().sum(0)])
            total += sums.double().unflatten(1, (-1, channels)).sum(1).cpu()
        n = pixels.numel() // channels
        sums, squares = ([int(value) for value in row] for row in total.tolist())
        std = [math.sqrt(n * q - s * s) / n for s, q in zip(sums, squares, strict=True)]
        return cls(tuple(s / n for s in sums), tuple(value or 1.0 for value in std))


class Batches:
    """The images of one split as batches on the device. The bytes lie there too, unless its memory is too small."""

    def __init__(self, pixels: Tensor, labels: Tensor, device: torch.device, scaling: Scaling | None = None):
        """pixels: uint8[N, H, W, 3]; labels: int64[N]; scaling None: that of these very images."""
        self.device = device
        self.pixels = pixels.to(device) if _fits(pixels, device) else pixels
        self.labels = labels.to(device)
        self.scaling = scaling or Scaling.measured(self.pixels)
        # As large as an image: a three-element operand would make the innermost loop three elements long.
        self._mean = torch.tensor(self.scaling.mean, device=device).expand(pixels.shape[1:]).contiguous()
        self._factor = torch.tensor(self.scaling.std, device=device).reciprocal().expand(pixels.shape[1:]).contiguous()

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> Batch:
        """The images of these indices, int64[B]; the inputs are channels-last in memory."""
        pixels = self.pixels[index.to(self.pixels.device)].to(self.device, non_blocking=True)
        inputs = pixels.float().sub_(self._mean).mul_(self._factor).permute(0, 3, 1, 2)
        return Batch(pixels, inputs, self.labels[index.to(self.device)])

    def in_order(self) -> Iterator[Batch]:
        """Every image once, in order; the last batch may be smaller."""
        for index in torch.arange(len(self)).split(_EVALUATION_BATCH):
            yield self.batch(index)


def _fits(pixels: Tensor, device: torch.device) -> bool:
    # Half of what is free: the weights, activations and the other splits need room too.
    return device.type != "cuda" or pixels.nbytes < torch.cuda.mem_get_info(device)[0] / 2
