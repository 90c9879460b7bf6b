"""Recipes in, finished images out: the batched renderer (benchmark section 3, "From sources to an
image").

Every image is one textured digit on a grey canvas. The digit's mask and the coloured texture crop,
both 40 x 40, are resized to n x n by one small matrix per n (`resize_matrix`): resized = A_n X
A_n^T. Images with the same n are rendered together, in a pair of matrix products. If numba is
installed, `cpu_kernel.py` does all this on CPUs image by image, several times faster.
"""

from importlib.util import find_spec

import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits.resizing import (
    CANVAS,
    MASK_THRESHOLD,
    OBJECT_SIDE,
    PAPER_SIZE,
    TRUNCATION_GUARD,
    resize_matrix,
)

# Images rendered together: as many as fit into the memory of a GPU together with their layers.
_CHUNK = 4096
# Pixels; anything further away counts as this far. Keeps absurd positions within 32-bit integers.
_FAR = 2**20
# Arguments of `Renderer.render` with two numbers for each image.
_PAIRS = ("crop", "lightness", "position")


def hls_to_rgb(hue: torch.Tensor, lightness: torch.Tensor) -> torch.Tensor:
    """Colours of full saturation as integers 0..255 (255 * v truncated).

    hue: float64[N] in degrees; lightness: float64[N]. Returns float64[N, 3].
    """
    # (l + 1) - l is not always 1 in floating point, and the truncation below reveals it: the order
    # of operations matters
    high = torch.where(lightness <= 0.5, 2 * lightness, (lightness + 1) - lightness)
    low = 2 * lightness - high
    shift = torch.arange(1, -2, -1, dtype=hue.dtype, device=hue.device) / 3
    h = (hue[:, None] / 360 + shift) % 1
    high, low = high[:, None], low[:, None]
    rising, falling = low + (high - low) * h * 6, low + (high - low) * (2 / 3 - h) * 6
    value = torch.where(
        h < 1 / 6, rising, torch.where(h < 1 / 2, high, torch.where(h < 2 / 3, falling, low))
    )
    return (255 * value).trunc()


