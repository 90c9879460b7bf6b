"""The renderer as one kernel for GPUs, in Triton: one program draws one image.

Its bytes are those of `cpu_kernel`. Only the weighted sums of resizing are rounded, so they run
through the same products in the same order: columns first, then rows, every step a fused
multiply-add. The rest comes out as integers in any order.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from diagvib.scenes.digits.cpu_kernel import mask_boxes, resize_tables
from diagvib.scenes.digits.resizing import CANVAS, OBJECT_SIDE, TRUNCATION_GUARD

# Bytes of the canvas that a program writes at a time, and pixels of the object that it computes.
_FILL, _PIXELS = 8192, 256


class GpuDrawing:
    """Draws checked recipes in the memory of a device; other arguments as of
    `renderer.CpuDrawing`."""

    def __init__(self, masks: np.ndarray, textures: np.ndarray, size: int, device: torch.device):
        self.size, self.device = size, device
        self._texture_shape = textures.shape[1:]
        self._sources = self._moved(masks, textures, mask_boxes(masks).astype(np.int32))
        self._tables = self._moved(*kernel_tables(size))

    def __call__(self, digit, texture, crop, side, corner, colour) -> torch.Tensor:
        count, largest = len(side), int(side.max()) if len(side) else 0
        tables = self._tables
        if largest > self.size:
            tables = self._moved(*kernel_tables(largest))
        images = torch.empty(
            (count, self.size, self.size, 3), dtype=torch.uint8, device=self.device
        )
        recipes = [
            column.to(self.device, torch.int32, non_blocking=True).contiguous()
            for column in (digit, texture, crop, side, corner, colour)
        ]
        if count:
            with torch.cuda.device_of(images):
                draw_image[(count,)](
                    images,
                    *self._sources,
                    *tables,
                    *recipes,
                    *self._texture_shape,
                    max(largest, self.size) + 1,
                    size=self.size,
                    square=OBJECT_SIDE,
                    canvas=CANVAS,
                    guard=TRUNCATION_GUARD,
                    fill=_FILL,
                    pixels=_PIXELS,
                    enable_fp_fusion=False,
                )
        return images

    def _moved(self, *arrays: np.ndarray) -> list[torch.Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(a)).to(self.device) for a in arrays]


def kernel_tables(largest: int) -> tuple[np.ndarray, ...]:
    """`resize_tables`, with int32 positions, and which rows of an object come from a mask's box.

    reached: int32[largest + 1, 41, 2]: of an object of n pixels, its rows before [n, k, 0] come from
    source rows before k alone, those from [n, k, 1] on from source rows from k on.
    """
    matrices, first_taps, taps = resize_tables(largest)
    reached = np.zeros((largest + 1, OBJECT_SIDE + 1, 2), dtype=np.int32)
    edges = np.arange(OBJECT_SIDE + 1)
    for n in range(1, largest + 1):
        first_column = first_taps[n, :n, None]
        reached[n, :, 0] = (first_column + taps[n] <= edges).sum(0)
        reached[n, :, 1] = (first_column < edges).sum(0)
    return matrices, first_taps.astype(np.int32), taps.astype(np.int32), reached


@triton.jit
def draw_image(
    images,
    masks,
    textures,
    boxes,
    matrices,
    first_taps,
    taps,
    reached,
    digit,
    texture,
    crop,
    side,
    corner,
    colour,
    height,
    width,
    sides,
    size: tl.constexpr,
    square: tl.constexpr,
    canvas: tl.constexpr,
    guard: tl.constexpr,
    fill: tl.constexpr,
    pixels: tl.constexpr,
):
    """Fill one of images, uint8[N, size, size, 3].

    masks: uint8[D, 40, 40]; textures: uint8[T, height, width]; boxes: of `mask_boxes`; matrices,
    first_taps, taps, reached: of `kernel_tables`, for objects of less than `sides` pixels; the
    recipe columns: int32.
    """
    i = tl.program_id(0).to(tl.int64)
    image = images + i * (size * size * 3)
    for start in range(0, size * size * 3, fill):
        byte = start + tl.arange(0, fill)
        tl.store(image + byte, tl.full((fill,), canvas, tl.uint8), byte < size * size * 3)
    tl.debug_barrier()  # what follows overwrites bytes that other threads have filled

    n, number = tl.load(side + i), tl.load(digit + i)
    top, left = tl.load(corner + i * 2), tl.load(corner + i * 2 + 1)
    tap_count = tl.load(taps + n)
    box, edges = boxes + number * 4, reached + n * ((square + 1) * 2)
    y0 = tl.maximum(tl.load(edges + tl.load(box) * 2), -top)
    y1 = tl.minimum(tl.load(edges + tl.load(box + 1) * 2 + 1), size - top)
    x0 = tl.maximum(tl.load(edges + tl.load(box + 2) * 2), -left)
    x1 = tl.minimum(tl.load(edges + tl.load(box + 3) * 2 + 1), size - left)
    h, w = tl.maximum(y1 - y0, 0), tl.maximum(x1 - x0, 0)

    mask = masks + number.to(tl.int64) * (square * square)
    crop_row = tl.load(texture + i).to(tl.int64) * height + tl.load(crop + i * 2)
    pattern = textures + crop_row * width + tl.load(crop + i * 2 + 1)
    red_1, red_2 = tl.load(colour + i * 6), tl.load(colour + i * 6 + 3)
    green_1, green_2 = tl.load(colour + i * 6 + 1), tl.load(colour + i * 6 + 4)
    blue_1, blue_2 = tl.load(colour + i * 6 + 2), tl.load(colour + i * 6 + 5)
    zeros = tl.zeros((pixels,), tl.float32)
    for start in range(0, h * w, pixels):
        pixel = start + tl.arange(0, pixels)
        seen = pixel < h * w
        y, x = y0 + pixel // w, x0 + pixel % w
        row, column = n * sides + y, n * sides + x
        row_tap = tl.load(first_taps + row, seen, 0)
        column_tap = tl.load(first_taps + column, seen, 0)
        row_weights = matrices + row * square + row_tap
        column_weights = matrices + column * square + column_tap
        red, green, blue, cover = zeros, zeros, zeros, zeros
        for u in range(0, tap_count):
            texel = pattern + (row_tap + u) * width + column_tap
            covered = mask + (row_tap + u) * square + column_tap
            red_row, green_row, blue_row, cover_row = zeros, zeros, zeros, zeros
            for v in range(0, tap_count):
                weight = tl.load(column_weights + v, seen, 0.0)
                t = tl.load(texel + v, seen, 0).to(tl.int32)
                red_row = tl.fma(weight, blend(red_1, red_2, t), red_row)
                green_row = tl.fma(weight, blend(green_1, green_2, t), green_row)
                blue_row = tl.fma(weight, blend(blue_1, blue_2, t), blue_row)
                part = tl.load(covered + v, seen, 0).to(tl.float32)
                cover_row = tl.fma(weight, part, cover_row)
            weight = tl.load(row_weights + u, seen, 0.0)
            red, green = tl.fma(weight, red_row, red), tl.fma(weight, green_row, green)
            blue, cover = tl.fma(weight, blue_row, blue), tl.fma(weight, cover_row, cover)
        target = image + ((top + y) * size + left + x) * 3
        alpha = (cover + guard).to(tl.int32)
        tl.store(target, blend((red + guard).to(tl.int32), canvas, alpha).to(tl.uint8), seen)
        tl.store(target + 1, blend((green + guard).to(tl.int32), canvas, alpha).to(tl.uint8), seen)
        tl.store(target + 2, blend((blue + guard).to(tl.int32), canvas, alpha).to(tl.uint8), seen)


@triton.jit
def blend(over, under, share):
    """Two levels mixed, share / 255 of the one over the other: integers 0..255, as float32."""
    return ((over * share + under * (255 - share)) // 255).to(tl.float32)
