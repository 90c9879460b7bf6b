"""Classifiers of the package timm, by name; the package is needed only where one is used."""

import copy

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.plug_ins import reason
from diagvib.models.network import Network, check_logits, separated_if_equal


def timm_model(settings: dict, n_classes: int, image_size: int) -> Network:
    """`timm/NAME`: timm's model of that name, randomly initialised, or with the published weights of
    a tag, with a last layer for `n_classes`, unless `head` asks for the published one.

    `options` are passed to timm.create_model (timm/vit_tiny_patch16_224: {img_size: 128}).
    DiagvibError if timm is not installed, the name is unknown, or the model does not accept an
    option or the image size.
    """
    name, tag = _known(settings["name"]), settings["weights"]
    import timm

    own_head = tag and settings.get("head") == "published"
    classes = {} if own_head else {"num_classes": n_classes}
    full_name = f"{name}.{tag}" if tag else name
    try:
        net = timm.create_model(full_name, pretrained=bool(tag), **classes, **settings["options"])
    except Exception as error:  # timm may raise anything for an invalid value, or without network
        if tag:
            raise DiagvibError(
                f"model: the weights of timm/{name} are not available ({reason(error)}); load them "
                "once with a network connection, or save them as a state_dict and name that file"
            ) from None
        raise DiagvibError(f"options of model '{name}' do not fit it: {reason(error)}") from None
    check_logits(copy.deepcopy(net).train(), f"model '{name}'", net.num_classes, image_size)
    return separated_if_equal(net, net.num_classes, image_size)


def timm_input(model: str, tag: str | None) -> tuple[str | None, dict]:
    """A tag of the published weights of `timm/NAME`, by default timm's choice, None if there are
    none; and the baseline's `input` with which they were trained."""
    name = _known(model)
    import timm
    from timm.data import resolve_data_config

    tags = [
        pretrained_name.partition(".")[2] for pretrained_name in timm.list_pretrained(f"{name}.*")
    ]
    if tag and tag not in tags:
        raise unknown_name(f"weights of {model}", tag, tags)
    published_config = timm.get_pretrained_cfg(f"{name}.{tag}" if tag else name).to_dict()
    data_config = resolve_data_config(pretrained_cfg=published_config)
    side = data_config["input_size"][1]
    scaling = {key: [*data_config[key]] for key in ("mean", "std")}
    scaling |= {"size": side, "interpolation": data_config["interpolation"]}
    if data_config["crop_mode"] != "squash":  # by which the whole photo becomes the square
        scaling["resize"] = int(side / data_config["crop_pct"])
    return published_config["tag"] if tags else None, scaling


def _known(model: str) -> str:
    """The name of a model of timm. DiagvibError, with similar names, for any other."""
    name = model.removeprefix("timm/")
    try:
        import timm
    except ImportError:
        raise DiagvibError(
            f"model: {model} needs the package timm, which is not installed; `pip install timm`, or "
            "use a torchvision model instead"
        ) from None
    name, _, tag = name.partition(".")
    if tag:
        raise DiagvibError(f"model: {model}: name its weights apart: timm/{name}, weights {tag}")
    if not timm.is_model(name):
        raise unknown_name("timm model", name, timm.list_models(), "model")
    return name
