"""Augmented views of training photos, and the paper's methods that train a last layer on features of
them (Li et al., 2023, Table 4)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import ClassVar

import torch
from torch import Tensor

from diagvib.foundation.seeding import name_digest, named_generator
from diagvib.imagenet_w.evaluation import TOGETHER
from diagvib.imagenet_w.photos import Preprocessing
from diagvib.imagenet_w.watermark import Font, blend, random_watermark
from diagvib.methods.augmix import AugMix, jensen_shannon
from diagvib.methods.lle import Lle
from diagvib.methods.method import Batch, Method, StepOutput, TrainingData, Update
from diagvib.methods.mixup import mixed_labels
from diagvib.methods.registry import make_baseline

CLEAN, WATERMARK, MIXED = "clean", "watermark", ("mixup", "cutmix")
# The options of the authors' code for ImageNet; cutout erases in every photo here, and a tenth of
# them is drawn later.
_OPTIONS = {"mixup": {"alpha": 0.2}, "cutmix": {"alpha": 1.0}, "cutout": {"p": 1.0}, "augmix": {}}


def view_inputs(
    view: str, pixels: Tensor, number: int, preprocessing: Preprocessing, font: Font
) -> tuple[Tensor, Tensor | None]:
    """A batch of photos uint8[B, 3, S, S] in a view, as inputs, and the weight of each photo's own
    label, float[B], if the rest belongs to the previous photo in the batch. number: of the batch.
    Independent of which other views are made."""
    family, _, which = view.partition(".")
    seed = int.from_bytes(name_digest("imagenet_w", family, number)[:7], "big")
    with torch.random.fork_rng([pixels.device] if pixels.device.type == "cuda" else []):
        torch.manual_seed(seed)
        if view == WATERMARK:
            generator = named_generator("imagenet_w", family, number)
            size = pixels.shape[-1]
            shown = [blend(one, random_watermark(size, font, generator)) for one in pixels]
            return preprocessing.inputs(torch.stack(shown)), None
        if view == CLEAN:
            return preprocessing.inputs(pixels), None
        method, images = _method(family), pixels.permute(0, 2, 3, 1)
        if family == "augmix":
            method.data = SimpleNamespace(
                inputs=lambda shown: preprocessing.inputs(shown.permute(0, 3, 1, 2))
            )
            return method.views(images)[int(which)], None
        # Labels that number the photos reveal the weight that a method leaves to each of them.
        numbers = torch.arange(len(pixels), device=pixels.device)
        nothing = torch.zeros_like(numbers)
        inputs = preprocessing.inputs(pixels)
        batch = method.augment(Batch(images, inputs, numbers, nothing[:, None], nothing, numbers))
        return batch.inputs, batch.labels.diagonal() if view in MIXED else None


@cache
def _method(name: str) -> Method:
    # Its network is not used, only its changes to images.
    settings = {
        "model": {"name": "linear", "options": {"features": 1}},
        "method": {"name": name, **_OPTIONS[name]},
    }
    return make_baseline(settings, TOGETHER, 0, seed=0)


class OfViews(Method):
    """A method that is given `seen` before training: view -> features of the training photos,
    float[N, D], mapped from a file; of a mixed view, two more columns: the weight of the photo's own
    label, and the other photo's label."""

    seen: ClassVar[dict[str, Tensor]] = {}

    def view(self, name: str, batch: Batch) -> Tensor:
        """float32[B, D] of the batch's photos."""
        values = self.seen[name]
        return values[batch.index.to(values.device)].to(batch.inputs.device).float()


class Augmented(OfViews):
    """With probability p, each photo is replaced by its view."""

    options: ClassVar[dict] = {
        "view": {"type": "string", "default": "clean"},
        "p": {"type": "number", "minimum": 0, "maximum": 1, "default": 1.0},
    }

    def augment(self, batch: Batch) -> Batch:
        drawn = torch.rand(len(batch.index), 1, device=batch.inputs.device) < self.options.p
        return replace(
            batch, inputs=torch.where(drawn, self.view(self.options.view, batch), batch.inputs)
        )


class Mixed(OfViews):
    """mixup and cutmix: photos are replaced by their view, mixed with the previous photo in the
    augmented batch."""

    options: ClassVar[dict] = {"view": {"type": "string", "default": "mixup"}}

    def augment(self, batch: Batch) -> Batch:
        *features, share, other = self.view(self.options.view, batch).split(
            [batch.inputs.shape[1], 1, 1], 1
        )
        labels = mixed_labels(batch.labels, other[:, 0].long(), share[:, 0], self.n_classes)
        return replace(batch, inputs=features[0], labels=labels)


class AugMixed(AugMix, OfViews):
    """augmix on the features of the clean photo and of its two mixtures."""

    def training_step(self, phase: str, batch: Batch, update: Update) -> StepOutput:
        views = [batch.inputs, *(self.view(f"augmix.{k}", batch) for k in (1, 2))]
        logits = self.model(torch.cat(views)).float().unflatten(0, (3, -1))
        losses = self.losses(logits[0], batch.labels) + self.options.js_weight * jensen_shannon(
            logits
        )
        update("model", losses.mean())
        return StepOutput(losses, logits[0])


class Ensemble(Lle, OfViews):
    """lle with random watermarks as its only shift: with equal probability, a photo is unchanged or
    replaced by its view."""

    supervision = ("none",)
    needs = ()

    def setup(self, data: TrainingData) -> None:
        Method.setup(self, data)
        self.add_heads(2, data.labels.device)

    def shifted(self, batch: Batch) -> tuple[Batch, Tensor]:
        shift = torch.randint(2, batch.labels.shape, device=batch.labels.device)
        inputs = torch.where((shift == 1)[:, None], self.view(WATERMARK, batch), batch.inputs)
        return replace(batch, inputs=inputs), shift


# The paper's methods in Table 4 that can train a last layer, with the options of the authors' code:
# a baseline's `method`, and the views of the training photos that it reads.
METHODS: dict[str, tuple[dict, tuple[str, ...]]] = {
    "erm": ({"name": "erm"}, ()),
    "mixup": ({"name": f"{__name__}:Mixed", "view": "mixup"}, ("mixup",)),
    "cutmix": ({"name": f"{__name__}:Mixed", "view": "cutmix"}, ("cutmix",)),
    "cutout": ({"name": f"{__name__}:Augmented", "view": "cutout", "p": 0.1}, ("cutout",)),
    "augmix": ({"name": f"{__name__}:AugMixed"}, ("augmix.1", "augmix.2")),
    "sd": ({"name": "sd", "weight": 1e-4, "penalised": "true_class"}, ()),
    "watermark_augmentation": (
        {"name": f"{__name__}:Augmented", "view": WATERMARK, "p": 0.5},
        (WATERMARK,),
    ),
    "lff": ({"name": "lff"}, ()),
    "jtt": ({"name": "jtt"}, ()),
    "eiil": ({"name": "eiil"}, ()),
    "debian": ({"name": "debian"}, ()),
    "lle": ({"name": f"{__name__}:Ensemble"}, (WATERMARK,)),
}
