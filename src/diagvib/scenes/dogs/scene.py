"""The scene of Spawrious: photos of dogs of four breeds on six backgrounds, used unchanged (Lynch
et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.scenes.photos.listing import LISTING, list_photos, state, write_listing

if TYPE_CHECKING:
    import torch

    from diagvib.scenes.dogs.photos import Catalogue, Photos
    from diagvib.scenes.scene import Renderer

COPIES = ("0", "1")
LEAST_IMAGES = 9  # of a split or a group, as in `settings.configuration`
_EXAMPLE = 128  # pixels per side


class Dogs:
    """`scenes.scene.Scene` for the published photos. Modules that decode or draw are imported when
    they are used."""

    name = "dogs"
    factors = {  # noqa: RUF012
        "breed": ("bulldog", "corgi", "dachshund", "labrador"),
        "background": ("desert", "jungle", "dirt", "mountain", "snow", "beach"),
    }
    columns = pa.schema([("photo", pa.int32())])
    replicates = "seeds"
    # As measured (benchmarks/README.md), raw with zstd and as WebP. Studies share photos, so
    # several need less than their sum.
    bytes_per_pixel, source_bytes_per_image = 2.34, 67_600
    # All classes, in the order in which studies number them; there are no others.
    published_samples = ({**factors, "added_cue": (1, 2, 0)},)

    def state(self, mirror: Path | None) -> str:
        return state(mirror and mirror / self.name)

    def raw_files(self, sources: str) -> list[str]:
        return [LISTING] if sources == "official" else []

    def prepared_files(self) -> list[str]:
        return ["photos.arrow", "catalogue.parquet"]

    def fetch(self, raw: Path, mirror: Path | None) -> None:
        """List the photos in the mirror's folder `dogs`: {copy}/{background}/{breed}/*, as in the
        unpacked archives."""
        if mirror is None:
            raise DiagvibError(
                "dogs: the photos cannot be downloaded; unpack the published archives into a folder "
                "`dogs`, as docs/spawrious.md says, and set `mirror:` to the folder that holds it, or "
                "set `sources: embedded` for drawn ones"
            )
        folder, found, read = Path(mirror) / self.name, [], []
        for copy in COPIES:
            places = [
                f"{background}/{breed}"
                for background, breed in product(*reversed(self.factors.values()))
            ]
            there = [place for place in places if (folder / copy / place).is_dir()]
            if there:  # an archive of one study has only some of them
                read.append(copy)
                listed = list_photos(folder / copy, there)
                for name in ("place", "path"):
                    inside = pa.array(
                        [f"{copy}/{value}" for value in listed[name].to_pylist()], pa.string()
                    )
                    listed = listed.set_column(listed.column_names.index(name), name, inside)
                found.append(listed)
        if not found:
            raise DiagvibError(
                f"{folder}: no photos; it should contain the folders 0 and 1 of the published archives, "
                "e.g. 0/desert/bulldog (docs/spawrious.md); or set `sources: embedded` for drawn ones"
            )
        write_listing(raw, pa.concat_tables(found), folder, read)

    def prepare(self, raw: Path, prepared: Path, sources: str) -> None:
        from diagvib.scenes.dogs.prepare import prepare

        prepare(raw, prepared, sources)

    def catalogue(self, prepared: Path) -> Catalogue:
        from diagvib.scenes.dogs.photos import load_catalogue

        return load_catalogue(prepared)

    def largest(self, catalogue: Catalogue) -> dict[str, int]:
        return {"photo": len(catalogue.breed) - 1}

    def realize(
        self,
        classes: Mapping[str, np.ndarray],
        split: str,
        catalogue: Catalogue,
        generator: np.random.Generator,
        environment: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        places = {} if environment is None else {"environment": environment}
        return self.share_out(
            pd.DataFrame({"split": split, **places, **classes}), catalogue, generator
        )

    def share_out(
        self, recipes: pd.DataFrame, catalogue: Catalogue, generator: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Each training environment takes its photos of a breed and background from a separate copy
        while there is one, in the environments' order; environments that are only tested then take
        what is left, copy by copy. So the published studies use the same copies as their authors'
        code."""
        environment = (
            recipes["environment"] if "environment" in recipes else pd.Series("", recipes.index)
        )
        trained = sorted(environment[recipes["split"] == "train"].unique())
        order = [*trained, *sorted(set(environment.unique()) - set(trained))]
        needed = recipes.groupby(["breed", "background", environment.to_numpy()]).indices
        chosen, short = np.empty(len(recipes), np.int32), {}
        for cell in product(*self.factors.values()):
            shown = (catalogue.breed == cell[0]) & (catalogue.background == cell[1])
            whole = [
                generator.permutation(np.flatnonzero(shown & (catalogue.copy == copy)))
                for copy in COPIES
            ]
            rows = [needed[*cell, name] for name in order if (*cell, name) in needed]
            if sum(map(len, rows)) > shown.sum():
                short[cell] = np.concatenate(rows), int(shown.sum())
                continue
            begun: list[np.ndarray] = []
            for own in rows:
                chosen[own] = _take(whole, begun, len(own))
        if short:
            raise _too_few(recipes, short)
        return {"photo": chosen}

    def renderer(self, prepared: Path, size: int, device: torch.device) -> Renderer:
        from diagvib.scenes.dogs.photos import Photos

        return PhotoRenderer(Photos(prepared), size, device)

    def examples(self, prepared: Path, wanted: Sequence[Mapping[str, str]]) -> np.ndarray:
        """The first photo of the requested classes; grey if there is none."""
        from diagvib.scenes.dogs.photos import Photos

        photos = Photos(prepared)
        known = photos.catalogue
        images = np.full((len(wanted), _EXAMPLE, _EXAMPLE, 3), 127, np.uint8)
        for image, one in zip(images, wanted, strict=True):
            there = np.logical_and.reduce(
                [getattr(known, factor) == name for factor, name in one.items()]
            )
            if there.any():
                image[:] = photos.read(
                    np.flatnonzero(np.broadcast_to(there, known.breed.shape))[:1], _EXAMPLE
                )[0]
        return images


