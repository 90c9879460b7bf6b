"""A head on features that a user's own function computes, or that function's own outputs."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.plug_ins import reason
from diagvib.foundation.torch_defaults import initial_defaults
from diagvib.images.files import Images
from diagvib.models.independence import check_independent
from diagvib.settings.layout import Run
from diagvib.training.fit import make_method
from diagvib.training.job import Job
from diagvib.training.load import load, load_test
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer

_BATCH = 64  # images that the user's function gets at a time


def features_by(
    function: Callable[[Tensor], object], images: Images, caller: str = "probe"
) -> Images:
    """The same images with features float32[N, D] in place of pixels. function: images uint8[B, 3,
    H, W] to features [B, D], a tensor or an array. caller: for messages. DiagvibError for another
    shape, values that are not finite, and features that are not an image's own."""
    pixels, default = images.pixels.permute(0, 3, 1, 2), torch.get_default_device()

    def called(part: Tensor) -> object:
        with default:  # which the function may count on
            return function(part)

    with torch.inference_mode(), torch.device("cpu"):
        features = partial(_features, called, caller)
        check_independent(features, pixels, caller)
        parts = [features(part) for part in pixels.split(_BATCH)]
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise DiagvibError(
            f"{caller}: the function gave {' and '.join(map(str, sorted(widths)))} features of an image; "
            "as many are needed in each call"
        )
    return Images(torch.cat(parts), images.table, images.metadata)


def _features(function: Callable[[Tensor], object], caller: str, images: Tensor) -> Tensor:
    """float32[B, D] of images uint8[B, 3, H, W], on the CPU."""
    try:
        values = function(images)
    except Exception as error:
        if not re.search("Byte|uint8|unsigned char", str(error)):
            raise
        raise DiagvibError(
            f"{caller}: the function gets images uint8[B, 3, H, W] with values from 0 to 255, which it "
            f"scales itself, as in `lambda images: network(images.float() / 255)` ({reason(error)})"
        ) from None
    try:
        numbers = torch.as_tensor(values)
        features = numbers.real.float().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise DiagvibError(
            f"{caller}: the function gave {type(values).__name__}; features [B, D] are needed, a tensor "
            "or an array"
        ) from None
    fitting = features.ndim == 2 and len(features) == len(images) and features.shape[1]
    if not fitting or numbers.is_complex() or not features.isfinite().all():
        kind = "complex values" if numbers.is_complex() else "values"
        raise DiagvibError(
            f"{caller}: for {len(images)} images, the function gave {kind} of shape "
            f"{[*features.shape]}; real, finite features of shape [{len(images)}, D] are needed"
        )
    return features


@initial_defaults()
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
