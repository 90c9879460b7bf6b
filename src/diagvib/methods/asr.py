"""`asr`, Automatic Shortcut Removal: a lens learns to remove what a classifier finds easiest to
rely on."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.methods.method import Method, StepOutput, Visualisation
from diagvib.methods.sizes import halvings
from diagvib.models.small_cnn import convolution


class Asr(Method):
    """A U-Net lens in front of a classifier that sees only the lensed images (paper, Sec. 4 and
    A.2).

    For each batch, the classifier learns the labels of the lensed images; then the lens learns to
    make the classifier predict its least likely class while changing the image little. Neither step
    changes the other network's parameters. Published: the classification task for both, ResNet18 to
    classify, a U-Net, the least-likely adversarial loss, equal weights, the classifier trained on
    lensed images, selection by validation loss. Choices where the paper is silent: the lens adds to
    the image, x + U(x), and starts close to the identity; reconstruction is the mean over pixels
    and channels of the squared change of the z-scored image (as a sum over pixels, equal weights
    would pin the lens to the identity, and the published ASR loses hue and lightness); the least
    likely class is chosen among all classes of the factor, since the head has them all; both
    networks take one step per batch, with one learning rate.
    """

    pixels = True
    halvings = "levels"
    options = {
        "base_width": {
            "description": "channels at the lens's full resolution",
            "minimum": 1,
            "maximum": 1024,
            "default": 32,
        },
        "levels": {
            "description": "halvings inside the lens",
            "minimum": 1,
            "maximum": 8,
            "default": 4,
        },
        "reconstruction_weight": {"minimum": 0, "maximum": 1.0e9, "default": 1.0},
        "lens_lr": {
            "description": "null: that of the optimiser",
            "type": ["number", "null"],
            "exclusiveMinimum": 0,
            "maximum": 1000,
            "default": None,
        },
    }

    def build(self):
        settings = {"name": self.name, "levels": self.options.levels}
        halvings(settings, self.halvings, self.image_size)
        self.lens = UNetLens(self.options.base_width, self.options.levels)
        super().build()

    def optimisers(self, phase):
        changed = {"lr": self.options.lens_lr} if self.options.lens_lr else {}
        return {**super().optimisers(phase), "lens": self.optimiser(self.lens, **changed)}

    def training_step(self, phase, batch, update):
        lensed = self.lens(batch.inputs)
        logits = self.model(lensed.detach())
        loss = self.losses(logits, batch.labels)
        update("model", loss.mean())
        # A second pass: the classifier has changed, and the lens must learn from its present
        # predictions.
        adversarial = least_likely_loss(self.model(lensed))
        update(
            "lens",
            (
                adversarial + self.options.reconstruction_weight * change(lensed, batch.inputs)
            ).mean(),
        )
        return StepOutput(loss, logits)

    def predict(self, batch):
        return self.model(self.lens(batch.inputs))

    def visualisations(self, batch, denormalise):
        """Images before and after the lens, the classifier's predictions, and the change (paper,
        Figs. A4, A9)."""
        lensed = self.lens(batch.inputs)
        after = denormalise(lensed)
        change = (after.float() - batch.pixels.float()) / 2 + 127.5
        return [
            Visualisation("input", batch.pixels, self.model(batch.inputs)),
            Visualisation("lensed", after, self.model(lensed)),
            Visualisation("difference", change.round().to(torch.uint8)),
        ]


def least_likely_loss(logits: Tensor) -> Tensor:
    """Cross entropy float[B] to the least likely class: low where the classifier is misled most."""
    return F.cross_entropy(logits.float(), logits.argmin(1), reduction="none")


def change(lensed: Tensor, inputs: Tensor) -> Tensor:
    """Mean squared difference float[B] over channels and pixels of float[B, 3, H, W]."""
    return (lensed.float() - inputs.float()).square().mean((1, 2, 3))


class UNetLens(nn.Module):
    """x + U(x), float[B, 3, H, W] to the same shape; U is a U-Net of bottleneck blocks with
    `levels` halvings.

    Widths double at every level, starting from `base_width`. The last convolution starts small, so
    the lens starts near the identity.
    """

    def __init__(self, base_width: int, levels: int):
        super().__init__()
        widths = [base_width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(
            _Bottleneck(before, width) for before, width in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            _Bottleneck(below + width, width)
            for width, below in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.last = nn.Conv2d(base_width, 3, 3, padding=1)
        nn.init.normal_(self.last.weight, std=1e-3)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        code, skips = self.down[0](x), []
        for block in self.down[1:]:
            skips.append(code)
            code = block(F.max_pool2d(code, 2))
        for block, skip in zip(self.up, reversed(skips), strict=True):
            larger = F.interpolate(code, scale_factor=2.0, mode="bilinear", align_corners=False)
            code = block(torch.cat([larger, skip], 1))
        return x + self.last(code)


class _Bottleneck(nn.Module):
    """Convolutions 1 x 1, 3 x 3, 1 x 1 in parallel with a skip connection, a 1 x 1 convolution if
    the width changes."""

    def __init__(self, width_in: int, width_out: int):
        super().__init__()
        self.body = nn.Sequential(
            *convolution(width_in, width_out, 1),
            *convolution(width_out, width_out, 3),
            *convolution(width_out, width_out, 1)[:-1],
        )
        self.shortcut = (
            nn.Sequential(*convolution(width_in, width_out, 1)[:-1])
            if width_in != width_out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))
