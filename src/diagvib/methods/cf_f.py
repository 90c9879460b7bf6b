"""`cf_f`, CF+F Aug: images with a changed background, and images without their object (Chang et
al., 2021)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Batch, Method, StepOutput
from diagvib.scenes.scene import within


class CounterfactualAndFactual(Method):
    """The loss is CE(image, y) + CE(factual, y) + CE(counterfactual, not y). Factual: the object's
    box on a background of one random colour per image plus normal noise of deviation `noise`,
    clipped to valid pixel values. Counterfactual: the image with its object's box in mean grey;
    "not y" gives all other classes of the factor equal weight, with two classes the other one. That
    includes classes that a dataset sample lacks: of 10, of which it has 3, the other 2 get 2/9 of
    the weight, and 7 that never occur get 7/9.

    As in UrbanCars (Li et al., 2023) a box represents the object: its outline would reveal the
    shape. There it is the middle of the image, here the box that the scene gives.
    """

    supervision = ("cue_types",)
    options = {"noise": {"minimum": 0, "maximum": 10, "default": 0.2}}
    needs = ("object_boxes",)

    def setup(self, data):
        super().setup(data)
        if "flip" not in (self.settings.get("augment") or ()):
            return
        boxes = data.counterfactuals.object_boxes(
            torch.arange(len(data), device=data.labels.device)
        )
        if not (boxes[:, 1] + boxes[:, 3] == self.image_size).all():
            raise DiagvibError(
                "augment: flip mirrors images, but the boxes around their objects, which method "
                f"{self.name} needs, would stay where they are; leave out flip"
            )

    def changed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The factual and the counterfactual inputs, float[B, 3, H, W] each."""
        pixels, device = batch.pixels, batch.pixels.device
        boxes = self.data.counterfactuals.object_boxes(batch.index)
        inside = within(boxes, torch.arange(pixels.shape[1], device=device))[:, None]
        noise = torch.randn(pixels.shape, device=device) * self.options.noise
        colour = torch.rand(len(pixels), 1, 1, 3, device=device)
        noise = self.data.inputs((255 * (colour + noise).clamp(0, 1)).to(torch.uint8))
        return torch.where(inside, batch.inputs, noise), batch.inputs.masked_fill(inside, 0)

    def training_step(self, phase, batch, update):
        inputs = torch.cat([batch.inputs, *self.changed(batch)])
        logits, factual, counterfactual = self.model(inputs).float().chunk(3)
        wrong_classes = (1 - F.one_hot(batch.labels, self.n_classes).float()) / (self.n_classes - 1)
        losses = (
            self.losses(logits, batch.labels)
            + self.losses(factual, batch.labels)
            + self.losses(counterfactual, wrong_classes)
        )
        update("model", self.combine(losses, batch))
        return StepOutput(losses, logits)
