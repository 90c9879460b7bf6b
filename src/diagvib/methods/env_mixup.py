"""`env_mixup`: mixup of images of different environments (Zhang et al., 2018, in DomainBed's
form)."""

import torch

from diagvib.methods.environments import ByEnvironment
from diagvib.methods.mixup import blended, random_share


class EnvMixup(ByEnvironment):
    """For each batch the environments are put in a random order. The images of each are blended one
    by one with those of the next, the last's with the first's: s x_i + (1 - s) x_j, and likewise
    the one-hot labels, with one s ~ Beta(alpha, alpha) for each pair of environments. Published:
    alpha 0.2."""

    pixels = True
    options = {
        "alpha": {"minimum": 0.05, "maximum": 1000, "default": 0.2},
    }

    def augment(self, batch):
        environments, device = len(self.sets), batch.labels.device
        images = len(batch.labels) // environments
        order = torch.rand(environments, device=device).argsort()
        following = order.roll(-1)[order.argsort()]
        partners = (following[:, None] * images + torch.arange(images, device=device)).flatten()
        share = random_share(self.options.alpha, device, environments).repeat_interleave(images)
        return blended(batch, batch.inputs[partners], batch.labels[partners], share, self.n_classes)
