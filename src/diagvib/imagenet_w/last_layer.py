"""Retrains a last layer on kept features (Li et al., 2023, Table 4): one method, several learning
rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json
from diagvib.imagenet_w.augmentations import CLEAN
from diagvib.imagenet_w.cached_methods import OfViews, View
from diagvib.imagenet_w.evaluation import digest_of
from diagvib.imagenet_w.features import Features, digest_at, read_features
from diagvib.imagenet_w.last_layer_methods import METHODS
from diagvib.imagenet_w.measures import measure
from diagvib.imagenet_w.photo_sets import CARTON, PhotoSet, answers
from diagvib.imagenet_w.photo_sets import CLEAN as VALIDATION
from diagvib.methods.method import Batch, Method
from diagvib.methods.registry import make_baseline
from diagvib.settings.grid import make_run
from diagvib.training.batches import Annotations, Batches, Scaling
from diagvib.training.callbacks import Callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer

_TOGETHER = 4096
HEAD = "head.pt"


@dataclass(frozen=True)
class Recipe:
    """How last layers are trained. learning_rates: for batches of 256 images; scaled with
    batch_size."""

    epochs: int
    batch_size: int
    learning_rates: Sequence[float]
    seed: int
    threads: int


@dataclass(frozen=True)
class Kept:
    """Where features are: `train`/{variant}, `sets`/{set}, and the network's own last layer next to
    them. train_labels, int64[N]: of all training photos, by row; sets: what to measure on."""

    folder: Path
    train_labels: np.ndarray
    sets: Sequence[PhotoSet]

    def variant(self, name: str) -> Path:
        return self.folder / "train" / name


def train_last_layer(
    method: str, recipe: Recipe, kept: Kept, work: Path, device: torch.device
) -> dict:
    """The measures of a method's last layer, at the learning rate with the highest validation
    accuracy (the first, if several are equal).

    The measures of each learning rate are kept in `work`, and its last epoch during training.
    """
    tried = [_try(method, lr, recipe, kept, work, device) for lr in recipe.learning_rates]
    best = max(tried, key=lambda one: one["in1k_accuracy"])
    return {
        **best,
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "accuracies": {f"{one['learning_rate']:g}": one["in1k_accuracy"] for one in tried},
    }


def _try(
    method: str, lr: float, recipe: Recipe, kept: Kept, work: Path, device: torch.device
) -> dict:
    entry = METHODS[method]
    settings = {
        "model": {"name": "linear", "options": {"features": _width(kept)}},
        "method": entry.settings,
        "optimiser": {
            "name": "sgd",
            "lr": lr * recipe.batch_size / 256,
            "momentum": 0.9,
            "weight_decay": 1e-4,
        },
        "batch_size": recipe.batch_size,
        "drop_last": False,
        "selection": "last",
        "max_epochs": recipe.epochs,
    }
    digest = digest_of(
        {
            "settings": settings,
            "seed": recipe.seed,
            "threads": recipe.threads,
            "device": device.type,
            "features": [digest_at(kept.variant(name)) for name in (CLEAN, *entry.variants)],
            "sets": [
                digest_at(kept.folder / "sets" / name) for each in kept.sets for name in each.names
            ],
        },
        __name__,
        "linear",
        entry.settings["name"],
    )
    file = work / f"{lr:g}.json"
    if file.exists() and (found := read_json(file)).pop("digest", None) == digest:
        return found
    checkpoint = Checkpoint(work / f"{lr:g}.ckpt", digest)
    trained = _fit(method, settings, recipe, kept, checkpoint, device)
    found = {"method": method, "learning_rate": lr, **_measured(trained, kept, device)}
    write_json(file, {**found, "digest": digest})
    checkpoint.remove()
    return found


def _fit(
    name: str,
    settings: dict,
    recipe: Recipe,
    kept: Kept,
    checkpoint: Checkpoint,
    device: torch.device,
) -> Method:
    clean = read_features(kept.variant(CLEAN))
    train = _batches(clean, kept.train_labels, kept.sets[0].photos.classes, device)
    photos = kept.sets[0].photos
    val = _batches(
        read_features(kept.folder / "sets" / VALIDATION), photos.labels, photos.classes, device
    )
    if recipe.batch_size > len(train):
        raise DiagvibError(
            f"last_layer.batch_size: {recipe.batch_size} is more than the {len(train)} training photos; "
            "lower it"
        )
    method = make_baseline(settings, len(photos.classes), 0, recipe.seed)
    method.model.head.load_state_dict(torch.load(kept.folder / HEAD, weights_only=True))
    if isinstance(method, OfViews):
        method.seen = {
            variant: _view(kept.variant(variant), clean, device)
            for variant in METHODS[name].variants
        }
    run = make_run(name, "imagenet_w", "last-layer", 0)
    trainer = Trainer(
        method, train, val, run, Protocol(recipe.epochs, None, recipe.seed, "fp32", recipe.threads)
    )
    trainer.fit(checkpoint, CosineDecay(trainer))
    return trainer.method


def save_head(head: nn.Module, path: Path) -> None:
    """Save a network's own last layer, from which every method starts."""
    if not isinstance(head, nn.Linear):
        raise DiagvibError(
            "last_layer.model: this model does not end in a linear layer on features; choose another, "
            "such as resnet50"
        )
    bias = torch.zeros(head.out_features) if head.bias is None else head.bias.detach().cpu()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"weight": head.weight.detach().cpu(), "bias": bias}, path)


