"""Retrains last layers on stored features (Li et al., 2023, Table 4): one method, several learning
rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_table, write_json
from diagvib.foundation.seeding import named_generator
from diagvib.imagenet_w.classifiers import Classifier
from diagvib.imagenet_w.evaluation import digest_of, in_parts, versions, write_views
from diagvib.imagenet_w.photo_sets import CLEAN as VALIDATION
from diagvib.imagenet_w.photo_sets import PhotoSet, answer_table, answers, measure
from diagvib.imagenet_w.photos import Photos
from diagvib.imagenet_w.settings import LastLayer
from diagvib.imagenet_w.views import CLEAN, METHODS, OfViews, view_inputs
from diagvib.imagenet_w.watermark import Font
from diagvib.methods.method import Method
from diagvib.methods.registry import make_baseline
from diagvib.settings.grid import make_run
from diagvib.training.batches import Annotations, Batches
from diagvib.training.callbacks import Callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer


@dataclass(frozen=True)
class Stored:
    """Features in `folder`: train/{view}.npy and sets/{name}.npy. sets: what to measure on; head:
    the network's own last layer, from which every method starts; threads: of the CPU."""

    folder: Path
    sets: Sequence[PhotoSet]
    head: dict[str, Tensor]
    device: torch.device
    threads: int

    def batches(self, name: str) -> Batches:
        path = self.folder / f"{name}.npy"
        labels = read_table(path.with_suffix(".parquet"))["label"].to_numpy()
        known = Annotations(classes=self.sets[0].photos.classes)
        return Batches(self.view(name), torch.tensor(labels), self.device, annotations=known)

    def view(self, name: str) -> Tensor:
        return torch.from_numpy(np.load(self.folder / f"{name}.npy", mmap_mode="c"))

    def digests(self, views: Sequence[str]) -> list[str]:
        sets = [f"sets/{name}" for one in self.sets for name in one.names]
        names = [*(f"train/{view}" for view in (CLEAN, *views)), *sets]
        return [read_json(self.folder / f"{name}.json")["sha256"] for name in names]


def store_features(
    classifier: Classifier,
    photos: Photos,
    sets: Sequence[PhotoSet],
    views: Sequence[str],
    font: Font,
    seed: int,
    folder: Path,
    threads: int,
) -> Stored:
    """Write the features of the training photos in each view, in one random order, and of the
    photos of all sets; what is there already is kept."""
    head = classifier.network.head
    if not isinstance(head, nn.Linear):
        raise DiagvibError(
            "last_layer.model: this model does not end in a linear layer on features; choose another, "
            "such as resnet50"
        )
    order = named_generator("imagenet_w", "order", seed).permutation(len(photos))

    def of_views(
        pixels: Tensor, labels: Tensor, number: int, wanted: list[str]
    ) -> dict[str, Tensor]:
        found = {}
        for view in wanted:
            inputs, share = view_inputs(view, pixels, number, classifier.preprocessing, font)
            columns = [] if share is None else [share[:, None], labels.roll(1)[:, None].to(share)]
            found[view] = torch.cat([in_parts(classifier.network.features, inputs), *columns], 1)
        return found

    def of_set(chosen: PhotoSet):
        def made(
            pixels: Tensor, labels: Tensor, number: int, wanted: list[str]
        ) -> dict[str, Tensor]:
            shown = versions(chosen, pixels, font)
            inputs = classifier.preprocessing.inputs
            return {
                name: in_parts(classifier.network.features, inputs(shown[name])) for name in wanted
            }

        return made

    jobs = [(photos, order, "train", [CLEAN, *views], of_views, {"seed": seed})] + [
        (one.photos, np.arange(len(one.photos)), "sets", one.names, of_set(one), {}) for one in sets
    ]
    for source, rows, top, names, made, about in jobs:
        paths = {name: folder / top / f"{name}.npy" for name in names}
        about = {"font": font.name, **about}
        write_views(classifier, source, rows, paths, made, "float16", about, threads)
    bias = torch.zeros(head.out_features) if head.bias is None else head.bias
    own = {"weight": head.weight.detach().cpu(), "bias": bias.detach().cpu()}
    return Stored(folder, sets, own, classifier.device, threads)


def train_last_layer(method: str, recipe: LastLayer, stored: Stored, work: Path) -> dict:
    """The measures of a method's last layer, at the learning rate with the highest validation
    accuracy (the first, if several are equal).

    The measures of each learning rate are kept in `work`, and its last epoch during training.
    """
    tried = [_try(method, lr, recipe, stored, work) for lr in recipe.learning_rates]
    return {
        **max(tried, key=lambda one: one["in1k_accuracy"]),
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "accuracies": {f"{one['learning_rate']:g}": one["in1k_accuracy"] for one in tried},
    }


def _try(method: str, lr: float, recipe: LastLayer, stored: Stored, work: Path) -> dict:
    how, views = METHODS[method]
    settings = {
        "model": {"name": "linear", "options": {"features": stored.head["weight"].shape[1]}},
        "method": how,
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
    about = {
        "settings": settings,
        "seed": recipe.seed,
        "threads": stored.threads,
        "device": stored.device.type,
        "features": stored.digests(views),
        "head": {name: value.sum().item() for name, value in stored.head.items()},
        "sets": [one.describe() for one in stored.sets],
    }
    digest, file = digest_of(about, "linear", how["name"]), work / f"{lr:g}.json"
    if file.exists() and (found := read_json(file)).pop("digest", None) == digest:
        return found
    checkpoint = Checkpoint(work / f"{lr:g}.ckpt", digest)
    trained = _fit(settings, views, recipe, stored, checkpoint)
    found = {"method": method, "learning_rate": lr, **_measured(trained, stored)}
    write_json(file, {**found, "digest": digest})
    checkpoint.remove()
    return found


def _fit(
    settings: dict, views: Sequence[str], recipe: LastLayer, stored: Stored, checkpoint: Checkpoint
) -> Method:
    train, val = stored.batches(f"train/{CLEAN}"), stored.batches(f"sets/{VALIDATION}")
    if recipe.batch_size > len(train):
        raise DiagvibError(
            f"last_layer.batch_size: {recipe.batch_size} is more than the {len(train)} training photos; "
            "lower it"
        )
    method = make_baseline(settings, len(stored.sets[0].photos.classes), 0, recipe.seed)
    method.model.head.load_state_dict(stored.head)
    if isinstance(method, OfViews):
        method.seen = {view: stored.view(f"train/{view}") for view in views}
    run = make_run(settings["method"]["name"], "imagenet_w", "last-layer", 0)
    protocol = Protocol(recipe.epochs, None, recipe.seed, "fp32", stored.threads)
    trainer = Trainer(method, train, val, run, protocol)
    trainer.fit(checkpoint, CosineDecay(trainer))
    return trainer.method


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


@torch.inference_mode()
def _measured(method: Method, stored: Stored) -> Mapping:
    """The measures of a trained last layer on every set."""
    found = {}
    method.eval()
    for chosen in stored.sets:
        batches = {name: stored.batches(f"sets/{name}") for name in chosen.names}
        logits = {
            name: torch.cat([method.predict(batch).float().cpu() for batch in each.in_order()])
            for name, each in batches.items()
        }
        for name, values in answers(logits, chosen).items():
            found[name] = answer_table(values.numpy(), batches[name].labels.cpu().numpy())
    return {
        **measure(found, stored.sets[0].carton),
        "photos": {name: len(table) for name, table in found.items()},
    }
