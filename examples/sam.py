"""SAM (Foret et al., 2021): two passes a step, of which the first only looks where to make the second.

Batch norm's running statistics see both passes.
"""

import torch

from diagvib.methods.method import Method, StepOutput


class Sam(Method):
    """The step from the weights w goes along the gradient at w + rho g / |g|, where g is that at w."""

    options = {"rho": {"type": "number", "minimum": 0, "default": 0.05}}  # noqa: RUF012

    def training_step(self, phase, batch, update):
        logits = self.model(batch.inputs)
        losses = self.losses(logits, batch.labels)
        update("model", losses.mean(), step=False)  # gradients at w
        with torch.no_grad():
            parameters = [p for p in self.model.parameters() if p.grad is not None]
            start = [p.clone() for p in parameters]
            norm = torch.stack([p.grad.norm() for p in parameters]).norm()
            for p in parameters:
                p += self.options.rho / (norm + 1e-12) * p.grad
        raised = self.losses(self.model(batch.inputs), batch.labels)
        update("model", raised.mean(), step=False)  # gradients at w + rho g / |g|
        with torch.no_grad():
            for p, value in zip(parameters, start, strict=True):
                p.copy_(value)
        update("model")  # a step from w by these gradients
        return StepOutput(losses, logits)
