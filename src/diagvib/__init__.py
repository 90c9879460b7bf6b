"""Measures when vision models learn shortcuts instead of the task, and what helps.

`diagvib.load("zgo", "shape-hue", split="train")` gives a PyTorch dataset that knows its metrics;
`studies()`, `models()` and `methods()` list the names. Heavy modules are imported only when needed.
"""

import importlib

from diagvib.foundation.version import __version__

__all__ = ["StudyDataset", "__version__", "load", "methods", "models", "probe", "score", "studies"]


def __getattr__(name: str):
    if name in ("load", "probe", "score", "StudyDataset"):
        return getattr(importlib.import_module("diagvib.library"), name)
    if name in ("studies", "models", "methods"):
        return importlib.import_module(f"diagvib.{name}")
    raise AttributeError(f"module 'diagvib' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
