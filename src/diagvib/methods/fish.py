"""`fish`: steps on one environment after another, part of which is kept (Shi et al., 2022)."""

import torch

from diagvib.methods.environments import ByEnvironment
from diagvib.methods.method import StepOutput


class Fish(ByEnvironment):
    """From the weights theta, the optimiser takes one step on each environment's part of the batch
    in turn, to theta'; then theta becomes theta + meta_lr (theta' - theta). To first order, this
    makes the environments' gradients agree.

    The optimiser's state carries over from step to step and batch to batch. Batch norm's statistics
    count as weights. DomainBed's form; published: meta_lr 0.5.
    """

    options = {
        "meta_lr": {"exclusiveMinimum": 0, "maximum": 1, "default": 0.5},
    }

    def training_step(self, phase, batch, update):
        # Each once, also those that have several names.
        values = (*self.model.parameters(), *self.model.buffers())
        weights = [value.detach() for value in values if value.is_floating_point()]
        before = [value.clone() for value in weights]
        losses, logits = [], []
        parts = map(self.by_environment, (batch.inputs, batch.labels))
        for inputs, labels in zip(*parts, strict=True):
            logits.append(self.model(inputs))
            losses.append(self.losses(logits[-1], labels))
            update("model", losses[-1].mean())
        with torch.no_grad():
            for value, start in zip(weights, before, strict=True):
                value.copy_(start.lerp(value, self.options.meta_lr))
        return StepOutput(torch.cat(losses), torch.cat(logits))
