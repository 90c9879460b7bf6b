"""The interface between a scene and everything else. Nothing outside a scene's folder knows its
factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import torch


class Renderer(Protocol):
    """Turns recipes into images. size: pixels per side; device: where images are made and kept."""

    size: int
    device: torch.device

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        """Recipes to uint8[B, size, size, 3]."""


class Catalogue(Protocol):
    """What drawing knows about the prepared sources. comparable: whether results can be compared
    with a paper's."""

    sources: str
    comparable: bool
    digest: str


# Columns of recipes and image files in addition to those of the scene.
RESERVED = ("sample", "split", "group", "environment", "image")


# Optional methods of a scene: name -> what it does, for error messages.
ABILITIES = {
    "exchange": "exchange a factor between images",
    "object_boxes": "say where an image's object is",
}


class Scene(Protocol):
    """What images show: factors and their classes, source files, recipe columns, a renderer.

    name: that of its folders in data/raw and data/prepared; for a scene named
    `package.module:Class`, the class's. factors: factor -> names of its classes, in class-index
    order; a factor's name is one word. columns: the columns of a recipe in addition to the factors'
    classes. published_samples: dataset samples fixed by a paper (see `studies.dataset_sample`).

    ABILITIES are optional methods: exchange(recipes, factor, donors) -> recipes: `factor`, its
    class and all columns that realise it, are taken from the donor in the same row; the rest is
    unchanged. object_boxes(recipes, size) -> int64[N, 4]: a box around the object in an image of
    that size: first row, first column, and those after the last. licences(sources) -> [(SPDX
    identifier, citation)], of what its images are made from, for data cards.

    A scene whose official sources are in a folder of the user's also has state(mirror) -> str, a
    digest of that folder (`photos.listing.state`): when it changes, they are fetched again. A scene
    may also say what a replicate is, see `replicates`; `depends`, paths of files besides its modules
    whose content counts as its code; and, for the plan, bytes_per_pixel of a stored image and
    source_bytes_per_image.

    A scene that uses no source twice may have share_out(recipes, catalogue, generator) -> columns,
    which replaces `realize` when a dataset is drawn: recipes is a frame of all images of a dataset,
    with split, group, environment (if the study names them) and the class of every factor.
    """

    name: str
    factors: Mapping[str, tuple[str, ...]]
    columns: pa.Schema
    published_samples: Sequence[Mapping]

    def raw_files(self, sources: str) -> list[str]:
        """The files that `fetch` makes, relative to the scene's folder in data/raw. sources:
        official or embedded."""

    def prepared_files(self) -> list[str]:
        """The files that `prepare` makes, relative to the scene's folder in data/prepared."""

    def fetch(self, raw: Path, mirror: Path | None) -> None:
        """Bring the official source files to `raw` and check their hashes. DiagvibError if one is
        not available."""

    def prepare(self, raw: Path, prepared: Path, sources: str) -> None:
        """Make the data for rendering from the source files, or from embedded ones.

        DiagvibError for sources that the scene does not have, and if a source file is missing or a
        different one.
        """

    def catalogue(self, prepared: Path) -> Catalogue:
        """What is prepared, without its pixels. DiagvibError if it is missing or incomplete."""

    def largest(self, catalogue: Catalogue) -> dict[str, int]:
        """The largest value of those whole-number columns of a recipe that have one."""

    def realize(
        self,
        classes: Mapping[str, np.ndarray],
        split: str,
        catalogue: Catalogue,
        generator: np.random.Generator,
        environment: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """For each image and factor, a value within its class, as the recipe's `columns`.

        classes: factor -> class names str[N]; environment: str[N], if the study names environments.
        No source is used in two splits. DiagvibError if a scene uses each source once and has too
        few.
        """

    def renderer(self, prepared: Path, size: int, device: torch.device) -> Renderer:
        """A renderer of recipes to images of `size` x `size` pixels on `device`."""

    def examples(self, prepared: Path, wanted: Sequence[Mapping[str, str]]) -> np.ndarray:
        """One image per choice of classes (missing factors: a typical class), uint8[N, H, W, 3],
        for people to see."""


def replicates(scene: Scene) -> Literal["samples", "seeds"]:
    """What differs between replicates. "samples", the default: each draws its own dataset. "seeds",
    by the scene's attribute `replicates`: all share one dataset, as with photos, and differ in the
    training seed.
    """
    return getattr(scene, "replicates", "samples")
