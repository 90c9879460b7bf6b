"""`coral`: features of all environments shall have the same mean and covariance (Sun and Saenko, 2016)."""

from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from diagvib.methods.groups import balancing_weights, group_index
from diagvib.methods.method import Batch, Method, Phase, TrainingData


class Coral(Method):
    """Adds gamma times the mean over pairs of environments of mean((mu1 - mu2)^2) + mean((C1 - C2)^2), with mu the mean
    and C the unbiased covariance of the features (DomainBed's form). Environments come equally often; one with fewer
    than two images in a batch takes no part in it.
    """

    told: ClassVar[tuple] = ("environments",)
    options: ClassVar[dict] = {"gamma": {"type": "number", "minimum": 0, "default": 1.0}}
    uses_features: ClassVar[bool] = True

    def phases(self, data: TrainingData) -> list[Phase]:
        phases = super().phases(data)
        self.group, self.groups = group_index(data, "environments", self.chosen["name"])
        return phases

    def sampling(self, phase: str, data: TrainingData) -> Tensor | None:
        return balancing_weights(self.group, self.groups)

    def penalty(self, features: Tensor, batch: Batch) -> Tensor:
        members = [(batch.environment == at).float() for at in range(self.groups)]
        with torch.autocast(features.device.type, enabled=False):
            moments = [_moments(features.float(), member) for member in members]
        terms = [((mean - other_mean).square().mean() + (covariance - other_covariance).square().mean()) * both
                 for (mean, covariance, enough), (other_mean, other_covariance, other_enough)
                 in combinations(moments, 2) for both in [enough * other_enough]]
        return self.chosen["gamma"] * torch.stack(terms).mean()


def _moments(features: Tensor, member: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean [D] and unbiased covariance [D, D] of the features float[B, D] of member float[B], 1 or 0; and 1 if there
    are two or more, else 0. Of a fixed shape, so that a step can be recorded."""
    n = member.sum()
    mean = member @ features / n.clamp(min=1)
    centred = (features - mean) * member[:, None]
    return mean, centred.T @ centred / (n - 1).clamp(min=1), (n > 1).float()
