"""Where a trained method looks: the parts of test images that speak for the predicted class."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.seeding import seed_generators
from diagvib.images.files import Images
from diagvib.methods.method import Method, Unlabelled
from diagvib.models.maps import class_gradient, evidence, last_map, smooth_evidence
from diagvib.scenes import load_scene
from diagvib.training.batches import Batches
from diagvib.training.protocol import Protocol, deterministic

# Images per pass: few, since all activations are kept for the gradient.
_AT_ONCE = 16
# Of Smooth Grad-CAM++: noisy copies of an image, and the noise's standard deviation as a share of the
# image's range, as for SmoothGrad (Smilkov et al., 2017).
_COPIES, _NOISE = 16, 0.15


def saliency(
    method: Method, batches: Batches, rows: np.ndarray, protocol: Protocol
) -> tuple[Tensor, Tensor] | None:
    """Logits [N, C] of the images in these rows, and the share of each pixel in what speaks for the
    predicted class: float32[N, H, W], on the CPU; zeros where nothing does.

    The positive `evidence` of the cells of the method's last map, interpolated to pixels; for networks
    without a map, the size of the gradient at each pixel. None if the method reads features
    instead of pixels, or has no gradient there. Changes neither the method nor any random state.
    """
    if batches.pixels.ndim != 4:
        return None
    parts = []
    with deterministic(batches.device, protocol.threads), torch.enable_grad():
        seed_generators(protocol.seed)
        method.eval()
        for index in torch.tensor(rows).split(_AT_ONCE):
            batch = batches.batch(index)
            inputs = batch.inputs.requires_grad_()
            with last_map() as maps, protocol.autocast(batches.device):
                logits = method.predict(Unlabelled(batch.pixels, inputs.clone()))
            spread = _spread(logits, inputs, maps) if logits.requires_grad else None
            if spread is None:
                return None
            parts.append((logits.detach().float().cpu(), spread.cpu()))
    logits, heat = (torch.cat(part) for part in zip(*parts, strict=True))
    return logits, heat / heat.sum((1, 2), keepdim=True).clamp_min(1e-12)


def smooth_saliency(
    method: Method, batches: Batches, rows: np.ndarray, protocol: Protocol
) -> Tensor | None:
    """Smooth Grad-CAM++ of the predicted class of the images in these rows, float32[N, H, W], at least
    0, on the CPU. None if the method has no map that its logits depend on. Changes neither the method
    nor any random state."""
    if batches.pixels.ndim != 4:
        return None
    parts, generator = [], torch.Generator().manual_seed(protocol.seed)
    with deterministic(batches.device, protocol.threads), torch.enable_grad():
        seed_generators(protocol.seed)
        method.eval()
        for index in torch.tensor(rows).split(_AT_ONCE):
            batch, gradients = batches.batch(index), []
            low, high = batch.inputs.flatten(1).aminmax(dim=1)
            with protocol.autocast(batches.device):
                plain = _map_gradient(method, batch.pixels, batch.inputs)
                for _ in range(_COPIES if plain else 0):
                    noise = torch.randn(batch.inputs.shape, generator=generator).to(batch.inputs)
                    inputs = batch.inputs + _NOISE * (high - low).view(-1, 1, 1, 1) * noise
                    gradients.append(_map_gradient(method, batch.pixels, inputs, plain[0])[2])
            if plain is None:
                return None
            cells = smooth_evidence(gradients, plain[1])[:, None]
            parts.append(F.interpolate(cells, batch.inputs.shape[2:], mode="bilinear")[:, 0].cpu())
    return torch.cat(parts)


def _map_gradient(
    method: Method, pixels: Tensor, inputs: Tensor, classes: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The classes, by default the predicted ones, int64[B]; the last map; and the gradient of these
    classes' logits with respect to it. None without such a map."""
    with last_map() as maps:
        logits = method.predict(Unlabelled(pixels, inputs.clone().requires_grad_()))
    if not _has_map(maps, inputs):
        return None
    classes = logits.argmax(1) if classes is None else classes
    gradient = class_gradient(logits, classes, maps[0])
    return None if gradient is None else (classes, maps[0].detach().float(), gradient.float())


def _has_map(maps: Sequence[Tensor], inputs: Tensor) -> bool:
    """Whether there is a map with a gradient, one for each input."""
    return bool(maps) and maps[0].requires_grad and len(maps[0]) == len(inputs)


def _spread(logits: Tensor, inputs: Tensor, maps: Sequence[Tensor]) -> Tensor | None:
    """How much each pixel speaks for the class with the largest logit, float32[N, H, W], at least
    0: for its logit above the mean of all, since a prediction depends on differences alone. None
    if no gradient reaches them."""
    classes = logits.argmax(1)
    logits = logits - logits.mean(1, keepdim=True)
    if _has_map(maps, inputs):
        cells = evidence(logits, classes, maps[0])
        if cells is not None:
            cells = cells.detach().float().clamp_min(0)[:, None]
            return F.interpolate(cells, inputs.shape[2:], mode="bilinear")[:, 0]
    gradient = class_gradient(logits, classes, inputs)
    return None if gradient is None else gradient.float().abs().sum(1)


def shares(
    method: Method,
    batches: Batches,
    test: Images,
    factors: Sequence[str],
    rows: np.ndarray,
    protocol: Protocol,
) -> dict[str, dict[str, float]]:
    """For each factor: the mean `share` of the saliency of the images in these rows that lies where
    the image shows it, and the mean `area` of that region as a share of the image. Empty if the
    scene does not say where, or the method has no `saliency`."""
    region = getattr(load_scene(test.metadata["scene"]), "region", None)
    saliency_maps = region and saliency(method, batches, rows, protocol)
    if not saliency_maps:
        return {}
    heat, pixels = saliency_maps[1].numpy(), test.pixels[torch.tensor(rows)].cpu().numpy()
    has_heat = heat.any((1, 2))
    result = {}
    for factor in factors if has_heat.any() else ():
        inside = np.asarray(region(factor, test.table.take(rows), pixels))
        if inside.dtype != bool or inside.shape != heat.shape:
            raise DiagvibError(
                f"scene {test.metadata['scene']}: region gives {inside.dtype}{[*inside.shape]} for {factor}; "
                f"bool{[*heat.shape]} is needed"
            )
        inside = inside[has_heat]
        result[factor] = {
            "share": round(float((heat[has_heat] * inside).sum((1, 2)).mean()), 6),
            "area": round(float(inside.mean()), 6),
        }
    return result
