"""`xrm`, cross-risk minimisation: group DRO on groups found by two networks that imitate each
other's mistakes (Pezeshki et al., 2024)."""

import torch
from torch import Tensor, nn

from diagvib.methods.group_dro import InferredGroups
from diagvib.methods.groups import group_means
from diagvib.methods.method import Phase, StepOutput, Unlabelled


class Xrm(InferredGroups):
    """Phase `twins`: each of two networks learns from a random half of the images. In every step,
    the loss is the sum over the batch's classes of a class's mean cross entropy, of the network to
    which an image belongs; then the image's label becomes what the other network predicts, with
    probability `flip_chance`. Phase `classify`: group DRO; the groups are class x whether either
    network is wrong about the original label.

    twin_epochs null: as many as the baseline's. The validation images are grouped in the same way;
    `selection: val_worst_inferred_group` chooses an epoch of group DRO by them.
    """

    options = {
        "twin_epochs": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": 100_000,
            "default": None,
        },
    }

    groups_validation = True

    def build(self):
        super().build()
        self.twins = nn.ModuleList(self._new_network() for _ in range(2))

    def setup(self, data):
        super().setup(data)
        self.memory["labels"] = data.labels.clone()
        self.memory["half"] = torch.randint(2, data.labels.shape).to(data.labels.device)

    def phases(self, data):
        epochs = self.options.twin_epochs or data.max_epochs
        return [Phase("twins", epochs, "last"), *super().phases(data)]

    @torch.no_grad()
    def start_phase(self, phase, data):
        super().start_phase(phase, data)
        if phase == "classify":
            validation = data.validation
            self.memory["validation_group"] = 2 * validation.labels + self.inferred(validation)

    def inferred(self, data):
        errors = [(self.both(batch).argmax(2) != batch.labels).any(0) for batch in data.in_order()]
        return torch.cat(errors)

    def optimisers(self, phase):
        if phase == "twins":
            return {"twins": self.optimiser(self.twins)}
        return super().optimisers(phase)

    def training_step(self, phase, batch, update):
        if phase != "twins":
            return super().training_step(phase, batch, update)
        labels, half = (self.memory[name][batch.index] for name in ("labels", "half"))
        logits, index = self.both(batch).float(), torch.arange(len(half), device=half.device)
        held_in_logits, held_out_logits = logits[half, index], logits[1 - half, index].detach()
        losses = self.losses(held_in_logits, labels)
        update("twins", class_balanced(losses, labels, self.n_classes))
        flipped = torch.rand_like(losses) < flip_chance(held_out_logits)
        labels = torch.where(flipped, held_out_logits.argmax(1), labels)
        self.memory["labels"].index_copy_(0, batch.index, labels)
        return StepOutput(losses, held_in_logits)

    def validation_step(self, phase, batch):
        if phase != "twins":
            return super().validation_step(phase, batch)
        # Without logits, so that no accuracy of the untrained `model` stands beside the twins'.
        return StepOutput(self.losses(self.both(batch).mean(0), batch.labels))

    def both(self, batch: Unlabelled) -> Tensor:
        """The twins' logits [2, B, classes]."""
        return torch.stack([twin(batch.inputs) for twin in self.twins])


def class_balanced(losses: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The sum over the classes in a batch of their mean loss, float[], from float[B], int64[B]."""
    return group_means(losses, labels, classes).sum()


def flip_chance(logits: Tensor) -> Tensor:
    """(p - 1/C) C / (C - 1), float[B], with p the largest probability of C classes: 0 if all are
    alike, 1 if one is certain. logits: [B, C]."""
    classes = logits.shape[1]
    return (logits.softmax(1).amax(1) - 1 / classes) * classes / (classes - 1)
