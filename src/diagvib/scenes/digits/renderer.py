"""Recipes in, finished images out: the batched renderer (benchmark section 3, "From sources to an
image").

Every image is one textured digit on a grey canvas. The digit's mask and the coloured texture crop,
both 40 x 40, are resized to n x n by one small matrix per n (`resize_matrix`): resized = A_n X
A_n^T. Images are therefore sorted by n and rendered in chunks of equal n, each a pair of matrix
products. Digits leave a margin of their 40 x 40 empty, and where no digit reaches, the canvas
remains: only a window of the object is computed (`Window`). If their compilers are installed,
`cpu_kernel.py` (numba) and on CUDA `kernel.py` (Triton) do all this image by image, several times
faster.
"""

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
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

# Large enough to outweigh the cost of a call, small enough for a CPU's caches (about 50 KB per
# image) or a GPU's memory.
_CHUNK = {"cpu": 128, "cuda": 4096}
# Pixels; anything further away counts as this far. Keeps absurd positions within 32-bit integers.
_FAR = 2**20


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


class Window(NamedTuple):
    """The part of an object of n x n pixels that must be computed: output rows (and columns) that a
    digit can reach.

    matrix: float32[m, k], the part of A_n that makes the m output rows from `start` on from the k
    source rows from `source` on; crops: every k x k crop of every texture as a view, uint8[T, rows,
    columns, k, k].
    """

    matrix: torch.Tensor
    start: int
    source: int
    crops: torch.Tensor


