"""`eiil`, Environment Inference for Invariant Learning: group DRO on inferred groups (Creager et
al., 2021)."""

from copy import deepcopy

import torch
from torch import Tensor
from torch.nn import functional as F

from diagvib.methods.group_dro import InferredGroups
from diagvib.methods.irm import scale_slopes
from diagvib.methods.method import Phase

# Of Adam, which changes the assignment of images to environments.
_MEAN, _SQUARE, _EPSILON = 0.9, 0.999, 1e-8


class Eiil(InferredGroups):
    """Phase `reference`: plain training for a few epochs. Then the training images of each class, or
    all at once if per_class is false, are divided into two environments for which this model is as
    far from invariant as possible (`inferred_environments`). Phase `classify`: group DRO from the
    initial weights; the groups are class x environment.
    """

    options = {
        "reference_epochs": {"minimum": 1, "maximum": 100_000, "default": 1},
        "inference_steps": {
            "minimum": 1,
            "maximum": 1_000_000,
            "default": 10_000,
        },
        "per_class": {"default": True},
        "inference_lr": {
            "exclusiveMinimum": 0,
            "maximum": 1000,
            "default": 1.0e-3,
        },
    }

    def setup(self, data):
        super().setup(data)
        # Called on the new weights, so they need not be in a checkpoint.
        self.initial = deepcopy(self.model.state_dict())

    def phases(self, data):
        reference = Phase("reference", self.options.reference_epochs, selection="last")
        return [reference, *super().phases(data)]

    def inferred(self, data):
        logits = torch.cat([self.predict(batch) for batch in data.in_order()])
        self.model.load_state_dict(self.initial)
        return inferred_environments(
            scale_slopes(logits, data.labels),
            data.labels if self.options.per_class else torch.zeros_like(data.labels),
            self.options.inference_steps,
            self.options.inference_lr,
        )


def inferred_environments(slope: Tensor, part: Tensor, steps: int, lr: float) -> Tensor:
    """An environment, 0 or 1, for each image: int64[N], from `irm.scale_slopes`, float[N], and the
    part that each image is in, such as its class: int64[N].

    With l_i(w) the cross entropy of w times image i's logits, and s = sigmoid(e), Adam maximises
    the sum over parts of the mean of |d/dw mean(s l)|^2 and |d/dw mean((1 - s) l)|^2 at w = 1, with
    the inner means over a part's images; e starts standard normal. The environment is s > 0.5.
    """
    member = F.one_hot(part).T.float()
    weighted = member / member.sum(1, keepdim=True).clamp(min=1) * slope  # [parts, N]
    environment_loss = weighted.sum(0)
    e = torch.randn_like(slope)
    mean, square = torch.zeros_like(e), torch.zeros_like(e)
    for step in range(1, steps + 1):
        s = e.sigmoid()
        # For the part, d/dw mean(s l) - d/dw mean((1 - s) l).
        with torch.autocast(s.device.type, enabled=False):
            contrast = (weighted @ (2 * s - 1))[part]
        gradient = environment_loss * contrast * s * (1 - s)
        mean.lerp_(gradient, 1 - _MEAN)
        square.lerp_(gradient.square(), 1 - _SQUARE)
        root = (square / (1 - _SQUARE**step)).sqrt_().add_(_EPSILON)
        e.addcdiv_(mean, root, value=lr / (1 - _MEAN**step))
    return (e > 0).long()