class FeatureBatches(Batches):
    """Features as batches: `pixels` and inputs are vectors, float[B, D]."""

    def inputs(self, pixels: Tensor) -> Tensor:
        return pixels.float()

    def batch(self, index: Tensor) -> Batch:
        index = index.to(self.pixels.device)
        return self._batch(self.pixels[index].to(self.device), index.to(self.device))

    def in_order(self) -> Iterator[Batch]:
        for start in range(0, len(self), _TOGETHER):
            at = slice(start, start + _TOGETHER)
            yield self._batch(self.pixels[at].to(self.device), at)


class CosineDecay(Callback):
    """After every epoch the learning rate falls along half a cosine, from the baseline's to 0 at
    the phase's end. That of eiil's reference model is not scaled with batch_size."""

    def __init__(self, trainer: Trainer):
        self._trainer = trainer

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        self._set()

    def on_epoch(self, row: dict) -> None:
        self._set()

    def _set(self) -> None:
        trainer = self._trainer
        done = trainer.progress.epochs_in_phase / (
            trainer.phase.max_epochs or trainer.protocol.max_epochs
        )
        lr = trainer.method.settings["optimiser"]["lr"] * 0.5 * (1 + math.cos(math.pi * done))
        if trainer.phase.name == "reference":
            lr *= 256 / trainer.batch_size
        for optimiser in trainer.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = lr


def _width(kept: Kept) -> int:
    return read_features(kept.variant(CLEAN)).values.shape[1]


def _batches(
    features: Features, labels: np.ndarray, classes: Sequence[str], device: torch.device
) -> FeatureBatches:
    return FeatureBatches(
        torch.from_numpy(features.values),
        torch.from_numpy(labels[features.rows]),
        device,
        Scaling((0.0,), (1.0,)),
        Annotations(classes=tuple(classes)),
    )  # not scaled


def _view(folder: Path, clean: Features, device: torch.device) -> View:
    features = read_features(folder)
    if not np.array_equal(features.rows, clean.rows):
        raise DiagvibError(
            f"{folder}: has other photos than {folder.parent / CLEAN}; delete {folder.parent} and make "
            "the features again"
        )
    unlabelled = np.zeros(features.rows.max() + 1, np.int64)
    return View(
        _batches(features, unlabelled, (), device).pixels,
        torch.from_numpy(features.share).to(device),
        device,
    )


@torch.inference_mode()
def _measured(method: Method, kept: Kept, device: torch.device) -> Mapping:
    """The measures of a trained last layer on every set."""
    found = {}
    method.eval()
    for chosen in kept.sets:
        for name in chosen.names:
            features = read_features(kept.folder / "sets" / name)
            batches = _batches(features, chosen.photos.labels, (), device)
            logits = torch.cat(
                [method.predict(batch).float().cpu() for batch in batches.in_order()]
            )
            found[name] = answers(logits, np.asarray(features.rows), chosen)
    return {
        **measure(found, kept.sets[0].photos.classes.index(CARTON)),
        "photos": {name: len(table) for name, table in found.items()},
    }
