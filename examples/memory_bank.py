"""A memory bank: features of the latest training images, to which those of a batch are compared (the
supervised contrastive loss of Khosla et al., 2020, with a queue as in MoCo).

The bank is in `memory`, so that a killed run gets it back. Nothing in a step is read back from the
device: slots that are still empty have the label -1, which no image has.
"""

import torch
from torch.nn import functional as F

from diagvib.methods.method import Method


class MemoryBank(Method):
    """Images of one class shall have like features, and others not."""

    options = {  # noqa: RUF012
        "slots": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 1024},
        "weight": {"type": "number", "minimum": 0, "default": 0.1},
        "temperature": {"type": "number", "exclusiveMinimum": 0, "default": 0.1},
    }
    uses_features = True

    def penalty(self, features, batch):
        features = F.normalize(features.float())
        if not self.memory:
            self._empty(features)
        bank, labels = self.memory["features"], self.memory["labels"]
        similarity = features @ bank.T / self.options.temperature
        log_share = similarity.masked_fill(labels < 0, -1e4).log_softmax(1)
        alike = (batch.labels[:, None] == labels).float()
        loss = -(alike * log_share).sum(1) / alike.sum(1).clamp_min(1)
        self._keep(features.detach(), batch.labels)
        return self.options.weight * loss.mean()

    def _empty(self, features):
        slots = self.options.slots
        self.memory["features"] = features.new_zeros(slots, features.shape[1])
        self.memory["labels"] = torch.full((slots,), -1, device=features.device)
        self.memory["oldest"] = torch.zeros((), dtype=torch.int64, device=features.device)

    def _keep(self, features, labels):
        """Replace the oldest slots, in new tensors: the loss still needs the old ones."""
        count = min(len(labels), self.options.slots)
        slots = self.memory["oldest"] + torch.arange(count, device=labels.device)
        slots = slots % self.options.slots
        self.memory["features"] = self.memory["features"].index_copy(0, slots, features[-count:])
        self.memory["labels"] = self.memory["labels"].index_copy(0, slots, labels[-count:])
        self.memory["oldest"] = (self.memory["oldest"] + count) % self.options.slots
