"""Classifiers made elsewhere: any of torchvision's by name, and a user's own function."""

import importlib
import os
import sys
from collections.abc import Callable

import torch
import torchvision
from torch import Tensor, nn

from diagvib.baselines.base import Baseline, Batch
from diagvib.errors import DiagvibError, unknown_name


def check_name(name: str) -> str:
    """The name of a torchvision classifier. DiagvibError, with the nearest that exist, for any other."""
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise unknown_name("torchvision classifier", name, known, "model")
    return name


class TorchvisionClassifier(Baseline):
    """torchvision's model of the name `model`, randomly initialised, with a last layer for `n_classes` (paper, Sec. 4).

    `options` of the settings go to torchvision's function as they are (vit_b_16: {image_size: 128}).
    DiagvibError for an unknown name (the nearest are suggested) or an option that the model does not take.
    """

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        super().__init__(settings)
        name = check_name(settings["model"])
        try:
            self.net = torchvision.models.get_model(name, weights=None, num_classes=n_classes,
                                                    **settings.get("options", {}))
        except (TypeError, ValueError) as error:
            raise DiagvibError(f"options of model '{name}' do not fit it: {error}") from None

    def predict(self, batch: Batch) -> Tensor:
        output = self.net(batch.inputs)
        # googlenet and inception_v3 add auxiliary logits while training.
        return output[0] if isinstance(output, tuple) else output


class OwnClassifier(Baseline):
    """A user's model: `kind: package.module:function`, function(n_classes, image_size, **options) -> torch.nn.Module.

    The module is looked for as Python does, and in the current folder. DiagvibError if it cannot be found, is no
    function, returns no torch.nn.Module, or one that does not turn float[2, 3, size, size] into [2, n_classes].
    """

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        super().__init__(settings)
        where = settings["kind"]
        self.net = _imported(where)(n_classes, image_size, **settings.get("options", {}))
        if not isinstance(self.net, nn.Module):
            raise DiagvibError(f"kind: {where} returned {type(self.net).__name__}, not a torch.nn.Module")
        self._check_output(where, n_classes, image_size)

    def _check_output(self, where: str, n_classes: int, image_size: int) -> None:
        self.net.eval()
        with torch.no_grad():
            output = self.net(torch.zeros(2, 3, image_size, image_size))
        shape = tuple(getattr(output, "shape", ()))
        if shape != (2, n_classes):
            raise DiagvibError(f"kind: {where}: its module turns 2 images into {shape or type(output).__name__}; "
                               f"logits of shape (2, {n_classes}) are needed")


def _imported(where: str) -> Callable:
    module_name, _, function_name = where.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise DiagvibError(f"kind: {where} cannot be imported ({error}); it must read package.module:function, from "
                           "an installed package or from the current folder") from None
    if not callable(function):
        raise DiagvibError(f"kind: {where} is no function")
    return function
