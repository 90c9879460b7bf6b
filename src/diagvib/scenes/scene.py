"""The base class of scenes, and so the interface between a scene and everything else. Nothing
outside a scene's folder knows its factors."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, permutations, product
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    DIGESTS_FILE,
    file_sha256,
    text_sha256,
    write_digests,
    write_json,
)
from diagvib.foundation.hooks import check_hooks
from diagvib.foundation.imports import Entry, program_digest
from diagvib.foundation.seeding import generators_restored, named_generator, seed_generators
from diagvib.foundation.validation import Distinct, InvalidField, Text, TextLike
from diagvib.scenes.fetch import Source, fetch
from diagvib.scenes.prepared import DESCRIPTION, read_description

if TYPE_CHECKING:
    import pandas as pd
    import torch

    Array = np.ndarray | torch.Tensor

# The factor of a mark that a scene draws on images, and the view with random ones (`marked`).
MARK = "watermark"
# Views that are files: photos with another texture, or on another background.
TWINS = ("style", "background")
# Columns of recipes and image files in addition to those of the scene.
RESERVED = ("sample", "split", "group", "environment", "image")

# Also taken: further columns of a list of photos, and those of a run's predictions and pictures.
_RESERVED_NAMES = (*RESERVED, "path", "sha256", "unit", "lot", "photo", "prediction", "confidence")
_RESERVED_NAMES += ("what", "dimension", "kl", "value", "picture")
FactorName = Annotated[
    str,
    TextLike(
        rf"(?!(?:{'|'.join(_RESERVED_NAMES)})$)[A-Za-z][A-Za-z0-9_]{{0,39}}",
        "a factor is one word of at most 40 letters a to z, digits and '_', which begins with a letter, "
        f"but not {', '.join(_RESERVED_NAMES)}",
    ),
]
Classes = Annotated[Distinct[Text], Field(min_length=2)]
Factors = dict[FactorName, Classes]


def check_joined(factors: Mapping[str, Sequence[str]]) -> None:
    """InvalidField if the classes of two cells, joined by hyphens as results name cells, are the same
    text: `a-b` with `c`, and `a` with `b-c`."""
    if (
        sum("-" in "".join(class_names) for class_names in factors.values()) < 2
    ):  # as mostly, which is seen at once
        return
    for factor_choice in chain(permutations(factors.items(), 2), permutations(factors.items(), 3)):
        names = Counter(map("-".join, product(*(class_names for _, class_names in factor_choice))))
        ((joined, times),) = names.most_common(1)
        if times > 1:
            name, *other_factors = (name for name, _ in factor_choice)
            raise InvalidField(
                "factors",
                f"two classes of {name}, each with one of {' and '.join(other_factors)}, are both {joined}; "
                "rename one of them",
            )


# Abilities that only some scenes have: name -> what it is, for error messages.
ABILITIES = {
    "exchange": "exchange a factor between images",
    "object_boxes": "say where an image's object is",
}

# What a scene overrides, and what only some scenes have; see `Scene`.
_HOOKS = ("realize", "renderer", "fetch", "prepare", "raw_files", "state", "catalogue", "licences")
_HOOKS += ("object_boxes", "region", "share_out", "narrow")

# Notes the state of the user's own files when they were fetched (`Scene.state`).
STATE = "state.json"
EXAMPLE_SIZE = 128
_COMPARED = 32  # images of a user's scene that are rendered again


def within(boxes: Array, pixels: Array) -> Array:
    """The pixels inside boxes as of `object_boxes`, int[N, 4]: bool[N, size, size]. pixels: the
    numbers of rows and columns, 0 to size - 1. All are arrays of numpy or tensors of torch."""
    top, left, bottom, right = boxes.T[..., None]
    rows, columns = (top <= pixels) & (pixels < bottom), (left <= pixels) & (pixels < right)
    return rows[:, :, None] & columns[:, None]


def _indices(value: object) -> object:
    try:
        return tuple(map(index, value))
    except TypeError:
        return value


# Of a published sample: a cue class index for each target class 0, 1, 2, never its own.
AddedCue = Annotated[tuple[Literal[1, 2], Literal[0, 2], Literal[0, 1]], BeforeValidator(_indices)]


@dataclass(frozen=True)
class Catalogue:
    """The prepared sources, as drawing knows them. comparable: whether results can be compared
    with a paper's. digest: of all that images are made from."""

    sources: str
    comparable: bool
    digest: str


