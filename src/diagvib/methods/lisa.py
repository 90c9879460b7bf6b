"""`lisa`: blends images that share either the label or the environment, but not both (Yao et al.,
2022)."""

import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.environments import ByEnvironment
from diagvib.methods.groups import Partners
from diagvib.methods.mixup import blended, random_share


class Lisa(ByEnvironment):
    """Each image is blended, s x_i + (1 - s) x_j, and likewise the one-hot labels, with its own s ~
    Beta(alpha, alpha). In a batch, with probability `same_label`, x_j is a random training image of
    the same label and another environment; otherwise one of the same environment and another label.
    Published: 0.5, alpha 2."""

    pixels = True
    options = {
        "same_label": {"minimum": 0, "maximum": 1, "default": 0.5},
        "alpha": {"minimum": 0.05, "maximum": 1000, "default": 2.0},
    }

    def setup(self, data):
        super().setup(data)
        self.of_label = Partners(data.labels, data.environment)
        self.of_environment = Partners(data.environment, data.labels)
        for label, environment in self.of_label.lonely():
            raise DiagvibError(
                f"method: {self.name} blends images of one class from two environments, but all images of "
                f"{data.classes[label]} are in {data.environments[environment]}; choose another study or method"
            )
        for environment, label in self.of_environment.lonely():
            raise DiagvibError(
                f"method: {self.name} blends images of two classes from one environment, but all images in "
                f"{data.environments[environment]} are of {data.classes[label]}; choose another study or method"
            )

    def augment(self, batch):
        labels, environment, device = batch.labels, batch.environment, batch.labels.device
        partner = self.data.batch(
            torch.where(
                torch.rand((), device=device) < self.options.same_label,
                self.of_label.draw(labels, environment),
                self.of_environment.draw(environment, labels),
            )
        )
        share = random_share(self.options.alpha, device, len(labels))
        return blended(batch, partner.inputs, partner.labels, share, self.n_classes)
