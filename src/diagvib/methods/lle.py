"""`lle`, Last Layer Ensemble: a last layer for each shift, and one that recognises shifts (Li et
al., 2023)."""

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.methods.groups import Partners
from diagvib.methods.method import Batch, Method, Optimiser, StepOutput, TrainingData, Update
from diagvib.models.network import Heads


class Lle(Method):
    """With equal probability, every image of a batch stays unchanged (shift 0) or gets one of k
    cues from an image of another target class (shift 1 to k). k + 1 heads and a shift predictor,
    all linear, read the features; the loss is CE(head of the image's shift, target) + CE(shift
    predictor, shift). A prediction is the sum of the heads' logits, each times the predicted
    probability of its shift.

    Told which factors are cues, but not the classes of the cues. detach: the shift predictor's
    gradient does not reach the features, as in the paper (Sec. 4); in the authors' code it does.
    """

    supervision = ("cue_types",)
    options = {"detach": {"type": "boolean", "default": True}}
    needs = ("exchange",)
    uses_head = True

    def setup(self, data: TrainingData) -> None:
        super().setup(data)
        self.donors = Partners(torch.zeros_like(data.labels), data.labels)
        self.add_heads(1 + data.cues.shape[1], data.labels.device)

    def add_heads(self, shifts: int, device: torch.device) -> None:
        """Add this many copies of the network's head, and a shift predictor that starts at zero."""
        self.heads = Heads(deepcopy(self.model.head) for _ in range(shifts))
        self.shift = nn.Linear(self.model.head.in_features, shifts, device=device)
        nn.init.zeros_(self.shift.weight)
        nn.init.zeros_(self.shift.bias)

    def optimisers(self, phase: str) -> dict[str, Optimiser]:
        return {"model": self.optimiser(self.model.body, self.heads, self.shift)}

    def shifted(self, batch: Batch) -> tuple[Batch, Tensor]:
        """The batch with shifts drawn for its images, and these shifts, int64[B]."""
        shift = torch.randint(len(self.heads), batch.labels.shape, device=batch.labels.device)
        donors, pixels = (
            self.donors.draw(torch.zeros_like(batch.labels), batch.labels),
            batch.pixels.clone(),
        )
        for cue in range(len(self.heads) - 1):
            at = (shift == cue + 1).nonzero().flatten()
            if len(at):
                pixels[at] = self.data.augment(
                    self.data.counterfactuals.exchanged(batch.index[at], cue, donors[at])
                )
        return replace(batch, pixels=pixels, inputs=self.data.inputs(pixels)), shift

    def training_step(self, phase: str, batch: Batch, update: Update) -> StepOutput:
        batch, shift = self.shifted(batch)
        features = self.model.features(batch.inputs)
        logits = self.heads.each(features)[torch.arange(len(shift)), shift]
        losses = self.losses(logits, batch.labels)
        recognised = self.shift(features.detach() if self.options.detach else features)
        update("model", losses.mean() + F.cross_entropy(recognised.float(), shift))
        return StepOutput(losses, logits)

    def predict(self, batch: Batch) -> Tensor:
        features = self.model.features(batch.inputs)
        share = self.shift(features).float().softmax(1)
        return (share[:, :, None] * self.heads.each(features).float()).sum(1)
