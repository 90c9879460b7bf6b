"""Classifiers that were fitted elsewhere, with their own outputs: nothing is trained here."""

import torch
from torch import Tensor
from torch.nn import functional as F

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.methods.method import Method, StepOutput
from diagvib.methods.views import Published
from diagvib.models.fitted import class_logits, fitted_network, outputs_of_classes


class Untrained(Published):
    """Only test images are classified."""

    # In every record of a run.
    options = {"trained": {"enum": ["elsewhere"], "default": "elsewhere"}}

    def validation_step(self, phase, batch):
        return StepOutput(torch.zeros(len(batch.labels), device=batch.labels.device))


class Fitted(Untrained):
    """The network of `model` with its own outputs. classes: an output, by its name or number -> a
    class of the target; by default outputs are matched by their names, or are as many, in the
    order of the classes. size: pixels per side to which images are resized. mean, std: with which
    pixel values from 0 to 1 are z-scored; without them, as the baseline's `normalise` says."""

    unused_if = {"mean": {"std": [None]}, "std": {"mean": [None]}}
    options = {
        "classes": {"type": "object", "default": {}},
        "size": {"type": ["integer", "null"], "minimum": 16, "maximum": 2048, "default": None},
        "interpolation": {"enum": ["bilinear", "bicubic", "nearest"], "default": "bilinear"},
        "mean": {"type": ["array", "null"], "items": {"type": "number"}, "default": None},
        "std": {"type": ["array", "null"], "items": {"type": "number"}, "default": None},
    }

    def build(self):
        side = self.options.size or self.image_size
        self.model = fitted_network(self.settings["model"], side)

    def setup(self, data):
        Method.setup(self, data)
        name, network = self.settings["model"]["name"], self.model
        try:
            self.outputs = outputs_of_classes(
                self.options.classes, network.names, network.count, data.classes
            )
        except DiagvibError as error:
            raise DiagvibError(f"method: classes of {name}: {error}") from None

    @property
    def doubts(self):
        trained = set(self.data.labels.tolist())
        classes = zip(self.data.classes, self.outputs, strict=True)
        absent = [
            name
            for number, (name, outputs) in enumerate(classes)
            if number in trained and not outputs
        ]
        if not absent:
            return []
        return [
            f"no output of the classifier means {some_names(absent)}, of which there are training images"
        ]

    def predict(self, batch):
        return class_logits(self.model(self._images(batch)), self.outputs)

    def _images(self, batch) -> Tensor:
        images, options = batch.inputs, self.options
        if options.mean is not None:
            pixels = batch.pixels.float().permute(0, 3, 1, 2) / 255
            # The pixels' values, exactly, with the gradient of the inputs.
            images = pixels + (images - images.detach())
        if options.size and images.shape[-1] != options.size:
            sides, how = (options.size, options.size), options.interpolation
            nearest = how == "nearest"
            how = "nearest-exact" if nearest else how  # as PIL's, from the middles of pixels
            images = F.interpolate(images, sides, mode=how, antialias=not nearest)
        if options.mean is None:
            return images
        images = images.clamp(0, 1)  # bicubic goes beyond
        mean, std = (
            images.new_tensor(values)[:, None, None] for values in (options.mean, options.std)
        )
        return (images - mean) / std
