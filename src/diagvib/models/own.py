"""A user's own networks, `package.module:function`, installed or in the current folder."""

import inspect

import torch
from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.plug_ins import imported
from diagvib.models.independence import check_independent
from diagvib.models.network import Network, Whole, check_logits


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
        images = torch.rand(4, image_size, image_size, 3, generator=generator)
        check_independent(net, images.permute(0, 3, 1, 2), f"{location} in evaluation mode")
    if isinstance(net, Network) and type(net).forward is Network.forward:
        return net
    hooked = net._forward_hooks or net._forward_pre_hooks
    if type(net) is nn.Sequential and isinstance(net[-1], nn.Linear) and not hooked:
        network = Network(net[:-1], net[-1])
        network.cut_from = str(len(net) - 1)
        return network
    network = Whole(net, n_classes)
    check_logits(network.eval(), location, n_classes, image_size)  # also finds its features
    return network
