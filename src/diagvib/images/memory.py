"""Room for the images of a split: memory, or a file on the disk where they are more than a good part of it.

A file that is mapped into memory behaves like memory: what is not read for long leaves it, and is read again when it is
needed. Rows of Parquet cannot be read so: for one image its whole row group is decoded.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from diagvib.foundation.errors import DiagvibError

# Of the machine's memory the largest part that a split is held in; up to five are there at once.
SHARE = 0.15


def room(shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """An array uint8[shape], its values not set. On the disk it is a file in `folder` without a name, which goes with
    the array. DiagvibError if the disk is too full."""
    size = int(np.prod(shape))
    if size <= SHARE * memory():
        return np.empty(shape, np.uint8)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # or a full disk would end the process when a page is written
        except OSError as error:
            raise DiagvibError(f"{folder}: {size / 1e9:,.1f} GB of images do not fit into memory, nor on this disk "
                               f"({error.strerror}); free some space, or lower `counts` or `image_size`") from None
        return np.memmap(file, np.uint8, "r+", shape=shape)


def memory() -> int:
    """The machine's, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
