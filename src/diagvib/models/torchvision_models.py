"""Classifiers made elsewhere: any of torchvision's by name, and a user's own function."""

import copy
import importlib
import os
import sys
from collections.abc import Callable

import torch
import torchvision
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.methods.method import Baseline, Batch


def check_name(name: str) -> str:
    """The name of a torchvision classifier. DiagvibError, with the nearest that exist, for any other."""
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise unknown_name("torchvision classifier", name, known, "model")
    return name


class TorchvisionClassifier(Baseline):
    """torchvision's model of the name `model`, randomly initialised, with a last layer for `n_classes` (paper, Sec. 4).

    `options` of the settings go to torchvision's function as they are (vit_b_16: {image_size: 128}).
    DiagvibError for an unknown name (the nearest are suggested), or an option or image size that the model does not
    take.
    """

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        super().__init__(settings)
        name = check_name(settings["model"])
        try:
            self.net = torchvision.models.get_model(name, weights=None, num_classes=n_classes,
                                                    **settings.get("options", {}))
        except Exception as error:  # whatever the function raises at a value that it cannot use
            raise DiagvibError(f"options of model '{name}' do not fit it: {reason(error)}") from None
        check_logits(copy.deepcopy(self.net).train(), f"model '{name}'", n_classes, image_size)

    def predict(self, batch: Batch) -> Tensor:
        output = self.net(batch.inputs)
        # googlenet and inception_v3 add auxiliary logits while training.
        return output[0] if isinstance(output, tuple) else output


class OwnClassifier(Baseline):
    """A user's model: `kind: package.module:function`, function(n_classes, image_size, **options) -> torch.nn.Module.

    The module is looked for as Python does, and in the current folder. DiagvibError if it cannot be imported, is no
    function, raises, or returns no torch.nn.Module that can be trained and turns float[2, 3, size, size] into
    [2, n_classes].
    """

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        super().__init__(settings)
        where = f"kind: {settings['kind']}"
        function = _imported(settings["kind"])
        try:
            self.net = function(n_classes, image_size, **settings.get("options", {}))
        except Exception as error:  # it is not our function
            raise DiagvibError(f"{where} cannot be called as function(n_classes, image_size, **options) with options "
                               f"{settings.get('options', {})}: {reason(error)}") from None
        if not isinstance(self.net, nn.Module):
            raise DiagvibError(f"{where} returned {type(self.net).__name__}, not a torch.nn.Module")
        if not any(parameter.requires_grad for parameter in self.net.parameters()):
            raise DiagvibError(f"{where} returned a module without parameters that could be trained")
        check_logits(self.net.eval(), where, n_classes, image_size)


def reason(error: BaseException) -> str:
    """An exception of code that is not ours, on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


def check_logits(net: nn.Module, where: str, n_classes: int, image_size: int) -> None:
    """DiagvibError, beginning with `where`, unless `net`, as it stands, turns two images into finite logits."""
    try:
        with torch.no_grad():
            output = net(torch.zeros(2, 3, image_size, image_size))
    except Exception as error:
        raise DiagvibError(f"{where} cannot be used on images of {image_size} x {image_size} pixels: "
                           f"{reason(error)}") from None
    output = output[0] if isinstance(output, tuple) and len(output) else output
    shape = tuple(getattr(output, "shape", ()))
    if not isinstance(output, Tensor) or shape != (2, n_classes) or not output.is_floating_point():
        given = f"{output.dtype} of shape {shape}" if isinstance(output, Tensor) else type(output).__name__
        raise DiagvibError(f"{where}: its module turns 2 images into {given}; logits of shape (2, {n_classes}) are "
                           "needed")


def _imported(where: str) -> Callable:
    module_name, _, function_name = where.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:  # importing runs the module, and that is not ours
        raise DiagvibError(f"kind: {where} cannot be imported ({reason(error)}); it must read package.module:function, "
                           "from an installed package or from the current folder") from None
    if not callable(function):
        raise DiagvibError(f"kind: {where} is no function")
    return function
