"""A user's own networks, `package.module:function`, installed or in the current folder."""

import inspect
import re
from collections.abc import Callable, Mapping, Set

import numpy as np
import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.plug_ins import imported
from diagvib.models.independence import check_independent
from diagvib.models.network import Network, Whole, check_logits

# What transformers calls an output without a name.
_NAMELESS = re.compile(r"LABEL_\d+")


def own_model(settings: dict, n_classes: int, image_size: int) -> Network:
    """`package.module:function`: function(n_classes, image_size, **options) -> torch.nn.Module.

    A `Network` and an nn.Sequential that ends in a linear layer say where their head begins; any
    other module stays `Whole`. DiagvibError if it cannot be imported, does not take its options, or
    does not return a torch.nn.Module that turns float[2, 3, size, size] into [2, n_classes], each image
    by itself.
    """
    location, function = f"model: {settings['name']}", imported(settings["name"], "model")
    try:
        inspect.signature(function).bind(n_classes, image_size, **settings["options"])
    except TypeError as error:
        raise DiagvibError(
            f"{location} cannot be called with (n_classes, image_size, **options): {error}"
        ) from None
    net = function(n_classes, image_size, **settings["options"])
    if not isinstance(net, nn.Module):
        raise DiagvibError(f"{location} returned {type(net).__name__}, not a torch.nn.Module")
    for parameter in () if settings.get("frozen") else net.parameters():
        if hasattr(parameter, "of_an_earlier_call"):
            raise DiagvibError(
                f"{location} returned parameters of an earlier call, so each run would go on from the "
                "weights of the one before; make them anew in each call"
            )
        parameter.of_an_earlier_call = True
    check_logits(net.eval(), location, n_classes, image_size)
    with torch.random.fork_rng([]):  # the network may draw, which is then refused
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(4, image_size, image_size, 3, generator=generator).permute(0, 3, 1, 2)
        check_independent(_first(net), images, f"{location} in evaluation mode")
        with torch.no_grad():
            check_no_softmax(_first(net)(images), location)
    if isinstance(net, Network) and type(net).forward is Network.forward:
        return net
    hooked = net._forward_hooks or net._forward_pre_hooks
    if type(net) is nn.Sequential and isinstance(net[-1], nn.Linear) and not hooked:
        network = Network(net[:-1], net[-1])
        network.cut_from = str(len(net) - 1)
    else:
        network = Whole(net, n_classes)
        check_logits(network.eval(), location, n_classes, image_size)  # also finds its features
    if settings.get("head") == "published":
        network.classes = output_names(net)
    return network


def output_names(net: object) -> tuple[str, ...]:
    """The names of a network's outputs: transformers' `config.id2label`, or an attribute `classes`;
    () if it has none. DiagvibError if they do not say which output each one is of."""
    names = getattr(net, "classes", None)
    if labels := getattr(getattr(net, "config", None), "id2label", None):
        numbers = [str(number) for number in range(len(labels))]
        labels = {str(number): name for number, name in labels.items()}
        if labels.keys() != {*numbers}:
            raise DiagvibError(
                f"config.id2label of the network: its keys must be the numbers of the outputs, from 0 to "
                f"{len(labels) - 1}"
            )
        names = [labels[number] for number in numbers]
    if isinstance(names, Mapping | Set):
        raise DiagvibError(
            f"classes of the network: a {type(names).__name__} does not say which output each name is "
            "of; make it a list of names, in the order of the outputs"
        )
    names = [*map(str, names)] if isinstance(names, list | tuple | np.ndarray) else []
    return () if all(map(_NAMELESS.fullmatch, names)) else tuple(names)


def _first(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """The network's logits: what it returns, or the first of several tensors."""

    def logits(images: Tensor) -> Tensor:
        outputs = net(images)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    return logits


def check_no_softmax(logits: Tensor, location: str) -> None:
    """DiagvibError for probabilities instead of logits [B, classes]: losses and calibration errors
    would take their softmax again."""
    sums = logits.double().sum(1)
    if logits.shape[1] > 1 and bool((logits >= 0).all() & ((sums - 1).abs() < 1e-3).all()):
        raise DiagvibError(
            f"{location}: it gives probabilities, which sum to 1, where logits are needed; leave out the "
            "softmax at its end, or take the logarithm"
        )
