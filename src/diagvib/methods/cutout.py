"""`cutout`: sometimes a box of an image is erased (DeVries and Taylor, 2017; random boxes: Zhong et
al., 2020)."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from diagvib.methods.method import Batch, Method

# Attempts to draw a box for an image before it is left unchanged, because no box was smaller than
# the image.
_ATTEMPTS = 10


class Cutout(Method):
    """Each image is erased with probability p: inside a box the inputs become 0, the dataset's
    mean. The box's share of the image is uniform in `area`, the ratio of its height to its width is
    log-uniform in `ratio`, and its position is uniform. Published for UrbanCars, where cutout is
    random erasing: p 0.1, area 0.02 to 0.33, ratio 0.3 to 3.3."""

    pixels = True
    options = {
        "p": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.1},
        "area": {
            "description": "smallest and largest share",
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "default": [0.02, 0.33],
        },
        "ratio": {
            "description": "smallest and largest",
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {"type": "number", "exclusiveMinimum": 0},
            "default": [0.3, 3.3],
        },
    }

    def augment(self, batch: Batch) -> Batch:
        return replace(batch, inputs=batch.inputs.masked_fill(self._boxes(batch)[:, None], 0))

    def _boxes(self, batch: Batch) -> Tensor:
        """The pixels to erase, bool[B, H, W]."""
        size, drawn = (
            batch.inputs.shape[2:],
            torch.empty(2, len(batch.inputs), _ATTEMPTS, device=batch.inputs.device),
        )
        area = drawn[0].uniform_(*self.options.area) * math.prod(size)
        ratio = drawn[1].uniform_(*map(math.log, self.options.ratio)).exp()
        height, width = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
        fits = (height < size[0]) & (width < size[1])
        first = fits.int().argmax(1, keepdim=True)
        erased = fits.any(1, keepdim=True) & (torch.rand_like(area[:, :1]) < self.options.p)
        spans = []
        for side, whole in zip(
            (height.gather(1, first), width.gather(1, first)), size, strict=True
        ):
            start = (torch.rand_like(side) * (whole - side + 1)).floor()
            at = torch.arange(whole, device=side.device)
            spans.append((at >= start) & (at < start + side))
        return spans[0][:, :, None] & spans[1][:, None, :] & erased[:, :, None]
