"""`masktune`: after training, one more epoch on images without the pixels that decided (Asgari
Taghanaki et al., 2022)."""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from diagvib.methods.method import Method, Phase
from diagvib.methods.w2d import features_and_map, last_pool, map_cells


class MaskTune(Method):
    """Phase `classify`: plain training. Phase `mask`: `mask_epochs` more, on images that are black
    where the heat of the network as trained before, XGrad-CAM of its last feature map for the class
    that it predicts (`heat`), is more than `deviations` standard deviations above the mean; both
    are taken over an image's pixels with positive heat.

    Needs a network whose features are its pooled last map.
    """

    pixels = True
    options = {
        "mask_epochs": {"minimum": 1, "maximum": 100_000, "default": 1},
        "deviations": {"minimum": -100, "maximum": 100, "default": 2.0},
    }
    uses_head = True

    def build(self):
        super().build()
        map_cells(self)
        self.trained = deepcopy(self.model)

    def phases(self, data):
        return [*super().phases(data), Phase("mask", self.options.mask_epochs)]

    def start_phase(self, phase, data):
        if phase == "mask":
            self.trained.load_state_dict(self.model.state_dict())

    def training_step(self, phase, batch, update):
        if phase == "mask":
            masked = hot(self.heat(batch.inputs), batch.pixels.shape[1], self.options.deviations)
            pixels = batch.pixels.masked_fill(masked[..., None], 0)
            batch = replace(batch, pixels=pixels, inputs=self.data.inputs(pixels))
        return super().training_step(phase, batch, update)

    def heat(self, inputs: Tensor) -> Tensor:
        """For maps M [channels, cells] with the gradient g of the largest logit, the positive part
        of sum_k w_k M_k with w_k = sum(g_k M_k) / sum(M_k): float[B, h, w], its least value 0."""
        network = self.trained.eval()
        pool = last_pool(network)
        with torch.no_grad():
            _, maps = features_and_map(network, pool, inputs)
        with torch.autocast(inputs.device.type, enabled=False):
            maps = maps.float().requires_grad_()
            largest = network.head(pool(maps).flatten(1)).amax(1).sum()
            (gradient,) = torch.autograd.grad(largest, maps)
        with torch.no_grad():
            weight = (gradient * maps).sum((2, 3)) / (maps.sum((2, 3)) + 1e-7)
            heat = (weight[:, :, None, None] * maps).sum(1).clamp(min=0)
            return heat - heat.amin((1, 2), keepdim=True)


def hot(heat: Tensor, size: int, deviations: float) -> Tensor:
    """Which pixels are hotter than the mean plus so many standard deviations of an image's positive
    values, bool[B, size, size]; heat: float[B, h, w], at least 0, interpolated bilinearly."""
    heat = F.interpolate(heat[:, None], (size, size), mode="bilinear")[:, 0]
    positive = (heat > 0).float()
    count = positive.sum((1, 2), keepdim=True).clamp(min=1)
    mean = heat.sum((1, 2), keepdim=True) / count
    variance = (positive * (heat - mean).square()).sum((1, 2), keepdim=True) / count
    return heat > mean + deviations * variance.sqrt()
