"""Allocate photos to the images of a dataset; each is used once."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.seeding import name_digest

LEAST_IMAGES = 9  # of a split or a group, as in `settings.keys`
_SPLITS = ("train", "val", "test")


def share_out(
    name: str,
    factors: Mapping[str, Sequence[str]],
    recipes: pd.DataFrame,
    photos: pd.DataFrame,
    generator: np.random.Generator,
) -> np.ndarray:
    """The number of a photo for each recipe, int32[N]; name: of the scene.

    Photos with a split or unit serve one split only. Each training environment takes its photos of
    a combination of classes from a lot of its own while there is one, in the order of their names;
    environments that are only tested then take what is left, lot by lot. So the published studies
    of Spawrious use the same copies as their authors' code. DiagvibError, with numbers that would
    do, if there are too few.
    """
    # Environments that are trained on choose first.
    environment = recipes.get("environment", pd.Series("", recipes.index)).to_numpy()
    trained = sorted(set(environment[recipes["split"] == "train"]))
    environments = [*trained, *sorted(set(environment) - set(trained))]
    # If photos serve a split, so do recipes; otherwise any photo does for any split, "".
    photo_split = serving_split(name, recipes, photos)
    split = recipes["split"].to_numpy() if photo_split.any() else np.full(len(recipes), "")
    # The rows of recipes of each (class of each factor, split, environment), and those of photos of
    # each (class of each factor, split, lot).
    rows_of = recipes.groupby([*(recipes[f] for f in factors), split, environment]).indices
    photos_of = photos.groupby([*(photos[f] for f in factors), photo_split, photos["lot"]]).indices
    lots, no_photos = sorted(set(photos["lot"])), np.empty(0, np.int64)
    photo_of_row, short = np.empty(len(recipes), np.int32), {}
    for cell in product(*factors.values(), dict.fromkeys(split)):
        supply = [generator.permutation(photos_of.get((*cell, lot), no_photos)) for lot in lots]
        demands = [rows_of[*cell, e] for e in environments if (*cell, e) in rows_of]
        if sum(map(len, demands)) > sum(map(len, supply)):
            short[cell] = np.concatenate(demands), sum(map(len, supply))
        else:
            _deal(demands, supply, photo_of_row)
    if short:
        raise _too_few(name, factors, recipes, short)
    return photo_of_row


def _deal(demands: list[np.ndarray], supply: list[np.ndarray], photo_of_row: np.ndarray) -> None:
    """Give each environment's rows photos from the first lot that nobody has begun; when there is
    none left, from the rests of the others. Writes to `photo_of_row`. demands: the rows of each
    environment; supply: the photos of each lot, in all as many as the rows or more."""
    lots = [*supply]
    for rows in demands:
        while len(rows):
            lot = lots.pop(0)
            photo_of_row[rows[: len(lot)]] = lot[: len(rows)]
            lots.append(lot[len(rows) :])
            rows = rows[len(lot) :]


def serving_split(name: str, recipes: pd.DataFrame, photos: pd.DataFrame) -> np.ndarray:
    """The split that each photo serves, or "" for any: its own; or that of its unit, which a hash
    of its name decides, in proportion to the splits' numbers of images."""
    if (photos["split"] != "").any() or not (photos["unit"] != "").any():
        return photos["split"].to_numpy(object)
    units, unit_of, sizes = np.unique(
        photos["unit"].to_numpy(str), return_inverse=True, return_counts=True
    )
    order = sorted(range(len(units)), key=lambda unit: name_digest(name, units[unit]))
    middles = np.empty(len(units))
    middles[order] = np.cumsum(sizes[order]) - sizes[order] / 2
    counts = recipes["split"].value_counts().reindex(_SPLITS, fill_value=0)
    bounds = np.cumsum(counts)[:-1] / len(recipes) * len(photos)
    return np.array(_SPLITS, object)[np.searchsorted(bounds, middles)][unit_of]


def _too_few(
    name: str,
    factors: Mapping[str, Sequence[str]],
    recipes: pd.DataFrame,
    short: Mapping[tuple[str, ...], tuple[np.ndarray, int]],
) -> DiagvibError:
    """short: class of each factor, and split -> rows that need a photo, and how many there are."""
    (*cell, split), (rows, photo_count) = min(
        short.items(), key=lambda item: item[1][1] / len(item[1][0])
    )
    parts = recipes["split"]
    if "group" in recipes:
        parts = parts.where(parts != "test", recipes["group"])
    needed = parts.iloc[rows].value_counts().sort_index()
    # The share of a cell may be rounded up in each split.
    fitting = (parts.value_counts().sort_index() * (photo_count - 3) / len(rows)).astype(int)
    fits = (fitting >= LEAST_IMAGES).all()
    combination = ", ".join(
        f"{factor} {label}" for factor, label in zip(factors, cell, strict=True)
    )
    listed = ", ".join(f"{part}: {n}" for part, n in fitting.items())
    return DiagvibError(
        f"{name}: {len(rows):,} different photos of {combination} are needed "
        f"({', '.join(f'{part} {n:,}' for part, n in needed.items())}), but there are {photo_count:,}"
        + (f" for the split {split}" if split else "")
        + (f"; counts: {{{listed}}} would fit" if fits else "")
    )
