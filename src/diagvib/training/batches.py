"""Images on the training device: z-scored and cut into batches there."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from diagvib.methods.method import Batch

# Images per step where nothing is learned; any value gives the same losses up to rounding. What is larger than a CPU's
# cache takes it up to twice as long.
_EVALUATION_BATCH, _EVALUATION_BATCH_CPU = 256, 32


@dataclass(frozen=True)
class Scaling:
    """Per-channel mean and standard deviation that z-score the pixels (0..255) of one dataset."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def measured(cls, pixels: Tensor) -> "Scaling":
        """Over all images, uint8[N, H, W, C]; exact, hence the same in any order and on any device."""
        channels = pixels.shape[-1]
        total = torch.zeros(2, channels, dtype=torch.float64, device=pixels.device)
        # float32 holds the sum of 256 squares of bytes, below 2**24, exactly.
        for part in pixels.split(256):
            values = part.flatten(1).float()
            sums = torch.stack([values.sum(0), values.square_().sum(0)])
            total += sums.double().unflatten(1, (-1, channels)).sum(1)
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
        self._mean, self._factor = self._operands()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def resident(self) -> bool:
        """Whether the images lie on the device."""
        return self.pixels.device.type == self.device.type

    def refill(self, pixels: Tensor, labels: Tensor, scaling: Scaling | None = None) -> bool:
        """Put other images in the place of these, at the same addresses. False, and nothing done, if they do not fit.

        Arguments as for a new one.
        """
        if not self.resident or pixels.shape != self.pixels.shape:
            return False
        self.pixels.copy_(pixels)
        self.labels.copy_(labels)
        self.scaling = scaling or Scaling.measured(self.pixels)
        for held, new in zip((self._mean, self._factor), self._operands(), strict=True):
            held.copy_(new)
        return True

    def batch(self, index: Tensor) -> Batch:
        """The images of these indices, int64[B]; the inputs are channels-last in memory."""
        index = index.to(self.pixels.device)
        if self.resident:
            return self._scaled(self.pixels[index], self.labels[index])
        pixels = torch.empty(len(index), *self.pixels.shape[1:], dtype=torch.uint8, pin_memory=True)
        torch.index_select(self.pixels, 0, index, out=pixels)
        # From pinned memory, which torch keeps until it is copied, the device fetches while the host goes on.
        return self._scaled(pixels.to(self.device, non_blocking=True),
                            self.labels[index.pin_memory().to(self.device, non_blocking=True)])

    def in_order(self) -> Iterator[Batch]:
        """Every image once, in order; the last batch may be smaller."""
        size = _EVALUATION_BATCH_CPU if self.device.type == "cpu" else _EVALUATION_BATCH
        for start in range(0, len(self), size):
            at = slice(start, start + size)
            pixels = self.pixels[at] if self.resident else self.pixels[at].pin_memory().to(self.device,
                                                                                          non_blocking=True)
            yield self._scaled(pixels, self.labels[at])

    def _scaled(self, pixels: Tensor, labels: Tensor) -> Batch:
        inputs = pixels.float().sub_(self._mean).mul_(self._factor).permute(0, 3, 1, 2)
        return Batch(pixels, inputs, labels)

    def _operands(self) -> tuple[Tensor, Tensor]:
        # As large as an image: a three-element operand would make the innermost loop three elements long.
        mean = torch.tensor(self.scaling.mean, device=self.device)
        factor = torch.tensor(self.scaling.std, device=self.device).reciprocal()
        shape = self.pixels.shape[1:]
        return mean.expand(shape).contiguous(), factor.expand(shape).contiguous()


def _fits(pixels: Tensor, device: torch.device) -> bool:
    # Half of what is free: the weights, activations and the other splits need room too.
    return device.type != "cuda" or pixels.nbytes < torch.cuda.mem_get_info(device)[0] / 2
