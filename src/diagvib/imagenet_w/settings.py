"""What to measure on ImageNet-W: `config/imagenet_w*.yaml`, or the options of the command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from diagvib.foundation.validation import Misplaced, Strict, text_like, unique
from diagvib.imagenet_w.views import METHODS
from diagvib.settings.configuration import Root

_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Model(Strict):
    """A classifier. weights: a published name (default: torchvision's first), an installed package
    with weights, or your own .pt or .pth file; size: image size for your own models."""

    name: text_like(
        r"(timm/)?[\w.-]+|\w+(\.\w+)*:\w+",
        "a torchvision classifier, timm/NAME, small_cnn, or your "
        "own as package.module:function is needed",
    )
    weights: Annotated[str, Field(min_length=1)] | None = None
    size: Annotated[int, Field(ge=16, le=2048)] = 224

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value):
        return {"name": value} if isinstance(value, str) else value

    @property
    def folder(self) -> str:
        """The name of its results folder."""
        weights = Path(self.weights).name if self.weights else None
        return re.sub(r"[^\w.-]+", "-", f"{self.name}-{weights}" if weights else self.name)


class Folders(Strict):
    """Folders in ImageNet's layout; null for none. train is needed to train last layers; val may
    also be a folder of any photos."""

    val: str
    train: str | None = None
    sin: str | None = None
    in_r: str | None = None
    in_9: str | None = None


class StandIns(Strict):
    """Photos drawn by code: how many of each class, the image size for the network, the share of
    training cartons with the watermark, and how many epochs a small network is trained on them."""

    train: Annotated[int, Field(ge=4, le=10_000)]
    val: Annotated[int, Field(ge=2, le=10_000)]
    size: Annotated[int, Field(ge=32, le=224)] = 64
    watermarked: Annotated[float, Field(ge=0, le=1)] = 0.7
    epochs: _Count = 10


class LastLayer(Strict):
    """How last layers are retrained. learning_rates are for batches of 256 images, and scale with
    batch_size."""

    model: Model
    methods: unique(Literal[tuple(METHODS)])
    epochs: _Count = 90
    batch_size: Annotated[int, Field(ge=2, le=65536)] = 1024
    learning_rates: unique(Annotated[float, Field(gt=0, le=1000)]) = Field([1e-2, 1e-3, 1e-4])
    seed: Annotated[int, Field(ge=0)] = 0


class Configuration(Strict):
    """A configuration. Its files are in `root`."""

    root: Root
    photos: Folders | None = None
    stand_ins: StandIns | None = None
    font: str | None = None
    weights_folder: str | None = None
    models: Annotated[list[Model], Field(min_length=1)]
    last_layer: LastLayer | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] = 2

    @model_validator(mode="after")
    def _of_one_kind(self) -> Configuration:
        if (self.photos is None) == (self.stand_ins is None):
            raise Misplaced(
                "photos", "give either photos, your own folders, or stand_ins, drawn by code"
            )
        if self.last_layer and self.photos and not self.photos.train:
            raise Misplaced(
                "photos.train",
                "last_layer needs training photos; name their folder, or leave it out",
            )
        folders = [model.folder for model in self.models]
        if len(set(folders)) < len(folders):
            raise Misplaced("models", "a model is listed twice with the same weights; list it once")
        return self
