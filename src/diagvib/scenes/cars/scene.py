"""The scene of UrbanCars (Li et al., 2023): a car on a background with another object, each urban
or country."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.cars.catalogue import CATALOGUE, Catalogue, load_catalogue
from diagvib.scenes.cars.geometry import CLASSES, FACTORS, tile_corner, tile_side
from diagvib.scenes.photos.listing import LISTING, state
from diagvib.scenes.prepared import DESCRIPTION

if TYPE_CHECKING:
    import torch

    from diagvib.scenes.scene import Renderer

_EXAMPLE_SIZE = 128


class Cars:
    """`scenes.scene.Scene` for composed photos. Modules that decode or need torch are imported when
    they are used."""

    name = "cars"
    factors: ClassVar = dict.fromkeys(FACTORS, CLASSES)
    columns = pa.schema([(f"{factor}_photo", pa.int32()) for factor in FACTORS])
    replicates = "seeds"
    # Measured on composed photos; and for a tile of each factor.
    bytes_per_pixel, source_bytes_per_image = 2.5, 3 * 256**2 + 6 * 128**2 + 6 * 64**2
    # Every factor has the classes in the same order, so that urban cars go with urban backgrounds.
    published_samples = ({**dict.fromkeys(FACTORS, CLASSES), "added_cue": (1, 2, 0)},)

    def state(self, mirror: Path | None) -> str:
        return state(mirror and mirror / self.name)

    def raw_files(self, sources: str) -> list[str]:
        return [LISTING] if sources == "official" else []

    def prepared_files(self) -> list[str]:
        return [*(f"{factor}.npy" for factor in FACTORS), CATALOGUE, DESCRIPTION]

    def fetch(self, raw: Path, mirror: Path | None) -> None:
        """List the photos in `cars/` of the mirror; they stay there, and `raw` gets the list."""
        from diagvib.scenes.cars.sources import PLACES, list_sources
        from diagvib.scenes.photos.listing import write_listing

        if mirror is None:
            raise DiagvibError(
                f"mirror: the photos of {self.name} are your own; set it to a folder with "
                f"{', '.join(f'{self.name}/{place}' for place in PLACES)} (docs/urbancars.md), or set "
                "`sources: embedded`"
            )
        folder = Path(mirror) / self.name
        write_listing(raw, list_sources(folder), folder)

    def prepare(self, raw: Path, prepared: Path, sources: str) -> None:
        from diagvib.scenes.cars.prepare import prepare

        prepare(raw, prepared, sources)

    def catalogue(self, prepared: Path) -> Catalogue:
        return load_catalogue(prepared)

    def largest(self, catalogue: Catalogue) -> dict[str, int]:
        return {f"{factor}_photo": len(catalogue.classes[factor]) - 1 for factor in FACTORS}

    def realize(
        self,
        classes: Mapping[str, np.ndarray],
        split: str,
        catalogue: Catalogue,
        generator: np.random.Generator,
        environment: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        return {
            f"{factor}_photo": catalogue.choose(factor, classes[factor], split, generator)
            for factor in FACTORS
        }

    def renderer(self, prepared: Path, size: int, device: torch.device) -> Renderer:
        from diagvib.scenes.cars.renderer import Renderer

        return Renderer(prepared, size, device)

    def exchange(self, recipes: pa.Table, factor: str, donors: pa.Table) -> pa.Table:
        for name in (factor, f"{factor}_photo"):
            recipes = recipes.set_column(
                recipes.column_names.index(name), recipes.schema.field(name), donors[name]
            )
        return recipes

    def object_boxes(self, recipes: pa.Table, size: int) -> np.ndarray:
        """The square in the middle with the car's longer side."""
        (top, left), side = tile_corner("car", size), tile_side("car", size)
        return np.tile(
            np.array([top, left, top + side, left + side], dtype=np.int64), (len(recipes), 1)
        )

    def examples(self, prepared: Path, wanted: Sequence[Mapping[str, str]]) -> np.ndarray:
        """Every class is shown by its first photo of the test split; everything else is urban."""
        import torch

        catalogue = load_catalogue(prepared)
        chosen = [{**dict.fromkeys(FACTORS, CLASSES[0]), **one} for one in wanted]
        first = {
            (factor, name): int(
                np.flatnonzero(
                    (catalogue.classes[factor] == name) & (catalogue.splits[factor] == "test")
                )[0]
            )
            for factor in FACTORS
            for name in CLASSES
        }
        recipes = pa.table(
            {
                f"{factor}_photo": [first[factor, one[factor]] for one in chosen]
                for factor in FACTORS
            }
        )
        return self.renderer(prepared, _EXAMPLE_SIZE, torch.device("cpu"))(recipes).numpy()
