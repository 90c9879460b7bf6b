"""A user's own networks, `package.module:function`, installed or in the current folder."""

from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.plug_ins import imported, reason
from diagvib.models.network import Network, check_logits, separated_if_equal


def own_model(settings: dict, n_classes: int, image_size: int) -> Network:
    """`package.module:function`: function(n_classes, image_size, **options) -> torch.nn.Module.

    A `Network` is used as it is; any other module is cut before its last linear layer, if that
    gives the logits. DiagvibError if it cannot be imported, is not a function, raises, or does not
    return a trainable torch.nn.Module that turns float[2, 3, size, size] into [2, n_classes].
    """
    where, function = f"model: {settings['name']}", imported(settings["name"], "model")
    try:
        net = function(n_classes, image_size, **settings["options"])
    except Exception as error:  # it is not our function
        raise DiagvibError(
            f"{where} cannot be called as function(n_classes, image_size, **options) with options "
            f"{settings['options']}: {reason(error)}"
        ) from None
    if not isinstance(net, nn.Module):
        raise DiagvibError(f"{where} returned {type(net).__name__}, not a torch.nn.Module")
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise DiagvibError(f"{where} returned a module without parameters that can be trained")
    check_logits(net.eval(), where, n_classes, image_size)
    return net if isinstance(net, Network) else separated_if_equal(net, n_classes, image_size)
