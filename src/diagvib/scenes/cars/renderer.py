"""Recipes in, composed images out: a background, an object on it, and the car over both, without
blending."""

from collections.abc import Callable
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


def make_renderer(
    prepared: Path, size: int, device: torch.device
) -> Callable[[pa.Table], torch.Tensor]:
    """A scene's renderer of photos prepared in a folder, composed on the CPU.

    Packs of photos are mapped into memory, so that those that are not needed take none of it.
    DiagvibError if the folder is incomplete, or a pack is damaged.
    """
    classes = load_catalogue(prepared).classes
    packs = {
        factor: _opened(prepared / f"{factor}.npy", len(classes[factor])) for factor in FACTORS
    }
    # Some methods exchange photos in every batch.
    resized = cache(lambda factor, row: scaled(packs[factor][row], tile_side(factor, size)))

    def tiles(factor: str, rows: np.ndarray) -> np.ndarray:
        """Photos of a factor as in its pack, of the size that they have in an image."""
        if packs[factor].shape[-2] == tile_side(factor, size):
            return packs[factor][rows]
        return np.stack([resized(factor, row) for row in rows.tolist()])

    def render(recipes: pa.Table) -> torch.Tensor:
        rows = {factor: recipes[f"{factor}_photo"].to_numpy() for factor in FACTORS}
        # NumPy asks the system for huge pages, torch does not.
        images = np.empty((len(recipes), size, size, 3), np.uint8)
        for start in range(0, len(recipes), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            images[chunk] = tiles("background", rows["background"][chunk])
            for factor in PASTED:
                photos = tiles(factor, rows[factor][chunk])
                (top, left), side = tile_corner(factor, size), tile_side(factor, size)
                below = images[chunk, top : top + side, left : left + side]
                below &= photos[:, 1]
                below |= photos[:, 0]
        return torch.from_numpy(images).to(device)

    return render


def _opened(path: Path, count: int) -> np.ndarray:
    """A pack of this many photos (`prepare.write_pack`)."""
    try:
        pack = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        pack = ()
    if len(pack) != count:
        raise mismatch(path.parent, "photos")
    return pack