@dataclass(frozen=True)
class Renderer:
    """Turns recipes into images, on `device`, uint8[B, size, size, 3]. render: the scene's own
    function; remake: of a user's scene, makes this function again, so that the first images can be
    compared with those of a second time."""

    scene: str
    size: int
    device: torch.device
    render: Callable[[pa.Table], torch.Tensor]
    remake: Callable[[], Callable[[pa.Table], torch.Tensor]] | None = None
    compared: list[str] = field(default_factory=list)

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        """DiagvibError, naming the scene, for anything else, which would be read as other images,
        and for images that depend on more than their recipes."""
        images = self._images(self.render, recipes)
        if self.remake and not self.compared and len(recipes):
            self._compare(recipes, images)
        return images

    def _images(self, render: Callable, recipes: pa.Table) -> torch.Tensor:
        images, expected_shape = render(recipes), [len(recipes), self.size, self.size, 3]
        shape = [*getattr(images, "shape", ())]
        dtype = getattr(images, "dtype", type(images).__name__)
        if shape != expected_shape or str(dtype) != "torch.uint8":
            raise DiagvibError(
                f"scene {self.scene}: renderer gives images of {dtype} and shape {shape}; "
                f"torch.uint8{expected_shape} is needed"
            )
        # A user's function may draw the next images into the same memory.
        return images.contiguous().clone() if self.remake else images

    def _compare(self, recipes: pa.Table, images: torch.Tensor) -> None:
        """DiagvibError unless a few of the images come out the same in another order, with other
        companions, and from a function that is made anew."""
        rows = np.unique(np.linspace(0, len(recipes) - 1, _COMPARED).astype(int))[::-1].copy()
        sample, expected = recipes.take(rows), images[rows]
        with generators_restored():
            seed_generators(len(recipes))
            again, repeated = (self._images(self.render, sample) for _ in range(2))
            anew = self._images(self.remake(), sample)
        self.compared.extend(map(str, rows))
        if not again.equal(repeated):
            reason = "gives other images in each call: it draws random numbers, or counts its calls"
        elif not again.equal(expected):
            reason = "gives other images in another order: they depend on those rendered with them or before"
        elif not anew.equal(expected):
            reason = (
                "gives other images when it is made again: it draws random numbers at that time"
            )
        else:
            return
        raise DiagvibError(
            f"scene {self.scene}: {reason}; an image must depend on its recipe alone: draw in "
            "`realize`, from its generator, and put the numbers into `columns`"
        )


