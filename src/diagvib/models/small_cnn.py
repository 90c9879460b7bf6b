"""`small_cnn`, ours: a network small enough to show shortcut learning on a laptop within
minutes."""

from torch import nn

from diagvib.foundation.errors import DiagvibError
from diagvib.models.network import Network


def convolution(width_in: int, width_out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution, batch norm and ReLU."""
    # No bias: batch norm has its own.
    padding = (kernel - 1) // 2
    return [
        nn.Conv2d(width_in, width_out, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(width_out),
        nn.ReLU(inplace=True),
    ]


def small_cnn(settings: dict, n_classes: int, image_size: int) -> Network:
    """Three convolutions, the first with stride 4, then one linear layer. Not in the paper; made
    for speed.

    The linear layer reads a map of 4 x 4 cells rather than its average: after three convolutions an
    average over the image would lose the object's position, which the factor position needs. It
    takes no options.
    """
    if settings["options"]:
        raise DiagvibError(
            f"model: small_cnn takes no options, but {', '.join(settings['options'])} is given"
        )
    cells = 4
    body = nn.Sequential(
        *convolution(3, 32, 7, 4),
        *convolution(32, 64, 3, 2),
        *convolution(64, 128, 3, 2),
        nn.AdaptiveMaxPool2d(cells),
        nn.Flatten(),
    )
    return Network(body, nn.Linear(128 * cells * cells, n_classes))
