"""Methods for networks that are frozen: measured as published, or on features of augmented images.
`model.views` names the views of the training images whose features the stage `encode` stores
(`training.feature_views`)."""

from dataclasses import replace

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.images.label_columns import labels_in
from diagvib.methods.augmix import consistent_step
from diagvib.methods.eiil import Eiil
from diagvib.methods.lle import Lle
from diagvib.methods.method import Batch, Method
from diagvib.methods.mixup import mixed_labels


def seen(method: Method, view: str, batch: Batch) -> Tensor:
    """A view's features of a batch's images, float32[B, D]."""
    if view not in method.data.views:
        raise DiagvibError(f"method: {method.name} needs {view} among the views of model.views")
    values = method.data.views[view]
    return values[batch.index.to(values.device)].to(batch.inputs.device).float()


class Published(Method):
    """Nothing is trained: epochs without an update, of which `max_epochs: 1` is enough. For networks
    with `head: published`."""

    trains = False

    def optimisers(self, phase):
        return {}

    def training_step(self, phase, batch, update):
        return self.validation_step(phase, batch)


class Augmented(Method):
    """With probability p, each image is replaced by its view."""

    reads_views = ("view",)
    options = {
        "view": {
            "enum": [
                "augmix.1",
                "augmix.2",
                "background",
                "cue.1",
                "cue.2",
                "cutout",
                "style",
                "watermark",
            ],
            "default": "cutout",
        },
        "p": {"minimum": 0, "maximum": 1, "default": 1.0},
    }

    def augment(self, batch):
        viewed = torch.rand(len(batch.index), 1, device=batch.inputs.device) < self.options.p
        inputs = torch.where(viewed, seen(self, self.options.view, batch), batch.inputs)
        return replace(batch, inputs=inputs)


class Mixed(Method):
    """mixup and cutmix: images are replaced by their view, which is mixed with another image. Its
    last columns are the share of the image's own label, and the other's label (`label_columns`)."""

    reads_views = ("view",)
    options = {"view": {"enum": ["mixup", "cutmix"], "default": "mixup"}}

    def augment(self, batch):
        features, share, partner = seen(self, self.options.view, batch).split(
            [batch.inputs.shape[1], 1, 2], 1
        )
        labels = mixed_labels(batch.labels, labels_in(partner), share[:, 0], self.n_classes)
        return replace(batch, inputs=features, labels=labels)


class AugMixed(Method):
    """augmix on the features of the clean image and of its two mixtures, which the views hold."""

    reads_views = ("augmix.1", "augmix.2")
    options = {"js_weight": {"minimum": 0, "maximum": 1.0e9, "default": 12.0}}

    def training_step(self, phase, batch, update):
        views = [batch.inputs, *(seen(self, f"augmix.{k}", batch) for k in (1, 2))]
        logits = self.model(torch.cat(views))
        return consistent_step(self, logits, self.options.js_weight, batch, update)


class CueEnsemble(Lle):
    """lle on features: each image also has a view for each cue, in which it has the cue of an image of
    another target class. The views are drawn once, not anew in each epoch."""

    needs = ()
    reads_views = ("cue",)

    def shifts(self) -> list[str]:
        """The view for each shift."""
        return [f"cue.{number}" for number in range(1, self.shift.out_features)]

    def shifted(self, batch, shift=None):
        shift = self.drawn(batch) if shift is None else shift
        views = [seen(self, name, batch) for name in self.shifts()]
        inputs = torch.stack([batch.inputs, *views])[shift, torch.arange(len(shift))]
        return replace(batch, inputs=inputs), shift


class WatermarkEnsemble(CueEnsemble):
    """lle with views as its shifts, by default random watermarks alone: with equal probability, an
    image is unchanged or replaced by one of them."""

    supervision = ("none",)
    reads_views = ("views",)
    options = {
        "views": {
            "type": "array",
            "items": {
                "enum": [
                    "augmix.1",
                    "augmix.2",
                    "background",
                    "cue.1",
                    "cue.2",
                    "cutout",
                    "style",
                    "watermark",
                ]
            },
            "minItems": 1,
            "uniqueItems": True,
            "default": ["watermark"],
        }
    }

    def setup(self, data):
        Method.setup(self, data)
        self.add_heads(1 + len(self.options.views), data.labels.device)

    def shifts(self):
        return self.options.views


class EiilOfLargeBatches(Eiil):
    """eiil whose reference model has a learning rate of its own, as in the authors' code, where only
    the other is scaled with the batch."""

    options = {"reference_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 1e-4}}

    def optimisers(self, phase):
        changed = {"lr": self.options.reference_lr} if phase == "reference" else {}
        return {"model": self.optimiser(self.model, **changed)}
