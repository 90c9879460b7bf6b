"""A head on features that a user's own function computes."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.images.files import Images
from diagvib.settings.grid import Run
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.run import Job, load, load_test, make_method
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
            width = parts[0].shape[1] if parts else found.shape[-1:].numel()
            if found.shape != (len(pixels), width) or not found.isfinite().all():
                raise DiagvibError(
                    f"probe: for {len(pixels)} images, the function gave values of shape "
                    f"{[*found.shape]}; finite features of shape [{len(pixels)}, D] are needed"
                )
            parts.append(found)
    return Images(torch.cat(parts), images.table, images.metadata)


def head_predictions(
    splits: Mapping[str, Images], settings: dict, run: Run, protocol: Protocol
) -> Tensor:
    """Class indices int64[N] for the split test, by a head that is trained on the split train and
    selected on val. splits: with features. settings: a baseline's with a frozen network, as
    `settings.baselines.complete` gives them."""
    in_memory = SimpleNamespace(load=lambda sample, split: splits[split])
    job = Job(settings, protocol, torch.device("cpu"), in_memory)
    data = load(job, run)
    method = make_method(settings, data.train, protocol.seed, None)
    Trainer(method, data.train, data.val, run, protocol).fit()
    _, batches = load_test(job, run, data.train.scaling)
    return predict(method, batches, protocol, run.name)[0]
