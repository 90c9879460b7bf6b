"""The baselines: which kinds exist, and how one is made from its settings in `config/baselines.yaml`.

Importing this does not import torch: a kind is imported when it is made.
"""

import importlib
from typing import TYPE_CHECKING

from diagvib.foundation.errors import unknown_name
from diagvib.settings.baselines import baseline_names, load_settings

if TYPE_CHECKING:
    from diagvib.methods.method import Baseline

__all__ = ["KINDS", "baseline_names", "load_settings", "make_baseline"]

# `kind` in config/baselines.yaml -> class(settings, n_classes, image_size), a Baseline. A new method of training adds
# its line here and in the schema; a classifier of torchvision or timm, or a user's own function, needs a config entry
# only.
KINDS = {
    "small_cnn": "diagvib.models.small_cnn:SmallCnn",
    "torchvision": "diagvib.models.torchvision_models:TorchvisionClassifier",
    "torchvision_frozen": "diagvib.models.frozen:FrozenTorchvision",
    "timm": "diagvib.models.timm_models:TimmClassifier",
    "asr": "diagvib.methods.asr:Asr",
    "vae": "diagvib.methods.vae:Vae",
    "factor_vae": "diagvib.methods.factor_vae:FactorVae",
}
OWN = "diagvib.models.torchvision_models:OwnClassifier"


def make_baseline(settings: dict, n_classes: int, image_size: int, seed: int) -> "Baseline":
    """A baseline on the CPU, its initial weights a function of `seed` (paper, A.2: fixed across runs) and, where
    `n_classes` is in their shape, of that: the rest of the network is the same for every target factor.

    n_classes: all classes of the target factor. image_size: pixels a side. DiagvibError if the settings do not fit.
    """
    from diagvib.methods.method import initialised

    kind = settings["kind"]
    if kind not in KINDS and ":" not in kind:
        raise unknown_name("kind", kind, [*KINDS, "package.module:function"], "config/baselines.yaml")
    module, _, name = KINDS.get(kind, OWN).partition(":")
    maker = getattr(importlib.import_module(module), name)
    return initialised(lambda: maker(settings, n_classes, image_size), seed)
