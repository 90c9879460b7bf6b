"""Recipes in, finished images out: the batched renderer (benchmark section 3, "From sources to an
image").

Every image is one textured digit on a grey canvas. The digit's mask and the coloured texture crop,
both 40 x 40, are resized to n x n by one small matrix per n (`resize_matrix`): resized = A_n X
A_n^T. Sizes, corners and colours are computed here, in float64; `cpu_kernel.py` draws. That is on
the CPU also if images are wanted on a GPU, so that they are the same bytes everywhere: drawing one
takes a few microseconds, less than a launch on a GPU.
"""

import numpy as np
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.digits.resizing import (
    CANVAS,
    MASK_THRESHOLD,
    OBJECT_SIDE,
    PAPER_SIZE,
    TRUNCATION_GUARD,
)

# Pixels; anything further away counts as this far. Keeps absurd positions within 32-bit integers.
_FAR = 2**20
# Arguments of `Renderer.render` with two numbers for each image.
_PAIRS = ("crop", "lightness", "position")


def hls_to_rgb(hue: np.ndarray, lightness: np.ndarray) -> np.ndarray:
    """Colours of full saturation as integers 0..255 (255 * v truncated).

    hue: float64[N] in degrees; lightness: float64[N]. Returns float64[N, 3].
    """
    # (l + 1) - l is not always 1 in floating point, and the truncation below reveals it: the order
    # of operations matters
    high = np.where(lightness <= 0.5, 2 * lightness, (lightness + 1) - lightness)
    low = 2 * lightness - high
    h = (hue[:, None] / 360 + np.arange(1, -2, -1) / 3) % 1
    high, low = high[:, None], low[:, None]
    rising, falling = low + (high - low) * h * 6, low + (high - low) * (2 / 3 - h) * 6
    value = np.where(
        h < 1 / 6, rising, np.where(h < 1 / 2, high, np.where(h < 2 / 3, falling, low))
    )
    return np.trunc(255 * value)


def placement(position: np.ndarray, scale: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where objects are in an image of `size` pixels: their sides int64[N], and the (row, column)
    of their top left pixels, int64[N, 2], which may be outside. position: float64[N, 2]; scale:
    float64[N]."""
    side = (OBJECT_SIDE * size / PAPER_SIZE * scale).round().clip(1, _FAR).astype(np.int64)
    corner = ((size - 1) * position - (side[:, None] - 1) / 2).clip(-_FAR, _FAR)
    return side, np.trunc(corner).astype(np.int64)


class Renderer:
    """Renders batches of recipes from prepared digits and textures, for any torch device.

    digits: uint8[D, 40, 40]; textures: uint8[T, H, W] with H, W >= 40; size: side of the images in
    pixels, 64 to 256. At sizes other than 128 objects keep their size relative to the image. Raises
    DiagvibError for other shapes.
    """

    def __init__(
        self, digits, textures, device: str | torch.device = "cpu", size: int = PAPER_SIZE
    ):
        # here: nobody else should wait for the compiler
        from diagvib.scenes.digits.cpu_kernel import mask_boxes, resize_tables

        self.device, self.size = torch.device(device), int(size)
        if not 64 <= self.size <= 256:
            raise DiagvibError(f"image size {size}: sizes from 64 to 256 pixels can be rendered")
        digits = _stack(digits, "digits", largest_side=OBJECT_SIDE)
        masks = np.uint8(255) * (digits > MASK_THRESHOLD)
        textures = _stack(textures, "textures")
        height, width = textures.shape[1:]
        self._limits = {
            "digit": len(masks),
            "texture": len(textures),
            "crop": np.array([height - OBJECT_SIDE + 1, width - OBJECT_SIDE + 1]),
        }
        turned = [np.ascontiguousarray(stack.swapaxes(1, 2)) for stack in (masks, textures)]
        self._sources = [*turned, mask_boxes(masks)]
        self._tables = resize_tables(self.size)

    def render(self, digit, texture, crop, hue, lightness, position, scale) -> torch.Tensor:
        """Render N recipes; returns uint8[N, size, size, 3] on the device.

        digit, texture: int64[N], indices into the stacks; crop: int64[N, 2], its top-left (row,
        column); hue: float64[N], degrees; lightness: float64[N, 2]; position: float64[N, 2], (row,
        column) relative to the image; scale: float64[N]. Parts of an object outside the image are
        clipped. Raises DiagvibError, naming the row, for an index outside the stacks or a value
        that is not finite.
        """
        from diagvib.scenes.digits.cpu_kernel import draw_images, resize_tables

        index = {"digit": digit, "texture": texture, "crop": crop}
        value = {"hue": hue, "lightness": lightness, "position": position, "scale": scale}
        arrays = {
            name: self._checked(name, numbers, len(digit))
            for name, numbers in (index | value).items()
        }
        side, corner = placement(arrays["position"], arrays["scale"], self.size)
        colour = np.stack([hls_to_rgb(arrays["hue"], level) for level in arrays["lightness"].T], 1)
        # No study has objects larger than the image.
        largest = side.max(initial=0)
        tables = self._tables if largest <= self.size else resize_tables(largest)
        # NumPy asks the system for huge pages, torch does not
        images = np.empty((len(side), self.size, self.size, 3), dtype=np.uint8)
        draw_images(
            images,
            *self._sources,
            *tables,
            *(arrays[name] for name in index),
            side,
            corner,
            colour.astype(np.float32),
            np.float32(CANVAS),
            np.float32(TRUNCATION_GUARD),
        )
        return torch.from_numpy(images).to(self.device)

    def _checked(self, name: str, numbers, count: int) -> np.ndarray:
        """An argument of `render` as an array."""
        limit = self._limits.get(name)
        dtype = torch.float64 if limit is None else torch.int64
        array = torch.as_tensor(numbers, dtype=dtype, device="cpu").contiguous().numpy()
        shape = (count, 2) if name in _PAIRS else (count,)
        if array.shape != shape:
            raise DiagvibError(f"{name}: shape {array.shape} given, {shape} expected")
        outside = ~np.isfinite(array) if limit is None else (array < 0) | (array >= limit)
        if outside.any():
            row = int(outside.nonzero()[0][0])
            problem = (
                "is not a finite number"
                if limit is None
                else f"is out of range; from 0 to below {limit} expected"
            )
            raise DiagvibError(f"row {row}: {name} {array[row].tolist()} {problem}")
        return array


def _stack(images, name: str, largest_side: int | None = None) -> np.ndarray:
    stack = torch.as_tensor(images, device="cpu").numpy()
    fits = stack.ndim == 3 and min(stack.shape[1:]) >= OBJECT_SIDE
    if (
        stack.dtype != np.uint8
        or not fits
        or (largest_side and max(stack.shape[1:]) > largest_side)
    ):
        expected_shape = "N, 40, 40" if largest_side else "N, H >= 40, W >= 40"
        raise DiagvibError(
            f"{name}: {stack.dtype}{list(stack.shape)} given, uint8[{expected_shape}] expected"
        )
    return stack