class Scene:
    """Defines images: factors and their classes, source files, recipe columns, a renderer.

    A scene of your own is a subclass with `factors`, `columns`, `realize` and `renderer`; if it is
    made from files, also with `prepare`, and either `sources` (files to download) or `fetch`,
    `raw_files` and `state`.

    factors: factor -> names of its classes, in class-index order; a factor's name is one word.
    columns: of a recipe, in addition to the factors' classes. sources: the official source files.
    realized_by: factor -> the columns with its values, if they can be exchanged between images.
    spreads: the factors whose classes can differ less, by narrow(columns, factor, chosen, spread):
    columns from `realize` in which the chosen classes differ by this share of what they usually do.
    typical: the class that a factor has in examples of others, by default its first one.
    unless_bound: the class that a factor has in all images of a study that does not bind it, by
    default any.
    published_samples: dataset samples fixed by a paper (see `studies.dataset_sample`). replicates:
    whether each replicate draws its own dataset, or all share one, as with photos, and differ in
    the training seed. depends: files besides its modules whose content counts as its code.
    draws_on_gpu: whether the renderer draws in a GPU's memory, the same images as on the CPU.
    bytes_per_pixel of a stored image, source_bytes_per_image: for the plan.

    Some scenes also have object_boxes(recipes, size) -> int64[N, 4]: a box around the object in an
    image of that size: first row, first column, and those after the last; and region(factor,
    recipes, pixels) -> bool[N, H, W]: where images uint8[N, H, W, 3] show a factor. One that uses no
    source twice may have share_out(recipes, catalogue, generator) -> columns, which replaces
    `realize` when a dataset is drawn: recipes is a frame of all images of a dataset, with split,
    group, environment (if the study names them) and the class of every factor.
    """

    name: str = "scene"
    factors: ClassVar[Mapping[str, tuple[str, ...]]]
    columns: pa.Schema = pa.schema([])
    sources: ClassVar[Sequence[Source]] = ()
    realized_by: ClassVar[Mapping[str, Sequence[str]]] = {}
    spreads: ClassVar[Sequence[str]] = ()
    typical: ClassVar[Mapping[str, str]] = {}
    unless_bound: Mapping[str, str] = {}
    published_samples: ClassVar[Sequence[Mapping]] = ()
    replicates: Literal["samples", "seeds"] = "samples"
    depends: ClassVar[Sequence[str]] = ()
    draws_on_gpu: bool = False
    bytes_per_pixel: float | None = None
    source_bytes_per_image: int = 0

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__
        check_hooks(cls, Scene, "scene", _HOOKS)

    def realize(
        self,
        classes: Mapping[str, np.ndarray],
        split: str,
        catalogue: Catalogue,
        generator: np.random.Generator,
    ) -> dict[str, np.ndarray]:
        """For each image and factor, a value within its class: the recipe's `columns`, [N] each.

        classes: factor -> class names str[N], not to be changed. No source is used in two splits.
        Random numbers come from `generator`; the global ones are not seeded.
        """
        raise NotImplementedError

    def renderer(
        self, prepared: Path, size: int, device: torch.device
    ) -> Callable[[pa.Table], torch.Tensor]:
        """A function from recipes to images, uint8[N, size, size, 3] on `device`, without anything
        random."""
        raise NotImplementedError

    def fetch(self, raw: Path, mirror: Path | None) -> None:
        """Bring the official source files to `raw`, and check them. DiagvibError if one is not
        available."""
        fetch(self.sources, raw, mirror)

    def prepare(self, raw: Path, prepared: Path, sources: str) -> None:
        """Make the files that images are rendered from, if there are any, from the source files
        (sources `official`) or from none (`embedded`)."""

    def raw_files(self, sources: str) -> list[str]:
        """The files that `fetch` makes, relative to `raw`."""
        return [source.path for source in self.sources] if sources == "official" else []

    def state(self, mirror: Path | None) -> str:
        """A digest of the user's own files that `fetch` lists: it runs again when they change.
        Empty if there are none."""
        return ""

    def catalogue(self, prepared: Path) -> Catalogue:
        """Describe the prepared sources without their pixels. DiagvibError if they are missing or
        incomplete."""
        return Catalogue(**read_description(prepared))

    def licences(self, sources: str) -> list[tuple[str, str]]:
        """SPDX identifier and citation of what images are made from, for data cards."""
        cited = self.sources if sources == "official" else ()
        return list(dict.fromkeys((source.licence, source.citation) for source in cited))

    def examples(self, prepared: Path, class_choices: Sequence[Mapping[str, str]]) -> np.ndarray:
        """One image per choice of classes (missing factors: a typical class), uint8[N, H, W, 3],
        for people to see."""
        import torch

        catalogue, parts = self.catalogue(prepared), []
        first_classes = {name: names[0] for name, names in self.factors.items()}
        for choice in class_choices:
            labels = {**first_classes, **self.typical, **choice}
            classes = {name: np.array([label], dtype=object) for name, label in labels.items()}
            columns = self.realize(classes, "test", catalogue, named_generator("examples"))
            parts.append({**classes, **columns})
        fields = [*((name, pa.string()) for name in self.factors), *self.columns]
        recipes = pa.concat_tables(pa.table(part, schema=pa.schema(fields)) for part in parts)
        return self.rendering(prepared, EXAMPLE_SIZE, torch.device("cpu"))(recipes).numpy()

    @property
    def entries(self) -> list[Entry]:
        """The scene's module and the files that it `depends` on, for `foundation.imports`."""
        return [type(self).__module__, *map(Path, self.depends)]

    def fetched(self, raw: Path, sources: str, mirror: Path | None) -> None:
        """Fetch the source files, if there are any; then write what they were made from and their
        digests."""
        if files := self.raw_files(sources):
            # From before, so that what changes meanwhile is fetched again.
            state = self.state(mirror)
            self.fetch(raw, mirror)
            write_json(raw / STATE, {"state": state})
            write_digests(raw, files)

    def make(self, raw: Path, prepared: Path, sources: str) -> None:
        """Prepare; then describe what is prepared, unless `prepare` has done so, and write the
        digests."""
        if sources == "official" and not self.raw_files(sources):
            raise DiagvibError(
                f"scene {self.name}: has no official sources; set `sources: embedded`"
            )
        for old in (DESCRIPTION, DIGESTS_FILE):  # they must not vouch for new files
            (prepared / old).unlink(missing_ok=True)
        self.prepare(raw, prepared, sources)
        if not (prepared / DESCRIPTION).exists():
            digests = [
                (name, file_sha256(prepared / name)) for name in self.prepared_files(prepared)
            ]
            code = program_digest(Path(inspect.getfile(type(self))))
            digest = text_sha256(repr((code, digests)))
            described = {"sources": sources, "comparable": False, "digest": digest}
            write_json(prepared / DESCRIPTION, described)
        write_digests(prepared, self.prepared_files(prepared))

    def prepared_files(self, prepared: Path) -> list[str]:
        """The files that images depend on, relative to the folder that they are in."""
        files = (path for path in prepared.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(prepared)) for path in files)

    def rendering(
        self, prepared: Path, size: int, device: torch.device, **options: object
    ) -> Renderer:
        """`renderer`, with a check of the images that it gives. options: of the scene's own."""
        make = partial(self.renderer, prepared, size, device, **options)
        return Renderer(self.name, size, device, make(), make if self._is_of_user else None)

    def realized(
        self,
        classes: Mapping[str, np.ndarray],
        split: str,
        catalogue: Catalogue,
        generator: np.random.Generator,
    ) -> dict[str, np.ndarray]:
        """`realize`, with a check of the numbers that it gives."""
        realizations = self.drawn_once("realize", generator, classes, split, catalogue)
        columns = {name: np.asarray(realizations[name]) for name in self.columns.names}
        for name, column in columns.items():
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                raise DiagvibError(
                    f"scene {self.name}: realize gives {name} with infinite or missing values"
                )
        return columns

    def drawn_once(
        self, hook: str, generator: np.random.Generator, *arguments: object
    ) -> dict[str, np.ndarray]:
        """The columns that `realize` or `share_out` gives with these arguments and the generator.
        DiagvibError for a user's scene that gives others with the same generator."""
        import pandas as pd  # here, because planning does without

        draw, copies = getattr(self, hook), [deepcopy(generator)] * self._is_of_user
        values = draw(*arguments, generator)
        for copied in copies:
            again = draw(*arguments, copied)
            for name in self.columns.names:
                if not pd.Series(values.get(name)).equals(pd.Series(again.get(name))):
                    raise DiagvibError(
                        f"scene {self.name}: {hook} gives another {name} with the same generator, so "
                        "deleted images would come back as others; draw all random numbers from "
                        "`generator`, and keep nothing between calls"
                    )
        return values

    @property
    def _is_of_user(self) -> bool:
        return not type(self).__module__.startswith("diagvib.")

    def source_files(self, recipes: pa.Table, prepared: Path) -> list[str] | None:
        """The file that each image is made from, for predictions; None where there is none."""
        return None

    def answers(
        self,
        recipes: pa.Table,
        target: str,
        classes: Sequence[str],
        logits_of: Callable[[np.ndarray], torch.Tensor],
        prepared: Path,
    ) -> pd.DataFrame | None:
        """A network's answers to test images, as columns of predictions; None for the predicted class
        and its probability alone.

        recipes: with group; classes: of the target; logits_of: rows int64[B] -> [B, classes], each
        row once.
        """
        return None

    @property
    def answered_by(self) -> list[str | Path]:
        """The modules and files that make `answers`; of the base class, none."""
        return [] if type(self).answers is Scene.answers else self.entries

    def can(self, ability: str) -> bool:
        """Whether the scene has one of ABILITIES."""
        return bool(self.realized_by) if ability == "exchange" else hasattr(self, ability)

    def exchange(self, recipes: pa.Table, factor: str, donors: pa.Table) -> pa.Table:
        """The recipes with a factor, its class and the columns with its values, from the donor in
        the same row; the rest is unchanged."""
        for name in (factor, *self.realized_by[factor]):
            position = recipes.column_names.index(name)
            recipes = recipes.set_column(position, recipes.schema.field(name), donors[name])
        return recipes
