"""Maps of a network: features that say where in an image they were found, [B, channels, H, W]."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook


@contextmanager
def last_map() -> Iterator[list[Tensor]]:
    """A list that holds the last map that any module made while it was open, but for pooled ones:
    square, of several cells, one for each image. Empty if there was none, or if tokens, [B, N, D],
    came after it."""
    maps: list[Tensor] = []
    pools = nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d

    def note(module: nn.Module, inputs: tuple, output: object) -> None:
        several = isinstance(output, Tensor) and output.ndim in (3, 4) and 1 not in output.shape[2:]
        if several and not isinstance(module, pools):
            is_map = output.ndim == 4 and output.shape[2] == output.shape[3]
            maps[:] = [output] if is_map else []

    with register_module_forward_hook(note):
        yield maps


def class_gradient(logits: Tensor, classes: Tensor, inputs: Tensor) -> Tensor | None:
    """The gradient of the logits of these classes, int64[B], with respect to inputs of any shape;
    None if the logits, [B, C], do not depend on them."""
    class_logits = logits.gather(1, classes[:, None]).sum()
    return torch.autograd.grad(class_logits, inputs, allow_unused=True)[0]


def evidence(
    logits: Tensor, classes: Tensor, maps: Tensor, averaged: bool = False
) -> Tensor | None:
    """How much each cell of a map speaks for a class, float[B, H, W]: the sum over channels of the
    map times the gradient of the class's logit; None if the logits do not depend on the map.

    logits: [B, C], made from the maps; classes: int64[B]. averaged: the gradient is first averaged
    over all cells (Grad-CAM, Selvaraju et al., 2017). Without, cells that the logit does not depend
    on get nothing, also if the head tells cells apart (HiResCAM, Draelos and Carin, 2020); for a
    head that reads the mean over all cells, it is the same.
    """
    gradient = class_gradient(logits, classes, maps)
    if gradient is None:
        return None
    if averaged:
        gradient = gradient.mean((2, 3), keepdim=True)
    return (gradient * maps.detach()).sum(1)


def smooth_evidence(gradients: Sequence[Tensor], maps: Tensor) -> Tensor:
    """Smooth Grad-CAM++ (Omeiza et al., 2019), float[B, H, W], at least 0: the maps weighted by
    channel, as in Grad-CAM++ (Chattopadhay et al., 2018), with powers of the gradients averaged over
    noisy copies of the images.

    gradients: of the class's logit, with respect to the map of each copy; maps: of the images. All
    [B, channels, H, W].
    """
    first, second, third = (
        sum(gradient**power for gradient in gradients) / len(gradients) for power in (1, 2, 3)
    )
    below = 2 * second + maps.sum((2, 3), keepdim=True) * third
    shares = torch.where(below == 0, 0, second / below)
    weights = (shares * first.clamp_min(0)).sum((2, 3), keepdim=True)
    return (weights * maps).sum(1).clamp_min(0)
