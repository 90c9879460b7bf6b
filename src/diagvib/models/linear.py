"""`linear`, one linear layer on stored features of another network: for training last layers."""

from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.models.network import Network


def linear(settings: dict, n_classes: int, image_size: int) -> Network:
    """Vectors float[B, features] to logits. options: features, their number; image_size: 0, as
    there is no image.

    DiagvibError if it is used on images.
    """
    if image_size or "features" not in settings["options"]:
        raise DiagvibError(
            "model: linear reads features, not images; it trains last layers (docs/imagenet_w.md); for "
            "images choose another model"
        )
    return Network(nn.Identity(), nn.Linear(settings["options"]["features"], n_classes))
