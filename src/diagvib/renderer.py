"""Recipes in, finished images out: the batched renderer (benchmark section 3, "From sources to an image").

Every image is one textured digit on a grey canvas. The digit's mask and the coloured texture crop, both 40 x 40, are
resized to n x n by one small matrix per n (`resize_matrix`): resized = A_n X A_n^T. Images are therefore grouped by n
and each group is a pair of matrix products.
"""

from functools import cache

import numpy as np
import torch

from diagvib.errors import DiagvibError

OBJECT_SIDE = 40  # pixels of a prepared digit and of a texture crop
PAPER_SIZE = 128  # image side for which a scale of 1 means 40 pixels
CANVAS = 127  # grey level of the background
MASK_THRESHOLD = 150  # digit pixels above it belong to the object

# A group's working set (about 100 KB an image) should stay in a core's cache on a CPU and fill the device on a GPU.
_CHUNK = {"cpu": 32, "cuda": 4096}
# Added before truncation, so that float32 noise cannot push an exact integer below itself.
_TRUNCATION_GUARD = 1e-4


@cache
def resize_matrix(n: int, side: int = OBJECT_SIDE) -> np.ndarray:
    """The operator A_n, float64[n, side], that resizes a column of `side` pixels to n.

    Linear interpolation on the pixel-area grid, preceded, when shrinking, by a Gaussian of sigma (side/n - 1)/2 cut at
    4 sigma; borders mirrored without repeating the edge pixel.
    """
    blur = np.eye(side)
    if n < side:
        sigma = (side / n - 1) / 2
        offsets = np.arange(-int(4 * sigma + 0.5), int(4 * sigma + 0.5) + 1)
        weights = np.exp(-0.5 * (offsets / sigma) ** 2)
        blur = sum(w * np.eye(side)[_mirror(np.arange(side) + o, side)]
                   for o, w in zip(offsets, weights / weights.sum(), strict=True))
    at = (np.arange(n) + 0.5) * side / n - 0.5
    low = np.floor(at).astype(int)
    interpolate = np.zeros((n, side))
    np.add.at(interpolate, (np.arange(n), _mirror(low, side)), 1 - (at - low))
    np.add.at(interpolate, (np.arange(n), _mirror(low + 1, side)), at - low)
    matrix = interpolate @ blur
    # Rows whose weights sum to just below one in double precision turn 255 into 254.999..., which the published
    # generator truncates to 254. float32 would lose this; one part in a million keeps it and changes nothing else.
    return np.where(matrix.sum(1, keepdims=True) < 1, matrix * (1 - 1e-6), matrix)


def _mirror(index: np.ndarray, side: int) -> np.ndarray:
    index = np.abs(index) % (2 * (side - 1))
    return np.where(index >= side, 2 * (side - 1) - index, index)


def hls_to_rgb(hue: torch.Tensor, lightness: torch.Tensor) -> torch.Tensor:
    """Colours of full saturation as integers 0..255 (255 * v truncated).

    hue: float64[N] in degrees; lightness: float64[N]. Returns float64[N, 3].
    """
    # (l + 1) - l is not always 1 in floating point, and the truncation below shows it: the order of operations matters
    high = torch.where(lightness <= 0.5, 2 * lightness, (lightness + 1) - lightness)
    low = 2 * lightness - high
    shift = torch.tensor([1 / 3, 0, -1 / 3], dtype=hue.dtype, device=hue.device)
    h = (hue[:, None] / 360 + shift) % 1
    high, low = high[:, None], low[:, None]
    rising, falling = low + (high - low) * h * 6, low + (high - low) * (2 / 3 - h) * 6
    value = torch.where(h < 1 / 6, rising, torch.where(h < 1 / 2, high, torch.where(h < 2 / 3, falling, low)))
    return (255 * value).trunc()


