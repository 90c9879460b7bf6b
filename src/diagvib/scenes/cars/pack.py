"""Photos of one size in one file, which rendering maps into memory instead of reading it.

A pack holds N photos: for backgrounds uint8[N, side, side, 3], and for pasted parts uint8[N, 2,
side, side, 3], their layers (`tiles.layers`).
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from diagvib.foundation.files import whole_file
from diagvib.scenes.cars.catalogue import photo_mismatch
from diagvib.scenes.cars.tiles import scaled


def write_pack(path: Path, photos: Iterable[np.ndarray], shape: tuple[int, ...]) -> str:
    """Write photos to a pack of this shape. Returns the sha256 of their pixels."""
    digest = hashlib.sha256()
    with whole_file(path) as temporary:
        pack = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
        for row, photo in enumerate(photos):
            pack[row] = photo
            digest.update(pack[row])
        pack.flush()
    return digest.hexdigest()


class Pack:
    """The `count` photos of a pack at any size: as they are stored, or scaled when they are first
    needed.

    DiagvibError if the file is missing or damaged.
    """

    def __init__(self, path: Path, count: int, side: int):
        try:
            # Never written to, but torch warns of read-only arrays.
            stored = np.load(path, mmap_mode="c")
        except (OSError, ValueError, EOFError):
            raise photo_mismatch(path) from None
        if len(stored) != count:
            raise photo_mismatch(path)
        self._stored, self._side, as_stored = stored, side, side == stored.shape[-2]
        self._ready = np.full(count, as_stored)
        # Photos that are never needed take no memory.
        scaled_shape = (*stored.shape[:-3], side, side, 3)
        self.pixels = torch.from_numpy(stored if as_stored else np.empty(scaled_shape, np.uint8))

    def prepare(self, rows: np.ndarray) -> None:
        """Make sure that `pixels`, a pack of the wanted size, contains these photos."""
        for row in np.unique(rows[~self._ready[rows]]):
            self.pixels[row] = torch.from_numpy(scaled(self._stored[row], self._side))
            self._ready[row] = True
