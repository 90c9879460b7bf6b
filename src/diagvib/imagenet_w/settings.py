"""The configuration of the ImageNet-W workflow, `config/imagenet_w*.yaml`: read, validated, and
split by stage.

It has no studies, bindings or baselines, hence a separate schema instead of keys that the main one
would have to refuse. Does not import torch, so that planning stays quick.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import read_yaml
from diagvib.foundation.validation import Misplaced, Strict, text_like, unique, validated
from diagvib.imagenet_w.last_layer_methods import METHODS, variants
from diagvib.settings.config import check_root
from diagvib.settings.configuration import Root

_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Rate = Annotated[float, Field(gt=0, le=1000)]
_ModelName = text_like(
    r"(timm/)?[\w.-]+|\w+(\.\w+)*:\w+",
    "a torchvision classifier, timm/NAME, small_cnn, or your "
    "own as package.module:function is needed",
)


class Model(Strict):
    """A classifier. weights: a published name (default: torchvision's first), or your own .pt or
    .pth file; size: image size for your own models."""

    name: _ModelName
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


class Photos(Strict):
    """Folders in ImageNet's layout; null for none. train is needed to train last layers."""

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
    learning_rates: unique(_Rate) = Field([1e-2, 1e-3, 1e-4])
    seed: Annotated[int, Field(ge=0)] = 0


class Configuration(Strict):
    """A configuration of the ImageNet-W workflow."""

    root: Root
    photos: Photos | None = None
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


STAGES = ("stand_ins", "evaluate", "features", "last_layer", "compare")


def resolve(config: object, where: str) -> dict:
    """A configuration validated and filled in. DiagvibError naming `where` and the key of the first
    problem."""
    found = validated(Configuration, config, where).model_dump()
    check_root(found["root"], where)
    if found["stand_ins"]:
        drawn = Layout(Path(found["root"])).photos
        found["photos"] = {
            "train": str(drawn / "train"),
            **{name: str(drawn / name) for name in ("val", "sin", "in_r", "in_9")},
        }
    return found


def load_config(path: str | Path) -> dict:
    return resolve(read_yaml(path), str(path))


def models(config: Mapping) -> dict[str, dict]:
    """Folder of results -> the model."""
    return {Model(**model).folder: model for model in config["models"]}


def stage_settings(config: Mapping, stage: str, name: str | None = None) -> dict:
    """What one job of a stage depends on, as plain data. name: of the model's folder, or of the
    method."""
    layer, settings = config["last_layer"] or {}, {"font": config["font"]}
    sets = {key: value for key, value in config["photos"].items() if key != "train"}
    if stage in ("features", "last_layer") and not layer:
        raise DiagvibError(
            f"{stage}: the configuration trains no last layer; add last_layer with model and methods"
        )
    if stage == "evaluate":
        settings |= {"photos": sets, "model": _chosen(models(config), name, stage, "model")}
    elif stage == "features":
        settings |= {
            "photos": config["photos"],
            "model": layer["model"],
            "seed": layer["seed"],
            "variants": variants(layer["methods"]),
        }
    elif stage == "last_layer":
        _chosen({method: method for method in layer["methods"]}, name, stage, "method")
        settings |= {
            "photos": config["photos"],
            "threads": config["threads"],
            "model": layer["model"],
            **{key: layer[key] for key in ("epochs", "batch_size", "learning_rates", "seed")},
        }
    elif stage == "compare":
        settings |= {
            "models": list(models(config)),
            "methods": layer.get("methods", []),
            "stand_ins": bool(config["stand_ins"]),
        }
    else:
        settings |= {"stand_ins": config["stand_ins"], "threads": config["threads"]}
    return json.loads(json.dumps(settings, sort_keys=True))


def read_settings(text: str, stage: str) -> dict:
    """A job's settings from JSON, as `stage_settings` gives them."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DiagvibError(f"--settings: not valid JSON: {one_line(error)}") from None
    if not isinstance(found, dict) or "font" not in found:
        raise DiagvibError(f"--settings: must be a JSON object with the settings of stage {stage}")
    return found


def _chosen(known: Mapping, name: str | None, stage: str, kind: str):
    if name is None:
        raise DiagvibError(f"{stage} needs a {kind}: {', '.join(known)}")
    if name not in known:
        raise unknown_name(kind, str(name), known, "the configuration")
    return known[name]


@dataclass(frozen=True)
class Layout:
    """Where all files of a configuration are."""

    root: Path

    @property
    def photos(self) -> Path:
        """The stand-ins."""
        return self.root / "data" / "photos"

    @property
    def small_net(self) -> Path:
        return self.root / "data" / "small_net.pt"

    @property
    def features(self) -> Path:
        return self.root / "data" / "features"

    @property
    def tables(self) -> Path:
        return self.root / "results" / "tables"

    def answers(self, model: str) -> Path:
        """A model's predictions for every photo: {set}.parquet."""
        return self.root / "data" / "answers" / model

    def model(self, name: str) -> Path:
        return self.root / "results" / "models" / f"{name}.json"

    def method(self, name: str) -> Path:
        return self.root / "results" / "last_layer" / f"{name}.json"

    def work(self, method: str) -> Path:
        """The results of a method's learning rates so far."""
        return self.root / "data" / "last_layer" / method


TABLE_FILES = [
    f"{name}.{kind}" for name in ("models", "last_layer") for kind in ("csv", "json", "md")
]
