"""`sd`, spectral decoupling: logits are kept small, so that no cue suppresses the others (Pezeshki
et al., 2021)."""

from typing import ClassVar

from torch import Tensor

from diagvib.methods.method import Batch, Method


class SpectralDecoupling(Method):
    """Adds weight / 2 times the mean over images of the sum of all squared logits, to the training
    loss only.

    penalised: `true_class` adds weight times the mean squared logit of the true class instead, as
    UrbanCars' code does. Published for UrbanCars: weight 0.1, with weight decay 0, which is a
    setting of the optimiser.
    """

    options: ClassVar[dict] = {
        "weight": {"type": "number", "minimum": 0, "maximum": 1000, "default": 0.1},
        "penalised": {"enum": ["all", "true_class"], "default": "all"},
    }

    def penalty(self, features: Tensor, batch: Batch) -> Tensor:
        logits = self.model.head(features).float()
        if self.chosen["penalised"] == "all":
            return self.chosen["weight"] / 2 * logits.square().sum(1).mean()
        return self.chosen["weight"] * logits.gather(1, batch.labels[:, None]).square().mean()
