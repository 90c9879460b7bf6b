"""Any classifier of torchvision, by name: randomly initialised, or with published weights under a
new last layer."""

import copy

import torchvision
from torch import nn

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.plug_ins import reason
from diagvib.models.network import Network, check_logits, last_linear, separated
from diagvib.models.weights import load_weights, published


def check_name(name: str) -> str:
    """The name of a torchvision classifier. DiagvibError, with similar names, for any other."""
    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        unknown = unknown_name("torchvision classifier", name, [*names, "small_cnn"], "model")
        raise DiagvibError(f"{unknown}; one of timm is timm/NAME, your own package.module:function")
    return name


def torchvision_model(settings: dict, n_classes: int, image_size: int) -> Network:
    """torchvision's model of that name with a last layer for `n_classes` (paper, Sec. 4).

    `options` are passed to torchvision's function (vit_b_16: {image_size: 128}). weights:
    torchvision's name for published ones (IMAGENET1K_V1); weights_file, a local file with them
    instead of a download; weights_sha256, the hash of that file, by default the start of the hash
    that torchvision publishes. frozen_statistics: batch norm uses its ImageNet statistics
    throughout. DiagvibError for an unknown name (similar ones are suggested), an option or image
    size that the model does not accept, or weights that are unavailable, unreadable or have the
    wrong hash.
    """
    name = check_name(settings["name"])
    classes = {} if settings["weights"] else {"num_classes": n_classes}
    try:
        net = torchvision.models.get_model(name, weights=None, **classes, **settings["options"])
    except Exception as error:  # the function may raise anything for an invalid value
        raise DiagvibError(f"options of model '{name}' do not fit it: {reason(error)}") from None
    network = (
        _pretrained(net, settings, n_classes) if settings["weights"] else separated(net, n_classes)
    )
    check_logits(copy.deepcopy(network).train(), f"model '{name}'", n_classes, image_size)
    network.frozen_statistics = settings["frozen_statistics"]
    return network


def torchvision_input(name: str, weights: str | None) -> tuple[str, dict]:
    """The name of published weights, by default torchvision's first, and the baseline's `input` with
    which they were trained."""
    published_weights = torchvision.models.get_model_weights(check_name(name))
    weights = weights or next(iter(published_weights)).name
    transforms = published(name, weights).transforms()
    return weights, {
        "size": transforms.crop_size[0],
        "resize": transforms.resize_size[0],
        "interpolation": transforms.interpolation.value,
        "mean": [*transforms.mean],
        "std": [*transforms.std],
    }


def _pretrained(net: nn.Module, settings: dict, n_classes: int) -> Network:
    """The net with its published weights, and a new linear layer, randomly initialised, in place of
    the last, unless `head` asks for that."""
    load_weights(
        net,
        settings["name"],
        settings["weights"],
        settings["weights_file"],
        settings["weights_sha256"],
    )
    if hasattr(net, "transform_input"):  # googlenet and inception_v3 scale inputs for these weights
        net.transform_input = True
    last = last_linear(net)
    if last is None:
        raise DiagvibError(
            f"model: {settings['name']} has no linear layer that a new one could replace; choose "
            "another, such as resnet50"
        )
    network = separated(net, last[1].out_features)
    if settings.get("head") != "published":
        network.head = nn.Linear(last[1].in_features, n_classes)
    return network