class Renderer:
    """Renders batches of recipes from prepared digits and textures, on any torch device.

    digits: uint8[D, 40, 40]; textures: uint8[T, H, W] with H, W >= 40; size: side of the images in
    pixels, 64 to 256. At sizes other than 128 objects keep their size relative to the image. Raises
    DiagvibError for other shapes. fused: render with the device's kernel (CPU: numba, CUDA:
    Triton), not with torch's operations; default: if its compiler is installed.
    """

    def __init__(
        self,
        digits,
        textures,
        device: str | torch.device = "cpu",
        size: int = PAPER_SIZE,
        fused: bool | None = None,
    ):
        self.device, self.size = torch.device(device), int(size)
        if not 64 <= self.size <= 256:
            raise DiagvibError(f"image size {size}: sizes from 64 to 256 pixels can be rendered")
        digits = _stack(digits, "digits", (OBJECT_SIDE, OBJECT_SIDE)).to(self.device)
        self.masks = (digits > MASK_THRESHOLD).to(torch.uint8).mul_(255)
        self.textures = _stack(textures, "textures").to(self.device)
        height, width = self.textures.shape[1:]
        self._limits = {
            name: torch.tensor(limit, device=self.device)
            for name, limit in {
                "digit": [len(self.masks)],
                "texture": [len(self.textures)],
                "crop": [height - OBJECT_SIDE + 1, width - OBJECT_SIDE + 1],
            }.items()
        }
        self._used = _used_interval(self.masks)
        self._windows: dict[int, Window] = {}
        if fused is None:
            compiler = {"cpu": "numba", "cuda": "triton"}.get(self.device.type)
            fused = compiler is not None and find_spec(compiler) is not None
        self.kernel = self._make_kernel() if fused else None

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
        index = {
            k: torch.as_tensor(v, dtype=torch.int64, device=self.device) for k, v in index.items()
        }
        value = {
            k: torch.as_tensor(v, dtype=torch.float64, device=self.device) for k, v in value.items()
        }
        self._check(index, value)
        side, corner = placement(value["position"], value["scale"], self.size)
        colour = torch.stack(
            [hls_to_rgb(value["hue"], value["lightness"][:, k]) for k in (0, 1)], 1
        ).float()
        if self.kernel and len(side) and int(side.max()) <= self.kernel.largest_side:
            return self.kernel(**index, side=side, corner=corner, colour=colour)
        return self._paint(**index, side=side, corner=corner, colour=colour)

    def _paint(self, side, **recipe) -> torch.Tensor:
        """Render in chunks of equal object size."""
        images = _canvas(len(side), self.size, self.device)
        order, sides, counts = _chunks(side, _CHUNK.get(self.device.type, _CHUNK["cuda"]))
        windows = [self._window(n) for n in sides]
        columns = [
            recipe[k][order].split(counts) for k in ("digit", "texture", "crop", "colour", "corner")
        ]
        place = _place_by_slices if self.device.type == "cpu" else _place_by_gather
        for window, rows, *chunk, corner in zip(
            windows, order.split(counts), *columns, strict=True
        ):
            objects = blend(resize(self._layers(window, *chunk), window.matrix))
            place(images, rows, corner + window.start, objects)
        return images

    def _layers(self, window: Window, digit, texture, crop, colour) -> torch.Tensor:
        """The window's three colour channels and its mask, float32[B, 4, k, k] holding integers
        0..255."""
        k, used = (
            window.matrix.shape[1],
            slice(window.source, window.source + window.matrix.shape[1]),
        )
        layers = torch.empty(len(digit), 4, k, k, device=self.device)
        first, second = colour[..., None, None].unbind(1)
        t = _take(window.crops, texture, *(crop + window.source).unbind(1))[:, None]
        # (first * t + second * (255 - t)) // 255; half a unit is added because the quotient of the
        # integers is inexact
        torch.mul(t, (first - second).div_(255), out=layers[:, :3])
        layers[:, :3].add_(second + 0.5 / 255).floor_()
        layers[:, 3] = self.masks.index_select(0, digit)[:, used, used]
        return layers

    def _window(self, n: int) -> Window:
        if n not in self._windows:
            self._windows[n] = self._make_window(n)
        return self._windows[n]

    def _make_window(self, n: int) -> Window:
        matrix, (low, high) = resize_matrix(n), self._used
        outputs = np.flatnonzero(matrix[:, low:high].any(1))
        matrix = matrix[outputs[0] : outputs[-1] + 1]
        source = np.flatnonzero(matrix.any(0))
        matrix = torch.from_numpy(matrix[:, source[0] : source[-1] + 1]).to(
            self.device, torch.float32
        )
        k = matrix.shape[1]
        return Window(
            matrix, int(outputs[0]), int(source[0]), self.textures.unfold(1, k, 1).unfold(2, k, 1)
        )

    def _make_kernel(self):
        # imported here: without a renderer nobody should wait for, or need, either compiler
        if self.device.type == "cpu":
            from diagvib.scenes.digits.cpu_kernel import CpuKernel

            return CpuKernel(self.masks, self.textures, self.size)
        from diagvib.scenes.digits.triton_kernel import Kernel

        return Kernel(self.masks, self.textures, self.size, self._used)

    def _check(self, index: dict[str, torch.Tensor], value: dict[str, torch.Tensor]) -> None:
        n, wrong = len(index["digit"]), {}
        for name, tensor in {**index, **value}.items():
            shape = (n, 2) if name in ("crop", "lightness", "position") else (n,)
            if tuple(tensor.shape) != shape:
                raise DiagvibError(f"{name}: shape {tuple(tensor.shape)} given, {shape} expected")
            table = tensor.reshape(n, len(shape))
            good = (
                (table >= 0) & (table < self._limits[name]) if name in index else table.isfinite()
            )
            wrong[name] = ~good.all(1)
        # all of them are checked at once, since every check waits for a GPU
        if torch.stack(list(wrong.values())).any():
            name = next(k for k, v in wrong.items() if v.any())
            row = int(wrong[name].nonzero()[0, 0])
            problem = (
                "is not a finite number"
                if name in value
                else f"is out of range; from 0 to below {' and '.join(map(str, self._limits[name].tolist()))} expected"
            )
            raise DiagvibError(
                f"row {row}: {name} {({**index, **value})[name][row].tolist()} {problem}"
            )


