"""`coral`: features of all environments should have the same mean and covariance (Sun and Saenko,
2016)."""

from itertools import combinations

import torch
from torch import Tensor

from diagvib.methods.environments import ByEnvironment
from diagvib.methods.groups import membership
from diagvib.methods.method import Batch


class Coral(ByEnvironment):
    """Adds gamma times the mean over pairs of environments of mean((mu1 - mu2)^2) + mean((C1 -
    C2)^2), with mu the mean and C the unbiased covariance of the features (DomainBed's form).
    Sets with fewer than two images, as CausIRL may have them, are left out.
    """

    options = {"gamma": {"minimum": 0, "maximum": 1.0e9, "default": 1.0}}
    uses_features = True

    def penalty(self, features, batch):
        sets = self.compared(batch)
        with torch.autocast(features.device.type, enabled=False):
            distances = self.distances(features.float(), sets)
        pair_weights = [left * right for left, right in combinations((sets.sum(1) > 1).float(), 2)]
        return self.options.gamma * (torch.stack(distances) * torch.stack(pair_weights)).mean()

    def compared(self, batch: Batch) -> Tensor:
        """The sets of images whose features should be alike: float[sets, B], 1 or 0; an image is in
        one set at most."""
        return membership(batch.environment, len(self.sets))

    def distances(self, features: Tensor, sets: Tensor) -> list[Tensor]:
        """The distance of every pair of sets, ordered as by `itertools.combinations`; features:
        float[B, D]."""
        n, pairs = sets.sum(1), combinations(range(len(sets)), 2)
        means = sets @ features / n.clamp(min=1)[:, None]
        # Of the rows of one set, `scaled.T @ scaled` is the covariance.
        scaled = (features - sets.T @ means) * (sets.T @ (n - 1).clamp(min=1).rsqrt())[:, None]
        # Inner products of the covariances, without these: D is often much larger than B.
        inner = sets @ (scaled @ scaled.T).square() @ sets.T / features.shape[1] ** 2
        return [
            (means[a] - means[b]).square().mean() + inner[a, a] + inner[b, b] - 2 * inner[a, b]
            for a, b in pairs
        ]
