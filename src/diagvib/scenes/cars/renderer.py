"""Recipes in, composed images out: a background, an object on it, and the car over both, without
blending."""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib.scenes.cars.catalogue import load_catalogue
from diagvib.scenes.cars.geometry import FACTORS, PASTED, tile_corner, tile_side
from diagvib.scenes.cars.tiles import scaled
from diagvib.scenes.prepared import mismatch

# Images composed at a time: few enough to stay in a CPU's cache from one pasting to the next.
_CHUNK = 8


class Renderer:
    """A scene's renderer of photos prepared in a folder, composed on the CPU.

    Packs of photos are mapped into memory, so that those that are not needed take none of it.
    DiagvibError if the folder is incomplete, or a pack is damaged.
    """

    def __init__(self, prepared: Path, size: int, device: torch.device):
        photos = load_catalogue(prepared).classes
        self.size, self.device = size, device
        self._packs = {
            factor: _opened(prepared / f"{factor}.npy", len(photos[factor])) for factor in FACTORS
        }
        # Some methods exchange photos in every batch.
        self._scaled = cache(
            lambda factor, row: scaled(self._packs[factor][row], tile_side(factor, size))
        )

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        rows = {factor: recipes[f"{factor}_photo"].to_numpy() for factor in FACTORS}
        # NumPy asks the system for huge pages, torch does not.
        images = np.empty((len(recipes), self.size, self.size, 3), np.uint8)
        for start in range(0, len(recipes), _CHUNK):
            part = slice(start, start + _CHUNK)
            self._compose(images[part], {factor: its[part] for factor, its in rows.items()})
        return torch.from_numpy(images).to(self.device)

    def _compose(self, images: np.ndarray, rows: dict[str, np.ndarray]) -> None:
        """Fill images, uint8[B, size, size, 3]; rows: factor -> int[B]."""
        images[:] = self._tiles("background", rows["background"])
        for factor in PASTED:
            tiles = self._tiles(factor, rows[factor])
            (top, left), side = tile_corner(factor, self.size), tile_side(factor, self.size)
            below = images[:, top : top + side, left : left + side]
            below &= tiles[:, 1]
            below |= tiles[:, 0]

    def _tiles(self, factor: str, rows: np.ndarray) -> np.ndarray:
        """Photos of a factor as in its pack, of the size that they have in an image."""
        if self._packs[factor].shape[-2] == tile_side(factor, self.size):
            return self._packs[factor][rows]
        return np.stack([self._scaled(factor, row) for row in rows.tolist()])


def _opened(path: Path, count: int) -> np.ndarray:
    """A pack of this many photos (`prepare.write_pack`)."""
    try:
        pack = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        pack = ()
    if len(pack) != count:
        raise mismatch(path.parent, "photos")
    return pack
