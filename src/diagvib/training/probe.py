"""A head on features that a user's own function computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.images.files import Images
from diagvib.settings.grid import Run
from diagvib.training.batches import Batches
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.run import Job, load_batches, make_method
from diagvib.training.trainer import Trainer

_BATCH = 64  # images that the user's function gets at a time


def features_by(function: Callable[[Tensor], object], images: Images) -> Images:
    """The same images with features float32[N, D] in place of pixels. function: images uint8[B, 3,
    H, W] to features [B, D], a tensor or an array. DiagvibError for another shape, or values that
    are not finite."""
    parts = []
    with torch.inference_mode():
        for pixels in images.pixels.split(_BATCH):
            found = torch.as_tensor(function(pixels.permute(0, 3, 1, 2))).float().cpu()
            if found.ndim != 2 or len(found) != len(pixels) or not found.isfinite().all():
                raise DiagvibError(
                    f"probe: for {len(pixels)} images, the function gave values of shape "
                    f"{[*found.shape]}; finite features of shape [{len(pixels)}, D] are needed"
                )
            parts.append(found)
    return Images(torch.cat(parts), images.table, images.metadata)


@dataclass(frozen=True)
class _InMemory:
    splits: Mapping[str, Images]

    def load(self, sample: int, split: str) -> Images:
        return self.splits[split]


def head_predictions(
    splits: Mapping[str, Images], settings: dict, run: Run, protocol: Protocol
) -> Tensor:
    """Class indices int64[N] for the split test, by a head that is trained on the split train and
    selected on val. splits: with features. settings: a baseline's with a frozen network, as
    `settings.baselines.complete` gives them."""
    job = Job(settings, protocol, torch.device("cpu"), _InMemory(splits))
    train = load_batches(job, run, "train")
    val = load_batches(job, run, "val", train)
    method = make_method(settings, train, protocol.seed, None)
    Trainer(method, train, val, run, protocol).fit()
    test = splits["test"]
    batches = Batches(test.pixels, test.labels(run.target), job.device, train.scaling)
    return predict(method, batches, protocol, run.name)[0]
