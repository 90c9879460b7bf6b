"""The baselines: which kinds exist, and how one is made from its settings in `config/baselines.yaml`.

Importing this does not import torch: a kind is imported when it is made.
"""

import importlib
from typing import TYPE_CHECKING

from diagvib.baseline_settings import baseline_names, load_settings
from diagvib.errors import unknown_name

if TYPE_CHECKING:
    from diagvib.baselines.base import Baseline

__all__ = ["KINDS", "baseline_names", "load_settings", "make_baseline"]

# `kind` in config/baselines.yaml -> class(settings, n_classes, image_size), a Baseline. A new method of training adds
# its line here and in the schema; a classifier of torchvision or timm, or a user's own function, needs a config entry
# only.
KINDS = {
    "small_cnn": "diagvib.baselines.small_cnn:SmallCnn",
    "torchvision": "diagvib.baselines.torchvision_models:TorchvisionClassifier",
    "torchvision_frozen": "diagvib.baselines.frozen:FrozenTorchvision",
    "timm": "diagvib.baselines.timm_models:TimmClassifier",
    "asr": "diagvib.baselines.asr:Asr",
    "vae": "diagvib.baselines.vae:Vae",
    "factor_vae": "diagvib.baselines.factor_vae:FactorVae",
}
OWN = "diagvib.baselines.torchvision_models:OwnClassifier"


def make_baseline(settings: dict, n_classes: int, image_size: int, seed: int) -> "Baseline":
    """A baseline on the CPU, its initial weights a function of `seed` (paper, A.2: fixed across runs) and, where
    `n_classes` is in their shape, of that: the rest of the network is the same for every target factor.

    n_classes: all classes of the target factor. image_size: pixels a side. DiagvibError if the settings do not fit.
    """
    from diagvib.baselines.base import initialised

    kind = settings["kind"]
    if kind not in KINDS and ":" not in kind:
        raise unknown_name("kind", kind, [*KINDS, "package.module:function"], "config/baselines.yaml")
    module, _, name = KINDS.get(kind, OWN).partition(":")
    maker = getattr(importlib.import_module(module), name)
    return initialised(lambda: maker(settings, n_classes, image_size), seed)
