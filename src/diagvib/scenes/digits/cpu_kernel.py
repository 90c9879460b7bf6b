"""The renderer's loop over images, compiled for CPUs: 3.7 times as fast as torch's operations
(benchmarks/README.md).

An object is resized along its columns, transposed, then resized along its rows, so that the inner
loops of both passes run over adjacent numbers, which the compiler turns into vector instructions.
The rest of a batch does not change an image.
"""

import numpy as np
from numba import njit

from diagvib.scenes.digits.resizing import OBJECT_SIDE, resize_matrix


def mask_boxes(masks: np.ndarray) -> np.ndarray:
    """Where the rows, and the columns, that a mask occupies begin and end: int64[D, 2, 2]. All of
    them if it is empty."""
    used = np.stack([masks.any(2), masks.any(1)], 1)
    return np.stack([used.argmax(2), OBJECT_SIDE - used[..., ::-1].argmax(2)], 2)


def resize_tables(largest: int) -> tuple[np.ndarray, ...]:
    """A_n for every n up to `largest`, and the positions of its weights.

    Returns matrices, float32[largest + 1, largest + 1, 40]: row y of A_n at [n, y]; first,
    int64[largest + 1, largest + 1]: the first source pixel of row y; taps, int64[largest + 1]: how
    many a row has.
    """
    matrices = np.zeros((largest + 1, largest + 1, OBJECT_SIDE), dtype=np.float32)
    first_taps = np.zeros((largest + 1, largest + 1), dtype=np.int64)
    taps = np.zeros(largest + 1, dtype=np.int64)
    for n in range(1, largest + 1):
        matrix = resize_matrix(n)
        weighs = matrix != 0
        low, high = weighs.argmax(1), OBJECT_SIDE - weighs[:, ::-1].argmax(1)
        taps[n] = (high - low).max()
        matrices[n, :n], first_taps[n, :n] = matrix, np.minimum(low, OBJECT_SIDE - taps[n])
    return matrices, first_taps, taps


# A helper that is inlined into the loop that calls it: two calls per row would nearly double an
# image's time.
inlined = njit(inline="always", fastmath={"contract"}, error_model="numpy")


def compiled(function):
    """Compile on the first call; kept in a file next to this module, or in the user's cache folder,
    for later ones.

    Numba checks only this file to tell whether the compiled code is stale: constants of other
    modules must be arguments.
    """
    options = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return njit(function, cache=True, **options)
    except RuntimeError:  # neither folder is writable
        return njit(function, **options)


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
def seen(first_taps, taps, box, corner, size):
    """The rows (or columns) of an object, from and to below, that lie in the image and that the
    digit can reach. corner: the position of the first one in the image."""
    start, end = max(0, -corner), min(len(first_taps), size - corner)
    while start < end and first_taps[start] + taps <= box[0]:
        start += 1
    while start < end and first_taps[end - 1] >= box[1]:
        end -= 1
    return start, end


@inlined
def load_column(out, texture, mask, colour):
    """One source column: its three colour channels, then its mask, side by side in out, float32[4 *
    40]."""
    h = len(texture)
    for channel in range(3):
        part, second_colour = out[channel * h : channel * h + h], colour[1, channel]
        slope = (colour[0, channel] - second_colour) / np.float32(255)
        # (first * t + second * (255 - t)) // 255; half a unit is added because the quotient is
        # inexact
        second_colour += np.float32(0.5 / 255)
        for j in range(len(part)):
            part[j] = np.float32(np.int32(second_colour + slope * np.float32(texture[j])))
    part = out[3 * h : 4 * h]
    for j in range(len(part)):
        part[j] = np.float32(mask[j])


@inlined
def lay_over(target, row, planes, canvas, guard):
    """Lay one row of the object, float32[4 * w], over the canvas: uint8[w, 3]."""
    w = len(target)
    mask = row[3 * w : 4 * w]
    for channel in range(3):
        plane, part = planes[channel, :w], row[channel * w : channel * w + w]
        for x in range(len(plane)):
            cover = np.float32(np.int32(mask[x] + guard)) * np.float32(1 / 255)
            value = np.float32(np.int32(part[x] + guard))
            plane[x] = np.uint8(np.int32(canvas + np.float32(0.5 / 255) + (value - canvas) * cover))
    red, green, blue = planes[0], planes[1], planes[2]
    for x in range(w):
        target[x, 0], target[x, 1], target[x, 2] = red[x], green[x], blue[x]


@compiled
def draw_images(
    images,
    masks,
    textures,
    boxes,
    matrices,
    first_taps,
    taps,
    digit,
    texture,
    crop,
    side,
    corner,
    colour,
    canvas,
    guard,
):
    """Fill images, uint8[N, size, size, 3].

    masks, textures: uint8[D, 40, 40], holding 0 and 255, and uint8[T, W, H], both with columns
    first, as the first pass needs them. boxes: of `mask_boxes`; matrices, first_taps,
    taps: of `resize_tables`. digit, texture, side: int64[N]; crop, corner: int64[N, 2]; colour:
    float32[N, 2, 3]; canvas, guard: float32, those of `resizing`.
    """
    size, square = images.shape[1], masks.shape[1]
    source = np.empty((square, 4 * square), np.float32)
    narrow = np.empty((size, 4 * square), np.float32)
    turned, finished_row = np.empty((square, 4 * size), np.float32), np.empty(4 * size, np.float32)
    planes = np.empty((3, size), np.uint8)
    for i in range(len(images)):
        image, n, (top, left), box = images[i], side[i], corner[i], boxes[digit[i]]
        image[:] = np.uint8(canvas)
        y0, y1 = seen(first_taps[n, :n], taps[n], box[0], top, size)
        x0, x1 = seen(first_taps[n, :n], taps[n], box[1], left, size)
        if y0 >= y1 or x0 >= x1:
            continue
        # of the source, what these come from
        row, column = first_taps[n, y0], first_taps[n, x0]
        h, w = first_taps[n, y1 - 1] + taps[n] - row, x1 - x0
        for c in range(column, first_taps[n, x1 - 1] + taps[n]):
            texture_row = crop[i, 0] + row
            load_column(
                source[c - column, : 4 * h],
                textures[texture[i], crop[i, 1] + c, texture_row : texture_row + h],
                masks[digit[i], c, row : row + h],
                colour[i],
            )
        for x in range(x0, x1):
            c = first_taps[n, x]
            combine(narrow[x - x0, : 4 * h], source, c - column, matrices[n, x, c : c + taps[n]])
        for r in range(h):
            for layer in range(4):
                for x in range(w):
                    turned[r, layer * w + x] = narrow[x, layer * h + r]
        for y in range(y0, y1):
            r = first_taps[n, y]
            combine(finished_row[: 4 * w], turned, r - row, matrices[n, y, r : r + taps[n]])
            lay_over(
                image[top + y, left + x0 : left + x1], finished_row[: 4 * w], planes, canvas, guard
            )
