"""The catalogue of prepared photos: their classes, and the split that each belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.cars.geometry import FACTORS
from diagvib.scenes.prepared import read_described
from diagvib.scenes.scene import Catalogue

CATALOGUE = "catalogue.parquet"
# A row for each photo; the photos of each factor are numbered from 0, as in its pack.
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("factor", "class", "split", "path", "sha256", "mask_sha256")]
)


@dataclass(frozen=True)
class CarCatalogue(Catalogue):
    """classes, splits: factor -> str[N], for every photo of the factor."""

    classes: Mapping[str, np.ndarray]
    splits: Mapping[str, np.ndarray]

    def choose(
        self, factor: str, names: np.ndarray, split: str, generator: np.random.Generator
    ) -> np.ndarray:
        """A photo of a factor for each image, none twice: int64[N], given the class of each.

        DiagvibError, with a number of images that would fit, if a class has too few in the split.
        """
        indices = np.empty(len(names), dtype=np.int64)
        for name in np.unique(names.astype(str)):
            rows = np.flatnonzero(names == name)
            pool = np.flatnonzero((self.splits[factor] == split) & (self.classes[factor] == name))
            if len(pool) < len(rows):
                raise DiagvibError(
                    f"counts.{split}: {len(names):,} images need {len(rows):,} photos of {factor} {name}, each once, "
                    f"but the split has {len(pool):,}; set it to {len(names) * len(pool) // len(rows):,} or less, or "
                    "add photos"
                )
            indices[rows] = generator.permutation(pool)[: len(rows)]
        return indices


def load_catalogue(folder: Path) -> CarCatalogue:
    """The content of a prepared folder. DiagvibError if it is missing, or its files belong to
    different preparations."""
    described, table = read_described(folder, CATALOGUE, SCHEMA.names)
    photos = dict(iter(table.to_pandas().groupby("factor")))
    classes, splits = (
        {factor: photos[factor][name].to_numpy(str) for factor in FACTORS}
        for name in ("class", "split")
    )
    return CarCatalogue(**described, classes=classes, splits=splits)
