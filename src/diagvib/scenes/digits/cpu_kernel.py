"""The renderer as one compiled loop over images, for CPUs (benchmark section 3).

`renderer.py` prepares the recipe in float64 (sizes, corners, colours), so that every path derives
the same integers from it. An object is resized along its columns, transposed, then resized along
its rows, so that the inner loops of both passes run over adjacent numbers, which the compiler turns
into vector instructions. Only the pixels that the digit can reach are computed. Images share no
arithmetic: neither threads nor the rest of the batch change a pixel.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from numba import njit

from diagvib.scenes.digits.resizing import CANVAS, OBJECT_SIDE, TRUNCATION_GUARD, resize_matrix

PIECE = 64  # images that a thread draws before it takes more
LANES = 8  # rows and columns are computed in multiples of this, so that no vector is half empty


class CpuKernel:
    """Renders checked and prepared recipes on the CPU, on as many threads as torch may use.

    masks: uint8[D, 40, 40] holding 0 and 255; textures: uint8[T, H, W]. Objects of at most
    `largest_side` pixels.
    """

    def __init__(self, masks: torch.Tensor, textures: torch.Tensor, size: int):
        self.size = self.largest_side = size
        # columns first, as the first pass needs them
        turned = [
            np.ascontiguousarray(stack.numpy().transpose(0, 2, 1)) for stack in (masks, textures)
        ]
        self.sources = [*turned, mask_boxes(masks.numpy()), *resize_tables(size)]

    def __call__(self, digit, texture, crop, side, corner, colour) -> torch.Tensor:
        """digit, texture, side: int64[N]; crop, corner: int64[N, 2]; colour: float32[N, 2, 3]."""
        # NumPy asks the system for huge pages, torch does not
        images = np.empty((len(digit), self.size, self.size, 3), dtype=np.uint8)
        recipes = [x.contiguous().numpy() for x in (digit, texture, crop, side, corner, colour)]

        def draw(start: int, stop: int) -> None:
            draw_images(
                images[start:stop],
                *self.sources,
                *(x[start:stop] for x in recipes),
                np.float32(CANVAS),
                np.float32(TRUNCATION_GUARD),
            )

        if (threads := min(torch.get_num_threads(), -(-len(digit) // PIECE))) <= 1:
            draw(0, len(digit))
        else:
            starts = range(0, len(digit), PIECE)
            list(_threads(threads).map(draw, starts, (start + PIECE for start in starts)))
        return torch.from_numpy(images)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Python's own threads, kept from call to call.

    draw_images releases the interpreter's lock, and unlike numba's threads, these may be given work
    from several threads at once.
    """
    return ThreadPoolExecutor(count, "draw")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_threads.cache_clear
    )  # a fork has none of its parent's threads


def mask_boxes(masks: np.ndarray) -> np.ndarray:
    """The rows and columns, each as start and end, that a mask occupies: int64[D, 4]; zeros if it
    is empty."""
    spans = []
    for used in (masks.any(2), masks.any(1)):
        some = used.any(1)
        spans += [
            np.where(some, used.argmax(1), 0),
            np.where(some, OBJECT_SIDE - used[:, ::-1].argmax(1), 0),
        ]
    return np.stack(spans, 1).astype(np.int64)


def resize_tables(largest: int) -> tuple[np.ndarray, ...]:
    """A_n for every n up to `largest`, the positions of its weights, and what a source pixel
    reaches.

    Returns matrices, float32[largest + 1, largest + 1, 40]: row y of A_n at [n, y]; first,
    int64[largest + 1, largest + 1]: the first source pixel of row y; taps, int64[largest + 1]: how
    many a row has; reach, int64[largest + 1, 2, 40]: the first row that source pixels from r on
    reach, and the end of the rows that those up to r reach.
    """
    matrices = np.zeros((largest + 1, largest + 1, OBJECT_SIDE), dtype=np.float32)
    first, taps = (
        np.zeros((largest + 1, largest + 1), dtype=np.int64),
        np.zeros(largest + 1, dtype=np.int64),
    )
    reach = np.zeros((largest + 1, 2, OBJECT_SIDE), dtype=np.int64)
    for n in range(1, largest + 1):
        matrix = resize_matrix(n)
        weighs = matrix != 0
        low, high = weighs.argmax(1), OBJECT_SIDE - weighs[:, ::-1].argmax(1)
        taps[n] = (high - low).max()
        matrices[n, :n], first[n, :n] = matrix, np.minimum(low, OBJECT_SIDE - taps[n])
        some = weighs.any(0)
        reach[n, 0] = np.minimum.accumulate(np.where(some, weighs.argmax(0), n)[::-1])[::-1]
        reach[n, 1] = np.maximum.accumulate(np.where(some, n - weighs[::-1].argmax(0), 0))
    return matrices, first, taps, reach


