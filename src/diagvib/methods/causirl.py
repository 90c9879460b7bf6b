"""`causirl_coral`, `causirl_mmd`: mixtures of the environments should be alike (Chevalley et al.,
2022)."""

import torch
from torch import Tensor

from diagvib.methods.coral import Coral
from diagvib.methods.method import Batch
from diagvib.methods.mmd import Mmd


class CausirlCoral(Coral):
    """In every batch each environment's images are split at a random position. All first parts form
    one set, all second parts the other, and gamma times CORAL's distance of the two is added;
    nothing if one has fewer than two images.
    """

    def compared(self, batch):
        return split_sets(len(self.sets), batch)


class CausirlMmd(Mmd):
    """Like `causirl_coral`, with the distance of `mmd`."""

    compared = CausirlCoral.compared


def split_sets(environments: int, batch: Batch) -> Tensor:
    """float[2, B]: 1 for the images of each set, else 0. An environment with n images in the batch
    gives 0 to n - 1 of them to the first set, each number with equal probability."""
    device, images = batch.environment.device, len(batch.environment) // environments
    first_half = torch.arange(images, device=device) < torch.randint(
        images, (environments, 1), device=device
    )
    return torch.stack([first_half.flatten(), ~first_half.flatten()]).float()
