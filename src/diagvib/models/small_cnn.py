"""`small_cnn`, ours: a net small enough to show shortcut learning on a laptop within minutes."""

from torch import nn

from diagvib.methods.method import Baseline


def _convolution(width_in: int, width_out: int, kernel: int, stride: int) -> list[nn.Module]:
    # No bias: batch norm brings its own.
    padding = (kernel - 1) // 2
    return [nn.Conv2d(width_in, width_out, kernel, stride, padding, bias=False), nn.BatchNorm2d(width_out),
            nn.ReLU(inplace=True)]


class SmallCnn(Baseline):
    """Three convolutions, the first with stride 4, then one linear layer. Not in the paper; made for speed.

    The linear layer reads a map of 4 x 4 cells rather than its average: after three convolutions an average over the
    image would no longer know where the object stands, which the factor position asks for.
    """

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        super().__init__(settings)
        cells = 4
        self.net = nn.Sequential(*_convolution(3, 32, 7, 4), *_convolution(32, 64, 3, 2), *_convolution(64, 128, 3, 2),
                                 nn.AdaptiveMaxPool2d(cells), nn.Flatten(), nn.Linear(128 * cells * cells, n_classes))
