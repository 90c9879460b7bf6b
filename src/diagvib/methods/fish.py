"""`fish`: steps on one environment after another, part of which is kept (Shi et al., 2022)."""

import torch

from diagvib.methods.environments import ByEnvironment
from diagvib.methods.method import StepOutput, Update


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
        weights = [value for value in self.model.state_dict().values() if value.is_floating_point()]
        before = [value.clone() for value in weights]
        steps = [
            self._inner_step(*part, update)
            for part in zip(*map(self.by_environment, (batch.inputs, batch.labels)), strict=True)
        ]
        with torch.no_grad():
            for value, start in zip(weights, before, strict=True):
                value.copy_(start.lerp(value, self.options.meta_lr))
        losses, logits = zip(*steps, strict=True)
        return StepOutput(torch.cat(losses), torch.cat(logits))

    def _inner_step(self, inputs: torch.Tensor, labels: torch.Tensor, update: Update) -> tuple:
        logits = self.model(inputs)
        losses = self.losses(logits, labels)
        update("model", losses.mean())
        return losses, logits