# A helper that is inlined into the loop that calls it: two calls per row would nearly double an
# image's time.
inlined = njit(inline="always", fastmath={"contract"}, error_model="numpy")


def compiled(function):
    """Compile on the first call; kept in a file next to this module, or in the user's cache folder,
    for later ones.

    Numba checks only this file to tell whether the compiled code is stale: constants of other
    modules must be arguments.
    """
    how = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return njit(function, cache=True, **how)
    except RuntimeError:  # neither folder is writable
        return njit(function, **how)


@inlined
def combine(out, rows, start, weights):
    """out = the weighted sum of the rows from `start` on."""
    row, weight = rows[start], weights[0]
    for j in range(len(out)):
        out[j] = weight * row[j]
    for u in range(1, len(weights)):
        row, weight = rows[start + u], weights[u]
        for j in range(len(out)):
            out[j] += weight * row[j]


@inlined
def load_column(out, texture, mask, colour):
    """One source column: its three colour channels, then its mask, side by side in out, float32[4 *
    h]."""
    h = len(texture)
    for channel in range(3):
        part, second = out[channel * h : channel * h + h], colour[1, channel]
        slope = (colour[0, channel] - second) / np.float32(255)
        # (first * t + second * (255 - t)) // 255; half a unit is added because the quotient is
        # inexact
        second += np.float32(0.5 / 255)
        for j in range(len(part)):
            part[j] = np.float32(np.int32(second + slope * np.float32(texture[j])))
    part = out[3 * h : 4 * h]
    for j in range(len(part)):
        part[j] = np.float32(mask[j])


@inlined
def lay_over(target, row, planes, canvas, guard):
    """Lay one row of the object, float32[4 * v], over the canvas: the first pixels of it into
    target, uint8[w, 3]."""
    v = len(row) // 4
    mask = row[3 * v : 4 * v]
    for channel in range(3):
        plane, part = planes[channel, :v], row[channel * v : channel * v + v]
        for x in range(len(plane)):
            cover = np.float32(np.int32(mask[x] + guard)) * np.float32(1 / 255)
            value = np.float32(np.int32(part[x] + guard))
            plane[x] = np.uint8(np.int32(canvas + np.float32(0.5 / 255) + (value - canvas) * cover))
    red, green, blue = planes[0], planes[1], planes[2]
    for x in range(len(target)):
        target[x, 0], target[x, 1], target[x, 2] = red[x], green[x], blue[x]


@compiled
def draw_images(
    images,
    masks,
    textures,
    boxes,
    matrices,
    first,
    taps,
    reach,
    digit,
    texture,
    crop,
    side,
    corner,
    colour,
    canvas,
    guard,
):
    size, square = images.shape[1], masks.shape[1]
    widest = 4 * (size + LANES)
    source, narrow = (
        np.empty((square, 4 * square), np.float32),
        np.empty((size, 4 * square), np.float32),
    )
    # zeros: the lanes beyond an object are computed too, and should not be slowed down by whatever
    # memory contains
    turned, done = np.zeros((square, widest), np.float32), np.empty(widest, np.float32)
    planes = np.empty((3, size + LANES), np.uint8)
    for i in range(len(images)):
        image, n, (top, left), box = images[i], side[i], corner[i], boxes[digit[i]]
        image[:] = np.uint8(canvas)
        # the object's pixels within the digit's reach and the image, and the source pixels that
        # they come from
        y0, y1 = max(reach[n, 0, box[0]], -top), min(reach[n, 1, box[1] - 1], size - top)
        x0, x1 = max(reach[n, 0, box[2]], -left), min(reach[n, 1, box[3] - 1], size - left)
        if box[1] == 0 or y0 >= y1 or x0 >= x1:
            continue
        row, row_end, column = first[n, y0], first[n, y1 - 1] + taps[n], first[n, x0]
        h, v = (row_end - row + LANES - 1) // LANES * LANES, (x1 - x0 + LANES - 1) // LANES * LANES
        row = min(row, square - h)
        for c in range(column, first[n, x1 - 1] + taps[n]):
            at = crop[i, 0] + row
            load_column(
                source[c - column, : 4 * h],
                textures[texture[i], crop[i, 1] + c, at : at + h],
                masks[digit[i], c, row : row + h],
                colour[i],
            )
        for x in range(x0, x1):
            c = first[n, x]
            combine(narrow[x - x0, : 4 * h], source, c - column, matrices[n, x, c : c + taps[n]])
        for r in range(first[n, y0] - row, row_end - row):
            for layer in range(4):
                for x in range(x1 - x0):
                    turned[r, layer * v + x] = narrow[x, layer * h + r]
        for y in range(y0, y1):
            r = first[n, y]
            combine(done[: 4 * v], turned, r - row, matrices[n, y, r : r + taps[n]])
            lay_over(image[top + y, left + x0 : left + x1], done[: 4 * v], planes, canvas, guard)
