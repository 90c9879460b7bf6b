"""The one interface between a scene and everything else. Nothing outside a scene's folder knows its factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import torch


class Renderer(Protocol):
    """What turns recipes into images. size: pixels a side; device: where images are made and left."""

    size: int
    device: torch.device

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        """Recipes to uint8[B, size, size, 3]."""


class Catalogue(Protocol):
    """What drawing knows of the prepared sources. comparable: whether results may be held against a paper's."""

    sources: str
    comparable: bool
    digest: str


# Columns of recipes and image files beside those of the scene.
RESERVED = ("sample", "split", "group", "environment", "image")


# What a scene may be able to do beside: method -> what it does, in messages.
ABILITIES = {"exchange": "exchange a factor between images", "object_boxes": "say where an image's object is"}


class Scene(Protocol):
    """What images are of: factors and their classes, source files, recipe columns, a renderer.

    name: that of its folders in data/raw and data/prepared; of a scene named `package.module:Class` the class's.
    factors: factor -> names of its classes, in class-index order; a factor's name is one word. columns: what a recipe
    holds beside the factors' classes. published_samples: dataset samples that a paper fixed (see
    `studies.dataset_sample`).

    ABILITIES are further methods, which a scene has or lacks:
    exchange(recipes, factor, donors) -> recipes: each with `factor`, its class and all columns that realize it, from
    the donor in its row, and else as it was. object_boxes(recipes, size) -> int64[N, 4]: a box around the object
    in an image of that size: first row, first column, and the ones behind the last.
    licences(sources) -> [(SPDX identifier, citation)], of what its images are made from, for data cards.

    A scene whose official sources stand in a folder of the user's further has state(mirror) -> str, a digest of what
    stands there (`photos.listing.state`): where it is another one, they are fetched anew. And one may say what a
    replicate is, see `replicates`; and, for the plan, bytes_per_pixel of a stored image and source_bytes_per_image.

    A scene that uses no source twice may have share_out(recipes, catalogue, generator) -> columns, which stands in for
    `realize` where a dataset is drawn: recipes is a frame of all images of a dataset, with split, group, environment
    (of a study that names them) and the class of every factor.
    """

    name: str
    factors: Mapping[str, tuple[str, ...]]
    columns: pa.Schema
    published_samples: Sequence[Mapping]

    def raw_files(self, sources: str) -> list[str]:
        """What `fetch` brings, relative to the scene's folder in data/raw. sources: official or embedded."""

    def prepared_files(self) -> list[str]:
        """What `prepare` makes, relative to the scene's folder in data/prepared."""

    def fetch(self, raw: Path, mirror: Path | None) -> None:
        """Bring the official source files to `raw`, each held to its hash. DiagvibError if one is not to be had."""

    def prepare(self, raw: Path, prepared: Path, sources: str) -> None:
        """From the source files, or from embedded ones, to what rendering reads.

        DiagvibError for sources that the scene does not have, and if a source file is absent or another one.
        """

    def catalogue(self, prepared: Path) -> Catalogue:
        """What is prepared, without its pixels. DiagvibError if it is absent or not whole."""

    def largest(self, catalogue: Catalogue) -> dict[str, int]:
        """The largest value of those whole-number columns of a recipe that have one."""

    def realize(self, classes: Mapping[str, np.ndarray], split: str, catalogue: Catalogue,
                generator: np.random.Generator, environment: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """For each image and factor a value inside its class, as the recipe's `columns`.

        classes: factor -> class names str[N]; environment: str[N], of a study that names environments. No source serves
        two splits. DiagvibError where a scene uses each source once and has too few.
        """

    def renderer(self, prepared: Path, size: int, device: torch.device) -> Renderer:
        """What turns recipes into images of `size` x `size` pixels on `device`."""

    def examples(self, prepared: Path, wanted: Sequence[Mapping[str, str]]) -> np.ndarray:
        """One image per choice of classes (factors left out: a usual class), uint8[N, H, W, 3], for people to see."""


def replicates(scene: Scene) -> Literal["samples", "seeds"]:
    """What repetitions differ in. Each has a dataset sample of its own; or, where the scene's attribute `replicates` is
    `seeds`, all share one dataset and differ in the training's seed, as with photos, of which there are no more.
    """
    return getattr(scene, "replicates", "samples")