def placement(
    position: torch.Tensor, scale: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where objects are in an image of `size` pixels: their sides int64[N], and the (row, column)
    of their top left pixels, int64[N, 2], which may be outside. position: float64[N, 2]; scale:
    float64[N]."""
    side = (OBJECT_SIDE * size / PAPER_SIZE * scale).round().clamp(1, _FAR).long()
    return side, ((size - 1) * position - (side[:, None] - 1) / 2).clamp(-_FAR, _FAR).trunc().long()


class Renderer:
    """Renders batches of recipes from prepared digits and textures, on any torch device.

    digits: uint8[D, 40, 40]; textures: uint8[T, H, W] with H, W >= 40; size: side of the images in
    pixels, 64 to 256. At sizes other than 128 objects keep their size relative to the image. Raises
    DiagvibError for other shapes.
    """

    def __init__(
        self, digits, textures, device: str | torch.device = "cpu", size: int = PAPER_SIZE
    ):
        self.device, self.size = torch.device(device), int(size)
        if not 64 <= self.size <= 256:
            raise DiagvibError(f"image size {size}: sizes from 64 to 256 pixels can be rendered")
        digits = _stack(digits, "digits", most=OBJECT_SIDE)
        self.masks = (digits > MASK_THRESHOLD).to(self.device, torch.uint8).mul_(255)
        self.textures = _stack(textures, "textures").to(self.device)
        height, width = self.textures.shape[1:]
        limits = {
            "digit": len(self.masks),
            "texture": len(self.textures),
            "crop": [height - OBJECT_SIDE + 1, width - OBJECT_SIDE + 1],
        }
        self._limits = {
            name: torch.tensor(limit, device=self.device) for name, limit in limits.items()
        }
        self.kernel = None
        if self.device.type == "cpu" and find_spec("numba"):
            # here: nobody else should wait for the compiler
            from diagvib.scenes.digits.cpu_kernel import CpuKernel

            self.kernel = CpuKernel(self.masks, self.textures, self.size)

    def render(self, digit, texture, crop, hue, lightness, position, scale) -> torch.Tensor:
        """Render N recipes; returns uint8[N, size, size, 3] on the device.

        digit, texture: int64[N], indices into the stacks; crop: int64[N, 2], its top-left (row,
        column); hue: float64[N], degrees; lightness: float64[N, 2]; position: float64[N, 2], (row,
        column) relative to the image; scale: float64[N]. Parts of an object outside the image are
        clipped. Raises DiagvibError, naming the row, for an index outside the stacks or a value
        that is not finite.
        """
        index = {"digit": digit, "texture": texture, "crop": crop}
        value = {"hue": hue, "lightness": lightness, "position": position, "scale": scale}
        given = {
            name: self._checked(name, numbers, len(digit))
            for name, numbers in (index | value).items()
        }
        side, corner = placement(given["position"], given["scale"], self.size)
        hue, lightness = given["hue"], given["lightness"]
        colour = torch.stack([hls_to_rgb(hue, its) for its in lightness.unbind(1)], 1).float()
        # The kernel has no room for objects larger than the image, of which no study has any.
        draw = self.kernel if self.kernel and (side <= self.size).all() else self._paint
        return draw(*(given[name] for name in index), side=side, corner=corner, colour=colour)

    def _checked(self, name: str, numbers, count: int) -> torch.Tensor:
        """An argument of `render` as a tensor on the device."""
        limit = self._limits.get(name)
        dtype = torch.float64 if limit is None else torch.int64
        tensor = torch.as_tensor(numbers, dtype=dtype, device=self.device)
        shape = (count, 2) if name in _PAIRS else (count,)
        if tensor.shape != shape:
            raise DiagvibError(f"{name}: shape {tuple(tensor.shape)} given, {shape} expected")
        wrong = ~tensor.isfinite() if limit is None else (tensor < 0) | (tensor >= limit)
        if wrong.any():
            row = int(wrong.nonzero()[0, 0])
            problem = (
                "is not a finite number"
                if limit is None
                else f"is out of range; from 0 to below {limit.tolist()} expected"
            )
            raise DiagvibError(f"row {row}: {name} {tensor[row].tolist()} {problem}")
        return tensor

    def _paint(self, digit, texture, crop, side, corner, colour) -> torch.Tensor:
        """Render with torch, in chunks of equal object size."""
        shape = (len(side), self.size, self.size, 3)
        images = torch.full(shape, CANVAS, dtype=torch.uint8, device=self.device)
        sides, counts = side.unique(return_counts=True)
        for n, rows in zip(sides.tolist(), side.argsort().split(counts.tolist()), strict=True):
            matrix = torch.from_numpy(resize_matrix(n)).to(self.device, torch.float32)
            for part in rows.split(_CHUNK):
                layers = self._layers(digit[part], texture[part], crop[part], colour[part])
                place(images, part, corner[part], blend(resize(layers, matrix)))
        return images

    def _layers(self, digit, texture, crop, colour) -> torch.Tensor:
        """The three colour channels of objects, and their masks, float32[B, 4, 40, 40] holding
        integers 0..255."""
        row, column = (crop[:, :, None] + torch.arange(OBJECT_SIDE, device=self.device)).unbind(1)
        t = self.textures[texture[:, None, None], row[:, :, None], column[:, None]][:, None].int()
        first, second = colour[..., None, None].int().unbind(1)
        channels = (first * t + second * (255 - t)) // 255
        return torch.cat([channels, self.masks[digit][:, None]], 1).float()


def resize(layers: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Resize float32[B, C, k, k] by A = float32[n, k]; the results, truncated to integers,
    float32[B, C, n, n]."""
    return (matrix @ (layers @ matrix.T)).add_(TRUNCATION_GUARD).floor_()


def blend(layers: torch.Tensor) -> torch.Tensor:
    """Lay the object over the canvas: float32[B, 4, n, n] (three channels, mask) to uint8[B, n, n,
    3]."""
    layers = layers.int()
    channels, mask = layers[:, :3], layers[:, 3:]
    pixels = (mask * channels + (255 - mask) * CANVAS) // 255
    return pixels.to(torch.uint8).permute(0, 2, 3, 1)


def place(
    images: torch.Tensor, rows: torch.Tensor, corner: torch.Tensor, objects: torch.Tensor
) -> None:
    """Put each object into its image, clipped at the border: for every pixel of the image, find the
    object's pixel, if any, that covers it."""
    size, n = images.shape[1], objects.shape[1]
    at = torch.arange(size, device=images.device) - corner[:, :, None]  # [B, 2, size]
    inside = (at >= 0) & (at < n)
    y, x = at.clamp(0, n - 1).unbind(1)
    count = torch.arange(len(rows), device=images.device)[:, None, None]
    covered = objects[count, y[:, :, None], x[:, None]]
    seen = inside[:, 0, :, None] & inside[:, 1, None]
    images[rows] = torch.where(seen[..., None], covered, images[rows])


def _stack(images, name: str, most: int | None = None) -> torch.Tensor:
    stack = torch.as_tensor(images)
    fits = stack.ndim == 3 and min(stack.shape[1:]) >= OBJECT_SIDE
    if stack.dtype != torch.uint8 or not fits or (most and max(stack.shape[1:]) > most):
        wanted = "N, 40, 40" if most else "N, H >= 40, W >= 40"
        raise DiagvibError(
            f"{name}: {stack.dtype}{list(stack.shape)} given, uint8[{wanted}] expected"
        )
    return stack
