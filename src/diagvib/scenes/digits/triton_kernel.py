"""The renderer as one Triton kernel: one program per image, all images finished in one launch
(benchmark section 3).

`renderer.py` prepares the recipe in float64 (sizes, corners, colours), so that both derive the same
integers from it; here an object pixel is computed as A_n X A_n^T is defined, from the few source
pixels that have a weight in it.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from diagvib.scenes.digits.resizing import CANVAS, OBJECT_SIDE, TRUNCATION_GUARD, resize_matrix

FILL = 8192  # canvas bytes written at a time by a program
PIXELS = 256  # object pixels computed at a time
WARPS = 4


class Kernel:
    """Renders checked and prepared recipes on the device of `masks`.

    masks: uint8[D, 40, 40] holding 0 and 255; textures: uint8[T, H, W]; used: the interval of mask
    rows and columns that are not empty. Objects of at most `largest_side` pixels.
    """

    def __init__(
        self, masks: torch.Tensor, textures: torch.Tensor, size: int, used: tuple[int, int]
    ):
        self.masks, self.textures, self.size, self.largest_side = (
            masks.contiguous(),
            textures.contiguous(),
            size,
            size,
        )
        self.tables = [
            torch.from_numpy(t).to(masks.device) for t in resize_tables(self.largest_side, used)
        ]

    def __call__(self, digit, texture, crop, side, corner, colour) -> torch.Tensor:
        """digit, texture, side: int64[N]; crop, corner: int64[N, 2]; colour: float32[N, 2, 3]. N is
        at least 1."""
        images = torch.empty(
            len(digit), self.size, self.size, 3, dtype=torch.uint8, device=digit.device
        )
        whole = [
            x.to(torch.int32).contiguous() for x in (digit, texture, crop, side, corner, colour)
        ]
        with torch.cuda.device_of(images):
            render_image[(len(digit),)](
                images,
                self.masks,
                self.textures,
                *self.tables,
                *whole,
                *self.textures.shape[1:],
                size=self.size,
                sides=self.largest_side + 1,
                object_side=OBJECT_SIDE,
                canvas=CANVAS,
                guard=TRUNCATION_GUARD,
                fill=FILL,
                pixels=PIXELS,
                num_warps=WARPS,
                enable_fp_fusion=True,
            )
        return images


def resize_tables(largest: int, used: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """A_n for every n up to `largest`, and the positions of its weights.

    Returns matrices, float32[largest + 1, largest + 1, 40]: row y of A_n at [n, y]; first,
    int32[largest + 1, largest + 1]: the first source pixel of row y; span, int32[largest + 1, 3]:
    how many source pixels a row of A_n has, and the rows, from and to below, that the used interval
    reaches.
    """
    matrices = np.zeros((largest + 1, largest + 1, OBJECT_SIDE), dtype=np.float32)
    first, span = (
        np.zeros((largest + 1, largest + 1), dtype=np.int32),
        np.zeros((largest + 1, 3), dtype=np.int32),
    )
    for n in range(1, largest + 1):
        matrix = resize_matrix(n)
        low, high = (matrix != 0).argmax(1), OBJECT_SIDE - (matrix[:, ::-1] != 0).argmax(1)
        taps = (high - low).max()
        reached = np.flatnonzero(matrix[:, slice(*used)].any(1))
        matrices[n, :n], first[n, :n] = matrix, np.minimum(low, OBJECT_SIDE - taps)
        span[n] = taps, reached[0], reached[-1] + 1
    return matrices, first, span


@triton.jit
def render_image(
    images,
    masks,
    textures,
    matrices,
    first,
    span,
    digit,
    texture,
    crop,
    side,
    corner,
    colour,
    height,
    width,
    size: tl.constexpr,
    sides: tl.constexpr,
    object_side: tl.constexpr,
    canvas: tl.constexpr,
    guard: tl.constexpr,
    fill: tl.constexpr,
    pixels: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    image = images + i * (size * size * 3)
    for at in range(0, size * size * 3, fill):
        offset = at + tl.arange(0, fill)
        tl.store(image + offset, tl.full((fill,), canvas, tl.uint8), mask=offset < size * size * 3)
    tl.debug_barrier()  # the object overwrites bytes that other threads of this program have just filled

    n = tl.load(side + i)
    taps, start, stop = tl.load(span + n * 3), tl.load(span + n * 3 + 1), tl.load(span + n * 3 + 2)
    mask_at = masks + tl.load(digit + i).to(tl.int64) * (object_side * object_side)
    crop_row, crop_column = tl.load(crop + i * 2), tl.load(crop + i * 2 + 1)
    texture_at = (
        textures + (tl.load(texture + i).to(tl.int64) * height + crop_row) * width + crop_column
    )
    top, left = tl.load(corner + i * 2), tl.load(corner + i * 2 + 1)
    red_1, green_1, blue_1 = (
        tl.load(colour + i * 6),
        tl.load(colour + i * 6 + 1),
        tl.load(colour + i * 6 + 2),
    )
    red_2, green_2, blue_2 = (
        tl.load(colour + i * 6 + 3),
        tl.load(colour + i * 6 + 4),
        tl.load(colour + i * 6 + 5),
    )

    m = stop - start
    for at in range(0, m * m, pixels):
        pixel = at + tl.arange(0, pixels)
        y, x = start + pixel // m, start + pixel % m
        row, column = top + y, left + x
        seen = (pixel < m * m) & (row >= 0) & (row < size) & (column >= 0) & (column < size)
        y_first, x_first = (
            tl.load(first + n * sides + y, seen, 0),
            tl.load(first + n * sides + x, seen, 0),
        )
        y_weights, x_weights = (
            matrices + (n * sides + y) * object_side,
            matrices + (n * sides + x) * object_side,
        )
        red, green = tl.zeros((pixels,), tl.float32), tl.zeros((pixels,), tl.float32)
        blue, cover = tl.zeros((pixels,), tl.float32), tl.zeros((pixels,), tl.float32)
        for u in range(0, taps):
            source_y = y_first + u
            y_weight = tl.load(y_weights + source_y, seen, 0.0)
            for v in range(0, taps):
                source_x = x_first + v
                weight = y_weight * tl.load(x_weights + source_x, seen, 0.0)
                t = tl.load(texture_at + source_y * width + source_x, seen, 0).to(tl.int32)
                red += weight * mix(red_1, red_2, t)
                green += weight * mix(green_1, green_2, t)
                blue += weight * mix(blue_1, blue_2, t)
                cover += weight * tl.load(mask_at + source_y * object_side + source_x, seen, 0).to(
                    tl.float32
                )
        mask = (cover + guard).to(tl.int32)
        target = image + (row * size + column) * 3
        tl.store(target, lay_over((red + guard).to(tl.int32), mask, canvas), seen)
        tl.store(target + 1, lay_over((green + guard).to(tl.int32), mask, canvas), seen)
        tl.store(target + 2, lay_over((blue + guard).to(tl.int32), mask, canvas), seen)


@triton.jit
def mix(first, second, t):
    """A texture pixel's colour channel, an integer as float32."""
    return ((first * t + second * (255 - t)) // 255).to(tl.float32)


@triton.jit
def lay_over(channel, mask, canvas: tl.constexpr):
    """The object's channel over the canvas, through its mask."""
    return ((mask * channel + (255 - mask) * canvas) // 255).to(tl.uint8)
