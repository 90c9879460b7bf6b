"""The scene of DiagViB-6: a textured, coloured digit on a grey canvas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, create_model

from diagvib.foundation.files import definition_path
from diagvib.foundation.validation import Distinct, Filled, Strict, read_valid
from diagvib.scenes.digits.digits import DIGIT_SIZE
from diagvib.scenes.digits.factors import (
    FACTORS,
    REALIZATION_COLUMNS,
    REGIONS,
    SPREAD_COLUMNS,
    draw_realizations,
    narrowed,
)
from diagvib.scenes.digits.resizing import CANVAS, TEXTURE_SIZE
from diagvib.scenes.fetch import Source, read_sources
from diagvib.scenes.scene import AddedCue, Scene, within

if TYPE_CHECKING:
    import torch

    from diagvib.scenes.digits.renderer import Renderer as BatchedRenderer

_BY_NUMBERS = ("position", "hue", "lightness", "scale")


class Digits(Scene):
    """Modules that read sources or need torch are imported when they are used."""

    name = "digits"
    factors = {factor: tuple(REGIONS[factor]) for factor in FACTORS}  # noqa: RUF012
    columns = pa.schema(
        [
            *(
                (name, pa.float64())
                for factor in _BY_NUMBERS
                for name in REALIZATION_COLUMNS[factor]
            ),
            ("digit", pa.int32()),
            ("crop_row", pa.int16()),
            ("crop_column", pa.int16()),
        ]
    )
    realized_by = REALIZATION_COLUMNS
    spreads = tuple(SPREAD_COLUMNS)
    draws_on_gpu = True
    typical = {  # noqa: RUF012
        "position": "center-center",
        "hue": "blue",
        "lightness": "brighter",
        "scale": "large",
        "shape": "5",
        "texture": "wood",
    }

    @cached_property
    def sources(self) -> list[Source]:
        return read_sources(definition_path("sources.yaml"))

    @cached_property
    def published_samples(self) -> list[dict]:
        return read_published_samples(definition_path("dataset_samples.yaml"))

    def licences(self, sources):
        from diagvib.scenes.digits.embedded import LICENCES

        return LICENCES if sources == "embedded" else super().licences(sources)

    def prepare(self, raw, prepared, sources):
        from diagvib.scenes.digits.prepare import prepare

        prepare(self.sources if sources == "official" else [], raw, prepared, sources)

    def catalogue(self, prepared):
        from diagvib.scenes.digits.prepare import load_catalogue

        return load_catalogue(prepared)

    def realize(self, classes, split, catalogue, generator):
        columns: dict[str, np.ndarray] = {}
        for factor in _BY_NUMBERS:
            index = [self.factors[factor].index(name) for name in classes[factor]]
            values = draw_realizations(factor, np.array(index, dtype=int), generator)
            columns |= dict(zip(REALIZATION_COLUMNS[factor], values.T, strict=True))
        instance = np.empty(len(classes["shape"]), dtype=np.int64)
        for shape in np.unique(classes["shape"].astype(str)):
            rows = np.flatnonzero(classes["shape"] == shape)
            candidates = (catalogue.split == split) & (catalogue.label == int(shape))
            instance[rows] = generator.choice(np.flatnonzero(candidates), len(rows))
        # 0 to 215, as in the published generator; 216 would fit too.
        crops = generator.integers(0, TEXTURE_SIZE - DIGIT_SIZE, (2, len(instance)))
        return columns | {"digit": instance, "crop_row": crops[0], "crop_column": crops[1]}

    def narrow(
        self,
        columns: Mapping[str, np.ndarray],
        factor: str,
        class_names: Sequence[str],
        spread: float,
    ) -> dict[str, np.ndarray]:
        names = SPREAD_COLUMNS[factor]
        values = np.stack([columns[name] for name in names], 1)
        moved = narrowed(factor, class_names, values, spread)
        return {**columns, **dict(zip(names, moved.T, strict=True))}

    def renderer(self, prepared, size, device):
        from diagvib.scenes.digits.prepare import load_pixels
        from diagvib.scenes.digits.renderer import Renderer

        textures = self.factors["texture"]
        return RecipeRenderer(Renderer(*load_pixels(prepared, textures), device, size), textures)

    def object_boxes(self, recipes: pa.Table, size: int) -> np.ndarray:
        """The square that a digit is drawn in, including its margin, as far as it is inside the
        image."""
        import torch

        from diagvib.scenes.digits.renderer import placement

        realizations = {name: torch.from_numpy(v) for name, v in _realizations(recipes).items()}
        side, corner = placement(realizations["position"], realizations["scale"][:, 0], size)
        return torch.cat([corner, corner + side[:, None]], 1).clamp(0, size).numpy()

    def region(self, factor: str, recipes: pa.Table, pixels: np.ndarray) -> np.ndarray:
        """The digit; for its position, the box around it."""
        if factor == "position":
            size = pixels.shape[1]
            return within(self.object_boxes(recipes, size), np.arange(size))
        return (pixels != CANVAS).any(-1)


_PublishedSample = create_model(
    "PublishedSample",
    __base__=Strict,
    added_cue=(AddedCue, ...),
    **{
        factor: Annotated[
            Distinct[Literal[tuple(REGIONS[factor])]], Field(min_length=3, max_length=3)
        ]
        for factor in FACTORS
    },
)


def read_published_samples(path: Path) -> list[dict]:
    """Dataset samples from a file: three classes of each factor, and the cue class added to each
    target class.

    DiagvibError, naming file, entry and key, for any error in them.
    """
    entries = read_valid(Filled[list[_PublishedSample]], path)
    return [entry.model_dump() for entry in entries]


class RecipeRenderer:
    """A scene's renderer based on the batched renderer of digits."""

    def __init__(
        self, renderer: BatchedRenderer, textures: Sequence[str] = tuple(REGIONS["texture"])
    ):
        self._render, self.size, self.device = renderer.render, renderer.size, renderer.device
        self._textures = {name: number for number, name in enumerate(textures)}

    def __call__(self, recipes: pa.Table) -> torch.Tensor:
        realizations = _realizations(recipes)
        return self._render(
            digit=realizations["shape"][:, 0],
            texture=np.array(
                [self._textures[name] for name in recipes["texture"].to_pylist()], int
            ),
            crop=realizations["texture"],
            hue=realizations["hue"][:, 0],
            lightness=realizations["lightness"],
            position=realizations["position"],
            scale=realizations["scale"][:, 0],
        )


def _realizations(recipes: pa.Table) -> dict[str, np.ndarray]:
    """Factor -> its values, [N, K], in the order of REALIZATION_COLUMNS."""
    return {
        factor: np.stack([recipes[name].to_numpy() for name in names], 1)
        for factor, names in REALIZATION_COLUMNS.items()
    }
