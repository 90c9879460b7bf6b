"""Recipes in, composed images out: a background, a further object on it, and the car over both, without blending."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib.scenes.cars.catalogue import describe, load_catalogue, mismatch
from diagvib.scenes.cars.geometry import FACTORS, PASTED, tile_corner, tile_side
from diagvib.scenes.cars.pack import Pack

# Images composed at a time on a CPU: few enough to stay in its cache from one pasting to the next.
_CHUNK = 8


class Renderer:
    """`scenes.scene.Renderer` of photos prepared in a folder, which are composed on `device`.

    Photos stay on disk until they are needed. DiagvibError if the folder is not whole.
    """

    def __init__(self, prepared: Path, size: int, device: torch.device):
        load_catalogue(prepared)
        described = describe(prepared)
        self.size, self.device = size, torch.device(device)
        self._packs = {}
        for factor in FACTORS:
            noted = described["packs"].get(factor)
            if noted is None:
                raise mismatch(prepared)
            self._packs[factor] = Pack(prepared / f"{factor}.npy", tuple(noted["shape"]), tile_side(factor, size))

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        rows = {factor: recipes[f"{factor}_photo"].to_numpy().astype(np.int64) for factor in FACTORS}
        for factor, its in rows.items():
            self._packs[factor].prepare(its)
        on_cpu = self.device.type == "cpu"
        images = torch.empty(len(recipes), self.size, self.size, 3, dtype=torch.uint8, device=self.device)
        step = _CHUNK if on_cpu else max(len(recipes), 1)
        for start in range(0, len(recipes), step):
            part = slice(start, start + step)
            self._compose(images[part], {factor: torch.from_numpy(its[part]) for factor, its in rows.items()})
        return images

    def _compose(self, images: torch.Tensor, rows: dict[str, torch.Tensor]) -> None:
        """Fill images, uint8[B, size, size, 3]; rows: factor -> int64[B]."""
        backgrounds = self._packs["background"].pixels
        if images.device == backgrounds.device:
            torch.index_select(backgrounds, 0, rows["background"], out=images)
        else:
            images.copy_(backgrounds[rows["background"]])
        for factor in PASTED:
            tiles = self._packs[factor].pixels[rows[factor]].to(images.device)
            (top, left), side = tile_corner(factor, self.size), tile_side(factor, self.size)
            window = images[:, top:top + side, left:left + side]
            window.copy_(torch.where(tiles[..., 3:] != 0, tiles[..., :3], window))