@dataclass(frozen=True)
class PhotoRenderer:
    """`scenes.scene.Renderer` for photos that are used unchanged."""

    photos: Photos
    size: int
    device: torch.device

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.photos.read(recipes["photo"].to_numpy(), self.size)).to(
            self.device
        )


def _take(whole: list[np.ndarray], begun: list[np.ndarray], count: int) -> np.ndarray:
    """This many numbers, from an unused list while there is one, then from what others have
    left."""
    taken = [np.empty(0, np.int64)]
    while count:
        lot = (whole or begun).pop(0)
        taken.append(lot[:count])
        begun += [lot[count:]] if len(lot) > count else []
        count -= len(taken[-1])
    return np.concatenate(taken)


def _too_few(
    recipes: pd.DataFrame, short: Mapping[tuple[str, str], tuple[np.ndarray, int]]
) -> DiagvibError:
    """short: class of each factor -> rows that need a photo, and how many photos there are."""
    (breed, background), (rows, there) = min(
        short.items(), key=lambda item: item[1][1] / len(item[1][0])
    )
    parts = recipes["split"].where(
        (recipes["split"] != "test") | ("group" not in recipes), recipes.get("group")
    )
    needed = ", ".join(
        f"{part} {n:,}" for part, n in parts.iloc[rows].value_counts().sort_index().items()
    )
    fitting = _fitting(
        parts.value_counts().sort_index().to_dict(),
        [(parts.iloc[own].value_counts().to_dict(), photos) for own, photos in short.values()],
    )
    listed = ", ".join(f"{part}: {n}" for part, n in fitting.items())
    return DiagvibError(
        f"dogs: {len(rows):,} different photos of {breed} in {background} are needed ({needed}), but "
        f"there are {there:,}" + (f"; counts: {{{listed}}} would fit" if fitting else "")
    )


def _fitting(
    counts: Mapping[str, int], cells: Sequence[tuple[Mapping[str, int], int]]
) -> dict[str, int]:
    """Counts for which the photos suffice, or {} if there are none: all reduced by one factor; but
    those that would become too small stay as they are or, if that is too many, are the smallest
    allowed.

    cells: how many photos each part needs, and how many there are.
    """
    for smallest in (counts, dict.fromkeys(counts, LEAST_IMAGES)):
        kept, small = {}, {}
        while len(kept) < len(counts):
            share = min(_share(counts, needed, there, kept) for needed, there in cells)
            reduced = {part: kept.get(part, int(n * share)) for part, n in counts.items()}
            small = {
                part: smallest[part]
                for part, n in reduced.items()
                if part not in kept and n < LEAST_IMAGES
            }
            if share > 0 and not small:
                return reduced
            kept |= small
    return {}


def _share(
    counts: Mapping[str, int], needed: Mapping[str, int], there: int, kept: Mapping[str, int]
) -> float:
    """The factor by which the counts that are not kept must shrink for one cell; not positive if
    none is enough."""
    fixed = sum(math.ceil(needed.get(part, 0) * n / counts[part]) for part, n in kept.items())
    other = sum(n for part, n in needed.items() if part not in kept)
    left = there - 3 - fixed  # the share of a cell may be rounded up in each split
    return min(1.0, left / other) if other else 1.0 if left >= 0 else 0.0
