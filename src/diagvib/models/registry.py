"""The networks, and how one is made from a baseline's `model`. Importing this does not import torch."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagvib.models.network import Network

# Family -> function(settings, n_classes, image_size), a Network. The name determines the family: `timm/NAME` and
# `package.module:function` (own) by their form, small_cnn and linear are ours, any other name is torchvision's.
MODELS = {
    "small_cnn": "diagvib.models.small_cnn:small_cnn",
    "linear": "diagvib.models.linear:linear",
    "torchvision": "diagvib.models.torchvision_models:torchvision_model",
    "timm": "diagvib.models.timm_models:timm_model",
    "own": "diagvib.models.own:own_model",
}


def family(name: str) -> str:
    """The key of MODELS for a model's name."""
    if ":" in name:
        return "own"
    return "timm" if name.startswith("timm/") else name if name in ("small_cnn", "linear") else "torchvision"


def make_network(settings: dict, n_classes: int, image_size: int) -> "Network":
    """The network of a baseline's `model`, complete, as `load_settings` gives it, on the CPU.

    Random weights come from torch's global generator. DiagvibError if the settings do not fit.
    """
    module, _, function = MODELS[family(settings["name"])].partition(":")
    return getattr(importlib.import_module(module), function)(settings, n_classes, image_size)
