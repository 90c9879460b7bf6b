"""Recipes in, finished images out: the batched renderer (benchmark section 3, "From sources to an
image").

Every image is one textured digit on a grey canvas. The digit's mask and the coloured texture crop,
both 40 x 40, are resized to n x n by one small matrix per n (`resize_matrix`): resized = A_n X
A_n^T. Sizes, corners and colours are computed here, in float64; `cpu_kernel` or `gpu_kernel` draws,
and both draw the same bytes.
"""

from importlib.util import find_spec

import numpy as np
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.foundation.plug_ins import reason
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


def hls_to_rgb(hue: torch.Tensor, lightness: torch.Tensor) -> torch.Tensor:
    """Colours of full saturation as integers 0..255 (255 * v truncated).

    hue: float64[N] in degrees; lightness: float64[N]. Returns float64[N, 3].
    """
    # (l + 1) - l is not always 1 in floating point, and the truncation below reveals it: the order
    # of operations matters
    high = torch.where(lightness <= 0.5, 2 * lightness, (lightness + 1) - lightness)
    low = 2 * lightness - high
    # On a GPU, torch divides by a number as it multiplies by its inverse, which rounds twice.
    turns = hue / torch.full_like(hue, 360)
    h = turns[:, None] + torch.from_numpy(np.arange(1, -2, -1) / 3).to(hue.device)
    h, high, low = h - h.floor(), high[:, None], low[:, None]
    rising, falling = low + (high - low) * h * 6, low + (high - low) * (2 / 3 - h) * 6
    value = torch.where(h < 2 / 3, falling, low)
    value = torch.where(h < 1 / 6, rising, torch.where(h < 1 / 2, high, value))
    return (255 * value).trunc()


def placement(
    position: torch.Tensor, scale: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where objects are in an image of `size` pixels: their sides int64[N], and the (row, column)
    of their top left pixels, int64[N, 2], which may be outside. position: float64[N, 2]; scale:
    float64[N]."""
    side = (OBJECT_SIDE * size / PAPER_SIZE * scale).round().clamp(1, _FAR).long()
    corner = ((size - 1) * position - (side[:, None] - 1) / 2).clamp(-_FAR, _FAR)
    return side, corner.trunc().long()


class CpuDrawing:
    """Draws checked recipes on the CPU; the images are moved to `device`.

    masks: uint8[D, 40, 40] holding 0 and 255; textures: uint8[T, H, W].
    """

    def __init__(self, masks: np.ndarray, textures: np.ndarray, size: int, device: torch.device):
        # here: nobody else should wait for the compiler
        from diagvib.scenes.digits.cpu_kernel import draw_images, mask_boxes, resize_tables

        self._draw, self._make_tables = draw_images, resize_tables
        self.size, self.device = size, device
        turned = [np.ascontiguousarray(stack.swapaxes(1, 2)) for stack in (masks, textures)]
        self._sources = [*turned, mask_boxes(masks)]
        self._tables = resize_tables(size)

    def __call__(self, digit, texture, crop, side, corner, colour) -> torch.Tensor:
        """digit, texture, side: int64[N]; crop, corner: int64[N, 2]; colour: float64[N, 2, 3],
        integers."""
        columns = (digit, texture, crop, side, corner, colour.float())
        columns = [column.cpu().contiguous().numpy() for column in columns]
        # No study has objects larger than the image.
        largest = columns[3].max(initial=0)
        tables = self._tables if largest <= self.size else self._make_tables(largest)
        # NumPy asks the system for huge pages, torch does not
        images = np.empty((len(columns[0]), self.size, self.size, 3), dtype=np.uint8)
        constants = np.float32(CANVAS), np.float32(TRUNCATION_GUARD)
        self._draw(images, *self._sources, *tables, *columns, *constants)
        return torch.from_numpy(images).to(self.device)


def drawing(device: torch.device) -> type:
    """The class that draws for a device: on a GPU, if there is a compiler for it, and it works."""
    if device.type == "cuda" and find_spec("triton"):
        from triton.runtime import driver

        from diagvib.scenes.digits.gpu_kernel import GpuDrawing

        try:
            driver.active  # noqa: B018 - compiles a part of Triton, with the machine's C compiler
        except Exception as error:
            say(
                f"images are drawn by the CPU, because Triton does not work here ({reason(error)}); it "
                "needs a C compiler and Python's header files"
            )
        else:
            return GpuDrawing
    return CpuDrawing


class Renderer:
    """Renders batches of recipes from prepared digits and textures, for any torch device: on a GPU
    in its memory, otherwise on the CPU, in the same bytes.

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
        digits = _stack(digits, "digits", largest_side=OBJECT_SIDE)
        masks = np.uint8(255) * (digits > MASK_THRESHOLD)
        textures = _stack(textures, "textures")
        height, width = textures.shape[1:]
        self._limits = {
            "digit": len(masks),
            "texture": len(textures),
            "crop": [height - OBJECT_SIDE + 1, width - OBJECT_SIDE + 1],
        }
        self.draw = drawing(self.device)(masks, textures, self.size, self.device)

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
        like = torch.as_tensor(digit)
        columns = {
            name: self._checked(name, numbers, like) for name, numbers in (index | value).items()
        }
        side, corner = placement(columns["position"], columns["scale"], self.size)
        colours = [hls_to_rgb(columns["hue"], level) for level in columns["lightness"].unbind(1)]
        return self.draw(*(columns[name] for name in index), side, corner, torch.stack(colours, 1))

    def _checked(self, name: str, numbers, like: torch.Tensor) -> torch.Tensor:
        """An argument of `render` as a tensor, for as many images as `like` and on its device."""
        limit, count = self._limits.get(name), len(like)
        dtype = torch.float64 if limit is None else torch.int64
        column = torch.as_tensor(numbers, dtype=dtype, device=like.device)
        shape = (count, 2) if name in _PAIRS else (count,)
        if column.shape != shape:
            raise DiagvibError(f"{name}: shape {tuple(column.shape)} given, {shape} expected")
        if limit is None:
            outside, problem = ~column.isfinite(), "is not a finite number"
        else:
            outside = (column < 0) | (column >= torch.tensor(limit, device=like.device))
            problem = f"is out of range; from 0 to below {limit} expected"
        if outside.any():
            row = int(outside.nonzero()[0, 0])
            raise DiagvibError(f"row {row}: {name} {column[row].tolist()} {problem}")
        return column


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
