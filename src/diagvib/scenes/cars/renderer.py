"""Recipes in, composed images out: a background, an object on it, and the car over both, without
blending."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib.scenes.cars.catalogue import load_catalogue
from diagvib.scenes.cars.geometry import FACTORS, PASTED, tile_corner, tile_side
from diagvib.scenes.cars.pack import Pack

# Images composed at a time: on a CPU few enough to stay in its cache from one pasting to the next;
# elsewhere enough to make a call worthwhile, while their photos still fit into memory.
_CHUNK, _CHUNK_OTHERS = 8, 1024


class Renderer:
    """A scene's renderer of photos prepared in a folder, composed on `device`.

    Photos stay on disk until they are needed. DiagvibError if the folder is incomplete.
    """

    def __init__(self, prepared: Path, size: int, device: torch.device):
        photos = load_catalogue(prepared).classes
        self.size, self.device = size, torch.device(device)
        self._packs = {
            factor: Pack(prepared / f"{factor}.npy", len(photos[factor]), tile_side(factor, size))
            for factor in FACTORS
        }

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        rows = {
            factor: recipes[f"{factor}_photo"].to_numpy().astype(np.int64) for factor in FACTORS
        }
        for factor, its in rows.items():
            self._packs[factor].prepare(its)
        shape = (len(recipes), self.size, self.size, 3)
        if self.device.type == "cpu":
            images = torch.from_numpy(
                np.empty(shape, np.uint8)
            )  # NumPy asks the system for huge pages, torch does not
        else:
            images = torch.empty(shape, dtype=torch.uint8, device=self.device)
        step = _CHUNK if self.device.type == "cpu" else _CHUNK_OTHERS
        for start in range(0, len(recipes), step):
            part = slice(start, start + step)
            self._compose(
                images[part], {factor: torch.from_numpy(its[part]) for factor, its in rows.items()}
            )
        return images

    def _compose(self, images: torch.Tensor, rows: dict[str, torch.Tensor]) -> None:
        """Fill images, uint8[B, size, size, 3]; rows: factor -> int64[B]."""
        # index_select copies complete photos; indexing in brackets copies them byte by byte.
        backgrounds = self._packs["background"].pixels
        if images.device == backgrounds.device:
            torch.index_select(backgrounds, 0, rows["background"], out=images)
        else:
            images.copy_(backgrounds.index_select(0, rows["background"]))
        for factor in PASTED:
            tiles = self._packs[factor].pixels.index_select(0, rows[factor]).to(images.device)
            colours, beyond = tiles.unbind(1)
            (top, left), side = tile_corner(factor, self.size), tile_side(factor, self.size)
            # The same as torch.where, several times faster: here all channels of a row are one run
            # of bytes.
            images[:, top : top + side, left : left + side].bitwise_and_(beyond).bitwise_or_(
                colours
            )
