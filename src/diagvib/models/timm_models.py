"""Classifiers of the package timm, by name; the package is needed only where one is used."""

import copy

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
    name = settings["name"].removeprefix("timm/")
    try:
        import timm
    except ImportError:
        raise DiagvibError(
            f"model: timm/{name} needs the package timm, which is not installed; `pip install timm`, or "
            "use a torchvision model instead"
        ) from None
    if not timm.is_model(name):
        raise unknown_name("timm model", name, timm.list_models(), "model")
    tag = settings["weights"]
    try:
        net = timm.create_model(
            f"{name}.{tag}" if tag else name,
            pretrained=bool(tag),
            num_classes=n_classes,
            **settings["options"],
        )
    except Exception as error:  # timm may raise anything for an invalid value, or without network
        wrong = f"with weights {tag} is not available" if tag else "do not fit it"
        what = f"model '{name}'" if tag else f"options of model '{name}'"
        raise DiagvibError(f"{what} {wrong}: {reason(error)}") from None
    check_logits(copy.deepcopy(net).train(), f"model '{name}'", n_classes, image_size)
    return separated_if_equal(net, n_classes, image_size)
