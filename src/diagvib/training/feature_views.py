"""Views: training images with a random change, for methods that train a head on their features."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from diagvib.foundation.seeding import name_seed, named_generator
from diagvib.images.files import BATCH
from diagvib.methods.method import Batch, Method
from diagvib.methods.registry import make_baseline
from diagvib.scenes.scene import MARK, Scene

# The options of Li et al.'s code for ImageNet; cutout erases in every image here, and methods draw
# a share of them later.
_OPTIONS = {"mixup": {"alpha": 0.2}, "cutmix": {"alpha": 1.0}, "cutout": {"p": 1.0}, "augmix": {}}
MIXED, CUES = ("mixup", "cutmix"), ("cue.1", "cue.2")


def view_inputs(
    view: str, pixels: Tensor, number: int, inputs: Callable[[Tensor], Tensor], scene: Scene
) -> tuple[Tensor, Tensor | None]:
    """Images uint8[B, H, W, 3] in a view, as a network's inputs, and the share of each image's own
    label, float[B], if the rest belongs to the previous image in the batch. number: of the batch;
    inputs: makes inputs of images; scene: theirs. Independent of which other views are made."""
    family, _, view_number = view.partition(".")
    if family == MARK:
        return inputs(scene.marked(pixels, named_generator("view", family, number))), None
    method = _method(family)
    with torch.random.fork_rng([pixels.device] if pixels.device.type == "cuda" else []):
        torch.manual_seed(name_seed("view", family, number))
        if family == "augmix":
            method.data = SimpleNamespace(inputs=inputs)
            return method.views(pixels)[int(view_number)], None
        # Labels that number the images reveal the share that a method leaves to each of them.
        numbers = torch.arange(len(pixels), device=pixels.device)
        nothing = torch.zeros_like(numbers)
        batch = Batch(pixels, inputs(pixels), numbers, nothing[:, None], nothing, numbers)
        changed = method.augment(batch)
    return changed.inputs, changed.labels.diagonal() if family in MIXED else None


@cache
def _method(name: str) -> Method:
    # Its network is not used, only its changes to images.
    settings = {
        "model": {"name": "linear", "options": {"features": 1}},
        "method": {"name": name, **_OPTIONS[name]},
    }
    return make_baseline(settings, BATCH, 0, seed=0)
