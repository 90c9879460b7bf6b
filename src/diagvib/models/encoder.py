"""A frozen network that turns images into features."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.models.network import Network


class Encoder(nn.Module):
    """Pixels uint8[B, H, W, 3] to features float32[B, D], in evaluation mode.

    mean, std: per channel, of pixels in 0..255. size: of the network's input, None: as the images.
    layer: the module whose output is the features; a map is averaged over the image. DiagvibError
    for an unknown layer, or a network without features.
    """

    def __init__(
        self,
        network: Network,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        size: int | None = None,
        interpolation: str = "bilinear",
        layer: str | None = None,
    ):
        super().__init__()
        self.network, self.size, self.interpolation = network, size, interpolation
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("factor", torch.tensor(std).reciprocal(), persistent=False)
        if layer is not None:
            layers = dict(network.body.named_modules())
            if layer not in layers or not layer:
                raise unknown_name("layer", layer, [name for name in layers if name], "model.layer")
            layers[layer].register_forward_hook(self._keep)
        self.layer = layer
        self.of_inputs = self.compute
        self.to(memory_format=torch.channels_last).eval().requires_grad_(False)

    def _keep(self, module: nn.Module, inputs: object, output: object) -> None:
        # A copy, since the next operation may work in place.
        self.layer_output = output.clone() if isinstance(output, Tensor) else None

    def inputs(self, pixels: Tensor) -> Tensor:
        """Resize and normalise images for the network: float32[B, 3, S, S]."""
        images = pixels.float().permute(0, 3, 1, 2)
        if self.size and images.shape[-1] != self.size:
            images = F.interpolate(
                images, (self.size, self.size), mode=self.interpolation, antialias=True
            ).clamp(0, 255)  # bicubic goes beyond
        scaled = images.permute(0, 2, 3, 1).sub(self.mean).mul_(self.factor)
        return scaled.permute(0, 3, 1, 2)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.of_inputs(self.inputs(pixels))

    def compute(self, inputs: Tensor) -> Tensor:
        """The features of what `inputs` gives, by PyTorch; `of_inputs` may be a faster function."""
        self.layer_output = None
        features = self.network.features(inputs)
        if self.layer is not None:
            features = self.layer_output
            if features is None or features.ndim not in (2, 3, 4):
                raise DiagvibError(
                    f"model.layer: {self.layer} gives no features; name a module that runs and "
                    "returns one tensor"
                )
            if features.ndim == 4 and features.shape[1] == features.shape[2] != features.shape[3]:
                features = features.movedim(3, 1)  # channels last, as in Swin
            if features.ndim == 3:  # tokens
                features = features.mean(1)
            features = features.flatten(2).mean(2) if features.ndim == 4 else features.flatten(1)
        elif not self.network.has_features:
            raise DiagvibError(
                "model.frozen: this network does not end in a linear layer, whose input would be its "
                "features; name one of its modules as model.layer"
            )
        return features.float()
