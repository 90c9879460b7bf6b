"""`mmd`, maximum mean discrepancy: features of all environments should be distributed alike (Li et
al., 2018)."""

from itertools import combinations

from diagvib.methods.coral import Coral

# The g of the kernels exp(-g d^2), with d the distance between two images' features.
SCALES = (1e-3, 1e-2, 1e-1, 1, 10, 100, 1000)


class Mmd(Coral):
    """Adds gamma times the mean over pairs of environments of mean(K11) + mean(K22) - 2 mean(K12):
    the biased squared MMD, with K the sum of seven Gaussian kernels, including the pairs of an
    image with itself. DomainBed's form, which, unlike the paper's, has no autoencoder and no
    adversary.
    """

    def distances(self, features, sets):
        shares = sets / sets.sum(1, keepdim=True).clamp(min=1)
        # Distances do not depend on the origin, and around the mean rounding errors are smaller.
        features = features - features.detach().mean(0)
        squares = features.square().sum(1)
        squared = squares[:, None] + squares - 2 * features @ features.T
        squared = squared.clamp(min=0).fill_diagonal_(0)
        kernel = sum((-scale * squared).exp() for scale in SCALES)
        return [(left - right) @ kernel @ (left - right) for left, right in combinations(shares, 2)]
