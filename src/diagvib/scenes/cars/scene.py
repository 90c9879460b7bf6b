"""The scene of UrbanCars (Li et al., 2023): a car on a background with another object, each urban
or country."""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.cars.catalogue import load_catalogue
from diagvib.scenes.cars.geometry import CLASSES, FACTORS, PASTED, tile_corner, tile_side
from diagvib.scenes.photos.listing import LISTING, state, write_listing
from diagvib.scenes.scene import Scene, within


class Cars(Scene):
    """Composed photos. Modules that decode or need torch are imported when they are used."""

    name = "cars"
    factors: ClassVar = dict.fromkeys(FACTORS, CLASSES)
    columns = pa.schema([(f"{factor}_photo", pa.int32()) for factor in FACTORS])
    realized_by: ClassVar = {factor: (f"{factor}_photo",) for factor in FACTORS}
    replicates = "seeds"
    # Measured on composed photos; and for a tile of each factor.
    bytes_per_pixel, source_bytes_per_image = 2.5, 3 * 256**2 + 6 * 128**2 + 6 * 64**2
    # Every factor has the classes in the same order, so that urban cars go with urban backgrounds.
    published_samples = (factors,)

    def state(self, mirror):
        return state(mirror and mirror / self.name)

    def raw_files(self, sources):
        return [LISTING] if sources == "official" else []

    def fetch(self, raw, mirror):
        """List the photos in `cars/` of the mirror; they stay there, and `raw` gets the list. If the
        mirror has the authors' sources instead, `cars/` is made of them first."""
        from diagvib.scenes.cars.sources import PLACES, list_sources

        if mirror is None:
            raise DiagvibError(
                f"mirror: the photos of {self.name} are your own; set it to a folder with "
                f"{', '.join(f'{self.name}/{place}' for place in PLACES)} (docs/paper_photos.md), or set "
                "`sources: embedded`"
            )
        from diagvib.scenes.cars.archives import Builder, has_archives, is_complete

        if has_archives(mirror) and not is_complete(mirror):
            Builder(mirror).build()
        hashes, files = list_sources(folder := mirror / self.name)
        table = pa.table({"path": [*hashes], "sha256": [*hashes.values()]})
        write_listing(raw, table, folder, files)

    def prepare(self, raw, prepared, sources):
        from diagvib.scenes.cars.prepare import prepare

        prepare(raw, prepared, sources)

    def catalogue(self, prepared):
        return load_catalogue(prepared)

    def realize(self, classes, split, catalogue, generator):
        return {
            f"{factor}_photo": catalogue.choose(factor, classes[factor], split, generator)
            for factor in FACTORS
        }

    def renderer(self, prepared, size, device):
        from diagvib.scenes.cars.renderer import make_renderer

        return make_renderer(prepared, size, device)

    def object_boxes(self, recipes: pa.Table, size: int) -> np.ndarray:
        """The square in the middle with the car's longer side."""
        return _boxes("car", len(recipes), size)

    def region(self, factor: str, recipes: pa.Table, pixels: np.ndarray) -> np.ndarray:
        """The tile of the car or the object; for the background, what is in neither."""
        count, size = len(pixels), pixels.shape[1]
        tiles = {name: within(_boxes(name, count, size), np.arange(size)) for name in PASTED}
        return ~np.logical_or(*tiles.values()) if factor == "background" else tiles[factor]


def _boxes(factor: str, count: int, size: int) -> np.ndarray:
    (top, left), side = tile_corner(factor, size), tile_side(factor, size)
    return np.tile(np.array([top, left, top + side, left + side], dtype=np.int64), (count, 1))
