"""`w2d`: learn from the hardest images, without the cells that contribute most (Huang et al.,
2022)."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Method, StepOutput
from diagvib.models.maps import evidence
from diagvib.models.network import Network

# By how much erasing must lower a probability, as in the authors' code.
_MIN_DROP = 1e-4


class W2d(Method):
    """The loss is the cross entropy of the hardest images, with some cells of their last feature
    map erased.

    Hard images are the share `hard_images` of a batch with the largest cross entropy; in the last
    share `final_steps` of the training, all are hard. On an image's map M [channels, cells], with g
    the mean over cells of the gradient of the true class's logit, the share `cells` with the
    largest sum of g M over channels is erased; but only in the share `erased_images` of the hard
    images whose probability of the true class this lowers most, and by more than 1e-4. The number of
    erased images is rounded, the others are rounded down, that of hard images to no less than one.

    The hard images' losses are taken from one pass over the full batch, so batch norm sees all of
    it. Needs a network whose features are its pooled last map.
    """

    pixels = True
    options = {
        "hard_images": {
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 0.3333333333333333,
        },
        "final_steps": {"minimum": 0, "maximum": 1, "default": 0.25},
        "cells": {"exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.25},
        "erased_images": {
            "minimum": 0,
            "maximum": 1,
            "default": 0.3333333333333333,
        },
    }
    uses_head = True

    def build(self):
        super().build()
        cells = map_cells(self)
        self.erased_cells = int(self.options.cells * cells)
        if not self.erased_cells:
            raise DiagvibError(
                f"method: {self.name}: of the {cells} cells of model "
                f"{self.settings['model']['name']}'s last feature map, cells: {self.options.cells} "
                "erases none; raise it, or use larger images"
            )
        self.pool = last_pool(self.model)

    def setup(self, data):
        super().setup(data)
        images, size = len(data), self.settings["batch_size"]
        if not self.settings.get("drop_last", True):
            images += size - 1
        self.hard_until = (1 - self.options.final_steps) * data.max_epochs * (images // size)
        self.memory["step"] = torch.zeros((), dtype=torch.int64, device=data.labels.device)

    def training_step(self, phase, batch, update):
        features, maps = features_and_map(self.model, self.pool, batch.inputs)
        logits = self.model.head(features)
        losses = self.losses(logits, batch.labels)
        hard = self.hard(losses.detach())
        erased = self.erased(maps.detach(), batch.labels, hard)
        remaining_features = self.model.dropped(self.pool(maps.masked_fill(erased, 0)).flatten(1))
        of_rest = self.losses(self.model.head(remaining_features), batch.labels)
        update("model", (hard * of_rest).sum() / hard.sum())
        self.memory["step"].add_(1)
        return StepOutput(losses, logits)

    def hard(self, losses: Tensor) -> Tensor:
        """Which images of a batch to learn from, bool[B], by their losses, float[B]."""
        images = max(1, int(self.options.hard_images * len(losses)))
        return _largest(losses, images) | (self.memory["step"] >= self.hard_until)

    def erased(self, maps: Tensor, labels: Tensor, hard: Tensor) -> Tensor:
        """Which cells are erased, bool[B, 1, H, W], of maps float[B, channels, H, W]; hard:
        bool[B]."""
        with torch.autocast(maps.device.type, enabled=False):
            maps = maps.float().requires_grad_()
            logits = self.classified(maps)
            importance = evidence(logits, labels, maps, averaged=True)
            decisive = _largest(importance.flatten(1), self.erased_cells).view_as(importance)
            with torch.no_grad():
                without = self.classified(maps.masked_fill(decisive[:, None], 0))
                lowered = (logits.softmax(1) - without.softmax(1)).gather(1, labels[:, None])[:, 0]
        images = (self.options.erased_images * hard.sum().double()).round()
        lowered.masked_fill_(~hard, 0)
        lowered_most = _largest(lowered, images) & (lowered > _MIN_DROP)
        return decisive[:, None] & lowered_most[:, None, None, None]

    def classified(self, maps: Tensor) -> Tensor:
        """Logits [B, classes] of the images of these maps."""
        return self.model.head(self.pool(maps).flatten(1))


def _largest(values: Tensor, n: int | Tensor) -> Tensor:
    """Which n of the values are the largest, along the last dimension; ties go to the first."""
    return values.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1) < n


def last_pool(model: Network) -> nn.Module | None:
    """The pooling that makes features of the last feature map; None if there is none."""
    pools = [
        module
        for module in model.body.modules()
        if isinstance(module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d)
    ]
    return pools[-1] if pools else None


def features_and_map(model: Network, pool: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Features [B, D], and the map [B, channels, H, W] from which `pool`, a part of the model, made
    them."""
    maps = []
    with pool.register_forward_pre_hook(lambda module, inputs: maps.append(inputs[0])):
        features = model.features(inputs)
    return features, maps[-1]


@torch.no_grad()
def map_cells(method: Method) -> int:
    """The number of cells of the last map of a method's network. DiagvibError if its features, also
    in training, are not pooled from a map."""
    model, size = deepcopy(method.model).train(), method.image_size
    model.dropout = 0.0
    pool, inputs = last_pool(model), torch.linspace(-1, 1, 2 * 3 * size**2).view(2, 3, size, size)
    if pool is not None:
        features, maps = features_and_map(model, pool, inputs)
        pooled = pool(maps).flatten(1)
        if pooled.shape == features.shape and (inputs.is_meta or torch.equal(pooled, features)):
            return maps.shape[2] * maps.shape[3]
    raise DiagvibError(
        f"method: {method.name} changes what the last feature map shows, but the features of model "
        f"{method.settings['model']['name']} are not a pooled map; choose small_cnn or a resnet"
    )