class Renderer:
    """Renders batches of recipes from prepared digits and textures, on any torch device.

    digits: uint8[D, 40, 40]; textures: uint8[T, H, W] with H, W >= 40; size: side of the images in pixels, 64 to 256.
    At sizes other than 128 objects keep their size relative to the image. Raises DiagvibError for other shapes.
    """

    def __init__(self, digits, textures, device: str | torch.device = "cpu", size: int = PAPER_SIZE):
        self.device, self.size = torch.device(device), int(size)
        if not 64 <= self.size <= 256:
            raise DiagvibError(f"image size {size}: sizes from 64 to 256 pixels can be rendered")
        self.digits = _stack(digits, "digits", (OBJECT_SIDE, OBJECT_SIDE)).to(self.device)
        self.textures = _stack(textures, "textures").to(self.device)
        # Every crop of every texture as a view, [T, rows, columns, 40, 40]: a crop is one index.
        self._crops = self.textures.unfold(1, OBJECT_SIDE, 1).unfold(2, OBJECT_SIDE, 1)
        self._matrices: dict[int, torch.Tensor] = {}

    def render(self, digit, texture, crop, hue, lightness, position, scale) -> torch.Tensor:
        """Render N recipes; returns uint8[N, size, size, 3] on the device.

        digit, texture: int64[N], indices into the stacks; crop: int64[N, 2], its top-left (row, column);
        hue: float64[N], degrees; lightness: float64[N, 2]; position: float64[N, 2], (row, column) relative to the
        image; scale: float64[N]. Parts of an object outside the image are clipped. Raises DiagvibError, naming the row,
        for an index outside the stacks or a value that is not finite.
        """
        index = {"digit": digit, "texture": texture, "crop": crop}
        value = {"hue": hue, "lightness": lightness, "position": position, "scale": scale}
        index = {k: torch.as_tensor(v, dtype=torch.int64, device=self.device) for k, v in index.items()}
        value = {k: torch.as_tensor(v, dtype=torch.float64, device=self.device) for k, v in value.items()}
        self._check(index, value)
        side = (OBJECT_SIDE * self.size / PAPER_SIZE * value["scale"]).round().long().clamp(min=1)
        corner = ((self.size - 1) * value["position"] - (side[:, None] - 1) / 2).trunc().long()
        colour = torch.stack([hls_to_rgb(value["hue"], value["lightness"][:, k]) for k in (0, 1)], 1).float()
        return self._paint(index, side, corner, colour)

    def _paint(self, index, side, corner, colour) -> torch.Tensor:
        images = torch.full((len(side), self.size, self.size, 3), CANVAS, dtype=torch.uint8, device=self.device)
        place = _place_by_slices if self.device.type == "cpu" else _place_by_gather
        by_side = torch.argsort(side, stable=True)
        sides, counts = torch.unique_consecutive(side[by_side], return_counts=True)
        for n, group in zip(sides.tolist(), by_side.split(counts.tolist()), strict=True):
            for rows in group.split(_CHUNK.get(self.device.type, _CHUNK["cuda"])):
                layers = self._layers(index["digit"][rows], index["texture"][rows], index["crop"][rows], colour[rows])
                place(images, rows, corner[rows], blend(resize(layers, self._matrix(n))))
        return images

    def _layers(self, digit, texture, crop, colour) -> torch.Tensor:
        """The object's three colour channels and its mask, float32[B, 4, 40, 40] holding integers 0..255."""
        t = self._crops[texture, crop[:, 0], crop[:, 1]]
        layers = torch.empty(len(digit), 4, OBJECT_SIDE, OBJECT_SIDE, device=self.device)
        first, second = colour[:, 0, :, None, None], colour[:, 1, :, None, None]
        # (first * t + second * (255 - t)) // 255; half a unit is added because the quotient of the integers is inexact
        torch.addcmul(second + 0.5 / 255, (first - second) / 255, t[:, None].float(), out=layers[:, :3])
        layers[:, :3].floor_()
        torch.mul(self.digits[digit] > MASK_THRESHOLD, 255.0, out=layers[:, 3])
        return layers

    def _matrix(self, n: int) -> torch.Tensor:
        if n not in self._matrices:
            self._matrices[n] = torch.from_numpy(resize_matrix(n)).to(self.device, torch.float32)
        return self._matrices[n]

    def _check(self, index: dict[str, torch.Tensor], value: dict[str, torch.Tensor]) -> None:
        n = len(index["digit"])
        limits = {"digit": [len(self.digits)], "texture": [len(self.textures)], "crop": list(self._crops.shape[1:3])}
        for name, tensor in {**index, **value}.items():
            shape = (n, 2) if name in ("crop", "lightness", "position") else (n,)
            if tuple(tensor.shape) != shape:
                raise DiagvibError(f"{name}: shape {tuple(tensor.shape)} given, {shape} expected")
            table = tensor.reshape(n, len(shape))
            if name in limits:
                wrong = ((table < 0) | (table >= torch.tensor(limits[name], device=self.device))).any(1)
                problem = f"is out of range; from 0 to below {' and '.join(map(str, limits[name]))} expected"
            else:
                wrong, problem = ~table.isfinite().all(1), "is not a finite number"
            if wrong.any():
                row = int(wrong.nonzero()[0, 0])
                raise DiagvibError(f"row {row}: {name} {tensor[row].tolist()} {problem}")