def resize(layers: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Resize float32[B, C, k, k] by A = float32[m, k]; the results, truncated to integers,
    float32[B, C, m, m]."""
    (b, c, k, _), m = layers.shape, len(matrix)
    columns = (layers.view(-1, k) @ matrix.T).view(b * c, k, m)
    resized = torch.bmm(matrix.expand(b * c, m, k), columns)
    return resized.add_(TRUNCATION_GUARD).floor_().view(b, c, m, m)


def blend(layers: torch.Tensor) -> torch.Tensor:
    """Lay the object over the canvas: float32[B, 4, m, m] (three channels, mask) to uint8[B, m, m,
    3]."""
    channels, mask = layers[:, :3], layers[:, 3:]
    # (mask * object + (255 - mask) * canvas) // 255, as canvas + mask * (object - canvas) / 255
    pixels = channels.sub_(CANVAS).mul_(mask.mul_(1 / 255)).add_(CANVAS + 0.5 / 255)
    return torch.stack(pixels.to(torch.uint8).unbind(1), -1)


def _chunks(side: torch.Tensor, largest: int) -> tuple[torch.Tensor, list[int], list[int]]:
    """An order of the images by object size, and the size and length of each chunk in that
    order."""
    ordered, order = torch.sort(side, stable=True)
    chunks = [
        (n, min(largest, count - at))
        for n, count in zip(
            *(x.tolist() for x in torch.unique_consecutive(ordered, return_counts=True)),
            strict=True,
        )
        for at in range(0, count, largest)
    ]
    return order, [n for n, _ in chunks], [count for _, count in chunks]


def _canvas(n: int, size: int, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.full((n, size, size, 3), CANVAS, dtype=torch.uint8, device=device)
    # NumPy asks the system for huge pages, torch does not: new memory takes a third of the time
    return torch.from_numpy(np.full((n, size, size, 3), CANVAS, dtype=np.uint8))


def _take(crops: torch.Tensor, *at: torch.Tensor) -> torch.Tensor:
    # NumPy copies full rows of a view here, torch single elements
    return (
        torch.from_numpy(crops.numpy()[tuple(i.numpy() for i in at)])
        if crops.device.type == "cpu"
        else crops[at]
    )


def _place_by_slices(
    images: torch.Tensor, rows: torch.Tensor, corner: torch.Tensor, objects: torch.Tensor
) -> None:
    """Copy each object into its image, clipped at the border. One small copy per image: best on a
    CPU."""
    target, source = images.numpy(), objects.numpy()
    size, n = target.shape[1], source.shape[1]
    for row, (top, left), pixels in zip(rows.tolist(), corner.tolist(), source, strict=True):
        if 0 <= top <= size - n and 0 <= left <= size - n:
            target[row, top : top + n, left : left + n] = pixels
        else:
            target[row, max(top, 0) : max(top + n, 0), max(left, 0) : max(left + n, 0)] = pixels[
                max(-top, 0) : max(size - top, 0), max(-left, 0) : max(size - left, 0)
            ]


def _place_by_gather(
    images: torch.Tensor, rows: torch.Tensor, corner: torch.Tensor, objects: torch.Tensor
) -> None:
    """The same without a loop: for every pixel of the image, finds the object's pixel, if any, that
    covers it."""
    size, n = images.shape[1], objects.shape[1]
    at = torch.arange(size, device=images.device) - corner[:, :, None]  # [B, 2, size]
    inside = (at >= 0) & (at < n)
    y, x = at.clamp(0, n - 1).unbind(1)
    covered = objects[
        torch.arange(len(rows), device=images.device)[:, None, None], y[:, :, None], x[:, None, :]
    ]
    images[rows] = torch.where(
        (inside[:, 0, :, None] & inside[:, 1, None, :])[..., None], covered, images[rows]
    )


def _used_interval(masks: torch.Tensor) -> tuple[int, int]:
    """The smallest interval of rows, and of columns, that contains every mask; everything if all
    are empty."""
    if not masks.any():
        return 0, OBJECT_SIDE
    used = masks.amax(0)
    at = torch.maximum(used.amax(0), used.amax(1)).nonzero()
    return int(at[0]), int(at[-1]) + 1


def _stack(images, name: str, shape: tuple[int, int] | None = None) -> torch.Tensor:
    stack = torch.as_tensor(images)
    fits = stack.ndim == 3 and (
        tuple(stack.shape[1:]) == shape if shape else min(stack.shape[1:]) >= OBJECT_SIDE
    )
    if stack.dtype != torch.uint8 or not fits:
        wanted = "N, 40, 40" if shape else "N, H >= 40, W >= 40"
        raise DiagvibError(
            f"{name}: {stack.dtype}{list(stack.shape)} given, uint8[{wanted}] expected"
        )
    return stack
