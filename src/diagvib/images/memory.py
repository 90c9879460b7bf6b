"""Allocate a split's pixels in memory, or memory-mapped on disk if they would take too much of it.

The system pages unused parts of a mapped file out and back in. Rows of Parquet cannot be read like
this: for one image its full row group is decoded.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from diagvib.foundation.errors import DiagvibError

# The largest share of the machine's memory for one split; up to five splits are loaded at once.
SHARE = 0.15


def room(shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """An array uint8[shape], its values not set. On disk it is a nameless file in `folder`, or where
    temporary files go if that may not be written, and disappears with the array. DiagvibError if
    the disk is too full."""
    size = int(np.prod(shape))
    if size <= SHARE * memory():
        return np.empty(shape, np.uint8)
    writable = os.access(folder, os.W_OK)
    with tempfile.TemporaryFile(dir=folder if writable else None) as file:
        try:
            os.posix_fallocate(
                file.fileno(), 0, size
            )  # otherwise a full disk would kill the process later
        except OSError as error:
            raise DiagvibError(
                f"{folder}: {size / 1e9:,.1f} GB of images do not fit into memory, nor on this disk "
                f"({error.strerror}); free some space, or lower `counts` or `image_size`"
            ) from None
        return np.memmap(file, np.uint8, "r+", shape=shape)


def fits_on(device, size: int) -> bool:
    """Whether so many bytes are less than half of what a torch device has free: weights, activations
    and other splits need room, too. Always on a CPU, whose memory is the images' own."""
    if device.type != "cuda":
        return True
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return size < (free + unused) / 2


def memory() -> int:
    """The machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