def resize(layers: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Resize float32[B, C, 40, 40] by A_n = float32[n, 40]; the results, truncated to integers, float32[B, C, n, n]."""
    (b, c, side, _), n = layers.shape, len(matrix)
    columns = (layers.view(-1, side) @ matrix.T).view(b * c, side, n)
    resized = torch.bmm(matrix.expand(b * c, n, side), columns)
    return resized.add_(_TRUNCATION_GUARD).floor_().view(b, c, n, n)


def blend(layers: torch.Tensor) -> torch.Tensor:
    """Lay the object over the canvas: float32[B, 4, n, n] (three channels, mask) to uint8[B, n, n, 3]."""
    channels, mask = layers[:, :3], layers[:, 3:]
    # (mask * object + (255 - mask) * canvas) // 255, as canvas + mask * (object - canvas) / 255
    pixels = channels.sub_(CANVAS).mul_(mask.mul_(1 / 255)).add_(CANVAS + 0.5 / 255)
    return pixels.permute(0, 2, 3, 1).to(torch.uint8)


def _place_by_slices(images: torch.Tensor, rows: torch.Tensor, corner: torch.Tensor, objects: torch.Tensor) -> None:
    """Copy each object into its image, clipped at the border. One small copy an image: best on a CPU."""
    target, source = images.numpy(), objects.numpy()
    size, n = target.shape[1], source.shape[1]
    for row, (top, left), pixels in zip(rows.tolist(), corner.tolist(), source, strict=True):
        if 0 <= top <= size - n and 0 <= left <= size - n:
            target[row, top:top + n, left:left + n] = pixels
        else:
            target[row, max(top, 0):max(top + n, 0), max(left, 0):max(left + n, 0)] = \
                pixels[max(-top, 0):max(size - top, 0), max(-left, 0):max(size - left, 0)]


def _place_by_gather(images: torch.Tensor, rows: torch.Tensor, corner: torch.Tensor, objects: torch.Tensor) -> None:
    """The same without a loop: every pixel of the image asks which pixel of the object, if any, covers it."""
    size, n = images.shape[1], objects.shape[1]
    at = torch.arange(size, device=images.device) - corner[:, :, None]  # [B, 2, size]
    inside = (at >= 0) & (at < n)
    y, x = at.clamp(0, n - 1).unbind(1)
    covered = objects[torch.arange(len(rows), device=images.device)[:, None, None], y[:, :, None], x[:, None, :]]
    images[rows] = torch.where((inside[:, 0, :, None] & inside[:, 1, None, :])[..., None], covered, images[rows])


def _stack(images, name: str, shape: tuple[int, int] | None = None) -> torch.Tensor:
    stack = torch.as_tensor(images)
    fits = stack.ndim == 3 and (tuple(stack.shape[1:]) == shape if shape else min(stack.shape[1:]) >= OBJECT_SIDE)
    if stack.dtype != torch.uint8 or not fits:
        wanted = "N, 40, 40" if shape else "N, H >= 40, W >= 40"
        raise DiagvibError(f"{name}: {stack.dtype}{list(stack.shape)} given, uint8[{wanted}] expected")
    return stack
