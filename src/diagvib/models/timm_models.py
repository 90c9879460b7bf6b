"""Classifiers of the package timm, by name; the package is needed only where one is used."""

import copy

from torch import nn

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.plug_ins import reason
from diagvib.models.network import Network, check_logits, separated_if_equal


def timm_model(settings: dict, n_classes: int, image_size: int) -> Network:
    """`timm/NAME`: timm's model of that name, randomly initialised, or with the published weights of
    a tag, with a last layer for `n_classes`.

    `options` are passed to timm.create_model (timm/vit_tiny_patch16_224: {img_size: 128}).
    DiagvibError if timm is not installed, the name is unknown, or the model does not accept an
    option or the image size.
    """
    name, tag = settings["name"].removeprefix("timm/"), settings["weights"]
    net = timm_net(name, tag, bool(tag), num_classes=n_classes, **settings["options"])
    check_logits(copy.deepcopy(net).train(), f"model '{name}'", n_classes, image_size)
    return separated_if_equal(net, n_classes, image_size)


def timm_net(name: str, tag: str | None, pretrained: bool, **options) -> nn.Module:
    """timm's model of that name, with the weights of a tag, if it is pretrained."""
    try:
        import timm
    except ImportError:
        raise DiagvibError(
            f"model: timm/{name} needs the package timm, which is not installed; `pip install timm`, or "
            "use a torchvision model instead"
        ) from None
    if not timm.is_model(name):
        raise unknown_name("timm model", name, timm.list_models(), "model")
    try:
        return timm.create_model(f"{name}.{tag}" if tag else name, pretrained=pretrained, **options)
    except Exception as error:  # timm may raise anything for an invalid value, or without network
        if pretrained:
            raise DiagvibError(
                f"model: the weights of timm/{name} are not available ({reason(error)}); load them "
                "once with a network connection, or save them as a state_dict and name that file"
            ) from None
        raise DiagvibError(f"options of model '{name}' do not fit it: {reason(error)}") from None
