"""Augmenting methods for training on features: the images were augmented before their features were
computed."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from diagvib.imagenet_w.augmentations import TOGETHER
from diagvib.methods.augmix import AugMix, jensen_shannon
from diagvib.methods.lle import Lle
from diagvib.methods.method import Batch, Method, StepOutput, TrainingData, Update
from diagvib.methods.mixup import mixed_labels


@dataclass(frozen=True)
class View:
    """Features of the training photos under one augmentation: values [N, D]; share: the weight of
    each one's own label, [N]. They are on the device, or mapped from a file."""

    values: Tensor
    share: Tensor
    device: torch.device

    def inputs(self, index: Tensor) -> Tensor:
        """float32[B, D] of the photos `index`, int64[B]."""
        return self.values[index.to(self.values.device)].to(self.device).float()

    def shares(self, index: Tensor) -> Tensor:
        return self.share[index.to(self.share.device)].to(self.device)


class OfViews(Method):
    """A method that is given `seen`, views by name, before training."""

    seen: ClassVar[dict[str, View]] = {}


class Augmented(OfViews):
    """With probability p, each photo is replaced by its view."""

    options: ClassVar[dict] = {
        "view": {"type": "string", "default": "clean"},
        "p": {"type": "number", "minimum": 0, "maximum": 1, "default": 1.0},
    }

    def augment(self, batch: Batch) -> Batch:
        drawn = torch.rand(len(batch.index), 1, device=batch.inputs.device) < self.options.p
        return replace(
            batch,
            inputs=torch.where(
                drawn, self.seen[self.options.view].inputs(batch.index), batch.inputs
            ),
        )


class Mixed(OfViews):
    """mixup and cutmix: photos are replaced by their view, mixed with the previous photo in the
    augmented batch."""

    options: ClassVar[dict] = {"view": {"type": "string", "default": "mixup"}}

    def augment(self, batch: Batch) -> Batch:
        view = self.seen[self.options.view]
        others = self.data.labels[before(batch.index, len(self.data))]
        return replace(
            batch,
            inputs=view.inputs(batch.index),
            labels=mixed_labels(batch.labels, others, view.shares(batch.index), self.n_classes),
        )


def before(index: Tensor, n: int) -> Tensor:
    """The previous photo of each of these in the batch in which it was augmented; the last one
    precedes the first."""
    start = index - index % TOGETHER
    return torch.where(index > start, index, (start + TOGETHER).clamp(max=n)) - 1


class AugMixed(AugMix, OfViews):
    """augmix on the features of the clean photo and of its two mixtures."""

    def training_step(self, phase: str, batch: Batch, update: Update) -> StepOutput:
        views = [batch.inputs, *(self.seen[f"augmix.{k}"].inputs(batch.index) for k in (1, 2))]
        logits = self.model(torch.cat(views)).float().unflatten(0, (3, -1))
        losses = self.losses(logits[0], batch.labels) + self.options.js_weight * jensen_shannon(
            logits
        )
        update("model", losses.mean())
        return StepOutput(losses, logits[0])


class Ensemble(Lle, OfViews):
    """lle with views as shifts: with equal probability, a photo is unchanged or replaced by one of
    its views."""

    supervision: ClassVar[tuple] = ("none",)
    options: ClassVar[dict] = {
        "shifts": {"type": "array", "items": {"type": "string"}, "default": ["watermark"]},
    }
    needs: ClassVar[tuple] = ()

    def setup(self, data: TrainingData) -> None:
        Method.setup(self, data)
        self.add_heads(1 + len(self.options.shifts), data.labels.device)

    def shifted(self, batch: Batch) -> tuple[Batch, Tensor]:
        shift = torch.randint(len(self.heads), batch.labels.shape, device=batch.labels.device)
        inputs = batch.inputs
        for number, name in enumerate(self.options.shifts, 1):
            inputs = torch.where(
                (shift == number)[:, None], self.seen[name].inputs(batch.index), inputs
            )
        return replace(batch, inputs=inputs), shift
