"""`lle`, Last Layer Ensemble: a last layer for each shift, and one that recognises shifts (Li et
al., 2023)."""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.methods.augmix import consistent_step
from diagvib.methods.groups import Partners
from diagvib.methods.method import Batch, Method, StepOutput
from diagvib.models.network import Heads

# Of the ablation `augmix`, as AugMix's own.
_JS_WEIGHT = 12.0


class Lle(Method):
    """With equal probability, every image of a batch stays unchanged (shift 0) or gets one of k
    cues from an image of another target class (shift 1 to k). k + 1 heads and a shift predictor,
    all linear, read the features; the loss is CE(head of the image's shift, target) + CE(shift
    predictor, shift). A prediction is the sum of the heads' logits, each times the predicted
    probability of its shift.

    Told which factors are cues, but not the classes of the cues. detach: the shift predictor's
    gradient does not reach the features, as in the paper (Sec. 4); in the authors' code it does.
    ablation: the paper's (Table 7). `ensemble`: one head learns from all images. `augmix`: one
    head; the loss is its cross entropy of the unchanged image plus 12 times the Jensen-Shannon
    divergence of the predictions for the image with each shift. `shift_classifier`: the heads'
    logits are averaged, and no shift is predicted.
    """

    supervision = ("cue_types",)
    options = {
        "detach": {"default": True},
        "ablation": {
            "description": "What is left out, or put in place of the ensemble",
            "enum": ["none", "ensemble", "augmix", "shift_classifier"],
            "default": "none",
        },
    }
    unused_if = {"detach": {"ablation": ["ensemble", "augmix", "shift_classifier"]}}
    needs = ("exchange",)
    uses_head = True

    def setup(self, data):
        super().setup(data)
        self.donors = Partners(torch.zeros_like(data.labels), data.labels)
        self.add_heads(1 + data.cues.shape[1], data.labels.device)

    def add_heads(self, shifts: int, device: torch.device) -> None:
        """Add copies of the network's head, one for each shift, or a single one, and a shift
        predictor that starts at zero."""
        heads = 1 if self.options.ablation in ("ensemble", "augmix") else shifts
        self.heads = Heads(deepcopy(self.model.head) for _ in range(heads))
        self.shift = nn.Linear(self.model.head.in_features, shifts, device=device)
        nn.init.zeros_(self.shift.weight)
        nn.init.zeros_(self.shift.bias)

    def optimisers(self, phase):
        return {"model": self.optimiser(self.model.body, self.heads, self.shift)}

    def shifted(self, batch: Batch, shift: Tensor | None = None) -> tuple[Batch, Tensor]:
        """The batch with these shifts of its images, int64[B], by default drawn; and the shifts."""
        shift = self.drawn(batch) if shift is None else shift
        donors = self.donors.draw(torch.zeros_like(batch.labels), batch.labels)
        pixels = batch.pixels.clone()
        for cue in range(self.shift.out_features - 1):
            images = (shift == cue + 1).nonzero().flatten()
            if len(images):
                pixels[images] = self.data.augment(
                    self.data.counterfactuals.exchanged(batch.index[images], cue, donors[images])
                )
        return replace(batch, pixels=pixels, inputs=self.data.inputs(pixels)), shift

    def drawn(self, batch: Batch) -> Tensor:
        return torch.randint(
            self.shift.out_features, batch.labels.shape, device=batch.labels.device
        )

    def training_step(self, phase, batch, update):
        if self.options.ablation == "augmix":
            unchanged = torch.zeros_like(batch.labels)
            views = [self.shifted(batch, unchanged + k)[0] for k in range(self.shift.out_features)]
            features = self.model.features(torch.cat([view.inputs for view in views]))
            return consistent_step(self, self.heads(features), _JS_WEIGHT, batch, update)
        batch, shift = self.shifted(batch)
        features = self.model.features(batch.inputs)
        logits = self.heads.each(features)[torch.arange(len(shift)), shift % len(self.heads)]
        losses = self.losses(logits, batch.labels)
        loss = losses.mean()
        if self.options.ablation == "none":
            recognised = self.shift(features.detach() if self.options.detach else features)
            loss = loss + F.cross_entropy(recognised.float(), shift)
        update("model", loss)
        return StepOutput(losses, logits)

    def predict(self, batch):
        features = self.model.features(batch.inputs)
        if self.options.ablation != "none":
            return self.heads(features)
        share = self.shift(features).float().softmax(1)
        return (share[:, :, None] * self.heads.each(features).float()).sum(1)
