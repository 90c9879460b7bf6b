"""Images on the training device: z-scored and cut into batches there."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from diagvib.images.memory import fits_on
from diagvib.methods.method import Batch, Counterfactuals, TrainingData
from diagvib.training.augmentation import Augmentation, augmentation

# Images per step where nothing is learned; any value gives the same losses up to rounding. More
# than fits into a CPU's cache takes up to twice as long.
_EVALUATION_BATCH, _EVALUATION_BATCH_CPU = 256, 32


@dataclass(frozen=True)
class Scaling:
    """Per-channel mean and standard deviation that z-score the pixels (0..255) of one dataset."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of_parts(cls, parts: Iterable[Tensor]) -> "Scaling":
        """Of all images, uint8[N, H, W, C] in each part; exact, hence the same in any order and on
        any device."""
        total, n = 0, 0
        for pixels in parts:
            # float32 holds the sum of 256 squared bytes, below 2**24, exactly.
            for part in pixels.split(256):
                values, channels = part.flatten(1).float(), part.shape[-1]
                sums = torch.stack([values.sum(0), values.square_().sum(0)])
                total = total + sums.double().unflatten(1, (-1, channels)).sum(1)
                n += part.numel() // channels
        sums, squares = ([int(value) for value in row] for row in total.tolist())
        std = [math.sqrt(n * q - s * s) / n for s, q in zip(sums, squares, strict=True)]
        return cls(tuple(s / n for s in sums), tuple(value or 1.0 for value in std))


# Features of a frozen network are used as they are.
UNSCALED = Scaling((0.0,), (1.0,))
# Statistics of ImageNet's training images, for pixels in 0..255, with which torchvision's weights
# were trained.
IMAGENET = Scaling((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))


@dataclass(frozen=True)
class Annotations:
    """Facts about a split's images besides their target class.

    cues: int64[N, k], the class of each cue; environment: int64[N]; None: no cue, one environment.
    classes: names of the target's classes; cue_classes: those of each cue, by the cue's name;
    environments: names. cue_label: int64[N, k], the target class that each cue points to, -1 for
    none.
    """

    cues: Tensor | None = None
    environment: Tensor | None = None
    classes: tuple[str, ...] = ()
    cue_classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    environments: tuple[str, ...] = ("main",)
    cue_label: Tensor | None = None


class Batches:
    """The images of one split as batches on the device. The bytes are there too, unless its memory
    is too small; then each batch is copied to it."""

    def __init__(
        self,
        pixels: Tensor,
        labels: Tensor,
        device: torch.device,
        scaling: Scaling | None = None,
        annotations: Annotations | None = None,
        counterfactuals: Counterfactuals | None = None,
        augment: Augmentation | None = None,
    ):
        """pixels: uint8[N, H, W, 3], or features of a frozen network, float[N, D]; labels: int64[N];
        scaling None: computed from these images.
        augment: random changes to the images of `batch`; those of `in_order` are not changed."""
        self.device, self.annotations = device, annotations or Annotations()
        self.counterfactuals, self.augment = counterfactuals, augment or augmentation(())
        self.views: dict[str, Tensor] = {}
        self.pixels = pixels.to(device) if fits_on(device, pixels.nbytes) else pixels
        image_annotations = self.annotations
        cues = (
            labels.new_empty(len(labels), 0)
            if image_annotations.cues is None
            else image_annotations.cues
        )
        environment = (
            torch.zeros_like(labels)
            if image_annotations.environment is None
            else image_annotations.environment
        )
        self.labels, self.cues = labels.to(device), cues.to(device)
        self.environment = environment.to(device)
        self.cue_label = (
            None if image_annotations.cue_label is None else image_annotations.cue_label.to(device)
        )
        self.scaling = UNSCALED if pixels.ndim == 2 else scaling or Scaling.of_parts([self.pixels])
        # As large as an image: a three-element operand would make the innermost loop three elements
        # long.
        self._mean, self._factor = (
            torch.tensor(values, device=device).expand(pixels.shape[1:]).contiguous()
            for values in (self.scaling.mean, self.scaling.std)
        )
        self._factor = self._factor.reciprocal()

    def __len__(self) -> int:
        return len(self.labels)

    def training_data(self) -> TrainingData:
        """The facts about these images that a method may know."""
        annotations = self.annotations
        return TrainingData(
            self.labels,
            self.cues,
            self.environment,
            annotations.classes,
            annotations.cue_classes,
            annotations.environments,
            self.in_order,
            self.batch,
            self.inputs,
            self.counterfactuals,
            augment=self.augment,
            views=self.views,
        )

    def batch(self, index: Tensor) -> Batch:
        """The images of these indices, int64[B], for training; the inputs are channels-last in
        memory."""
        pixels = self.pixels[index.to(self.pixels.device)].to(self.device)
        return self._batch(self.augment(pixels), index.to(self.device))

    def in_order(self) -> Iterator[Batch]:
        """Every image once, in order; the last batch may be smaller."""
        size = _EVALUATION_BATCH_CPU if self.device.type == "cpu" else _EVALUATION_BATCH
        indices = torch.arange(len(self), device=self.device)
        for pixels, index in zip(self.pixels.split(size), indices.split(size), strict=True):
            yield self._batch(pixels.to(self.device), index)

    def _batch(self, pixels: Tensor, index: Tensor) -> Batch:
        """A batch from images on the device, and their indices, int64[B]."""
        return Batch(
            pixels,
            self.inputs(pixels),
            self.labels[index],
            self.cues[index],
            self.environment[index],
            index,
        )

    def inputs(self, pixels: Tensor) -> Tensor:
        """Pixels uint8[B, H, W, 3] z-scored, float32[B, 3, H, W]; features as float32."""
        if pixels.ndim == 2:
            return pixels.float()
        return pixels.float().sub_(self._mean).mul_(self._factor).permute(0, 3, 1, 2)
