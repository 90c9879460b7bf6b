"""A method with a baseline's settings, trained on a run's images."""

from pathlib import Path

import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Method
from diagvib.methods.registry import make_baseline
from diagvib.models.registry import make_network
from diagvib.models.weights import located
from diagvib.settings.frozen_networks import is_frozen
from diagvib.settings.layout import Run
from diagvib.training.batches import Batches
from diagvib.training.callbacks import training_callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.job import Job
from diagvib.training.load import Loaded
from diagvib.training.trainer import Fitted, Trainer


def fit(
    job: Job,
    run: Run,
    data: Loaded,
    checkpoint: Checkpoint,
    name: str,
    curves: Path | None = None,
) -> tuple[Method, Fitted]:
    """Make a method with the job's settings, and train it. name: for the progress bar."""
    side = job.datasets.metadata(run.dataset, "train")["image_shape"][0]
    method = make_method(job.settings, data.train, job.protocol.seed, job.weights, side)
    if job.present_code(run) != job.code:
        raise DiagvibError(
            f"{run.name}: the code changed while it was loaded; run the same command again"
        )
    with training_callback(name, curves) as callback:
        trainer = Trainer(method, data.train, data.val, run, job.protocol)
        return method, trainer.fit(checkpoint, callback, data.tracker)


def make_method(
    settings: dict, train: Batches, seed: int, weights: Path | None, side: int = 0
) -> Method:
    """A baseline's method for these training images; with a frozen network, its head for these
    features. weights: as in `Job`. side: of the images before encoding, in pixels; only a published
    head needs it. DiagvibError for one that is not linear, or has other classes."""
    if is_frozen(settings):
        head, size = settings["model"].get("head"), 0
        options = {"features": train.pixels.shape[1], **(head if isinstance(head, dict) else {})}
        model = {"name": "linear", "options": options}
    else:
        head, model, size = None, located(settings["model"], weights), train.pixels.shape[1]
    classes = len(train.annotations.classes)
    method = make_baseline({**settings, "model": model}, classes, size, seed)
    if head == "published":
        # A classifier of words chooses among the classes that there are images of.
        trained = set(train.labels.tolist())
        names = [name * (k in trained) for k, name in enumerate(train.annotations.classes)]
        model = {**settings["model"], "classes": names}
        size = (model.get("input") or {}).get("size") or side
        last_layer = make_network(located(model, weights), classes, size).head
        if not isinstance(last_layer, torch.nn.Linear) or last_layer.out_features != classes:
            raise DiagvibError(
                f"model: {model['name']} does not end in a linear layer for {classes:,} classes, "
                "which head: published needs; choose head: linear"
            )
        method.model.head.load_state_dict({"bias": torch.zeros(classes), **last_layer.state_dict()})
    return method
