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
        "p": {"minimum": 0, "maximum": 1, "default": 0.1},
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

    def augment(self, batch):
        return replace(batch, inputs=batch.inputs.masked_fill(self._boxes(batch)[:, None], 0))

    def _boxes(self, batch: Batch) -> Tensor:
        """The pixels to erase, bool[B, H, W]."""
        images, size = len(batch.inputs), batch.inputs.shape[3]
        proposals = torch.empty(2, images, _ATTEMPTS, device=batch.inputs.device)
        area = proposals[0].uniform_(*sorted(self.options.area)) * size**2
        ratio = proposals[1].uniform_(*map(math.log, sorted(self.options.ratio))).exp()
        sides = torch.stack([area * ratio, area / ratio]).sqrt().round()
        fits = (sides < size).all(0)
        first_fit = fits.int().argmax(1).expand(2, images)[:, :, None]
        side = sides.gather(2, first_fit)  # [2, B, 1]: height and width
        erased = fits.any(1, keepdim=True) & (torch.rand_like(side[0]) < self.options.p)
        start = (torch.rand_like(side) * (size - side + 1)).floor()
        pixels = torch.arange(size, device=side.device)
        rows, columns = (pixels >= start) & (pixels < start + side)
        return rows[:, :, None] & columns[:, None, :] & erased[:, :, None]
