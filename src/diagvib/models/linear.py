"""`linear`, the head of a frozen network, trained on features that were computed before."""

from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.models.network import Network


def linear(settings: dict, n_classes: int, image_size: int) -> Network:
    """Vectors float[B, features] to logits. options: features, their number, and mlp, the units of
    a hidden layer, if there is one; image_size: 0, as there is no image.

    DiagvibError if it is used on images.
    """
    options = settings["options"]
    if image_size or "features" not in options:
        raise DiagvibError(
            "model: linear reads features, not images; name the network of the features, with "
            "frozen: true, or another model"
        )
    width = options.get("mlp")
    if not width:
        return Network(nn.Identity(), nn.Linear(options["features"], n_classes))
    hidden = nn.Sequential(nn.Linear(options["features"], width), nn.ReLU())
    return Network(hidden, nn.Linear(width, n_classes))
