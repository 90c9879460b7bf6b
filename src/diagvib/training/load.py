"""The images of a run, loaded as batches."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from diagvib.foundation.errors import DiagvibError
from diagvib.images.counterfactuals import SceneCounterfactuals
from diagvib.images.datasets import Datasets
from diagvib.images.features import FeatureFiles
from diagvib.images.files import Images
from diagvib.methods.method import Method
from diagvib.methods.registry import declaration
from diagvib.settings.layout import Run
from diagvib.studies.study import SPLITS
from diagvib.training.accuracy import group_metrics
from diagvib.training.augmentation import augmentation
from diagvib.training.batches import IMAGENET, Annotations, Batches, Scaling
from diagvib.training.job import Job
from diagvib.training.prediction import class_names, predict
from diagvib.training.trainer import Tracker

# Metadata that the three files of a dataset must have in common.
_SHARED = (
    "roles",
    "scene",
    "sources",
    "comparable",
    "sources_digest",
    "image_shape",
)


def dataset_metadata(datasets: Datasets, run: Run) -> dict[str, dict]:
    """Each split's metadata. DiagvibError, naming the file, if the three are not from one dataset,
    or are from another one than the run's."""
    split_metadata = {split: datasets.metadata(run.dataset, split) for split in SPLITS}
    identity = {"study": run.study, "binding": run.binding, "sample": run.dataset}
    for split, metadata in split_metadata.items():
        expected = (
            {key: split_metadata["train"].get(key) for key in _SHARED} | identity | {"split": split}
        )
        for key, value in expected.items():
            if metadata.get(key) != value:
                path = datasets.path(run.dataset, split)
                raise DiagvibError(
                    f"{path}: {key} is {metadata.get(key)!r}, not {value!r}; delete {path.parent} "
                    "and render again"
                )
    return split_metadata


@dataclass(frozen=True)
class Loaded:
    """A dataset in memory. tracker: of the test images, which it keeps, if the protocol tracks
    them."""

    train: Batches
    val: Batches
    tracker: Tracker | None


def load(job: Job, run: Run) -> Loaded:
    """The images that a run learns from."""
    train = load_batches(job, run, "train")
    if isinstance(job.datasets, FeatureFiles):
        train.views = job.datasets.views(run.dataset)
    val = load_batches(job, run, "val", train)
    if not job.protocol.track_test:
        return Loaded(train, val, None)
    test, batches = load_test(job, run, train.scaling)

    def track(method: Method) -> dict:
        """Accuracies on the test groups, as `{group}_accuracy`."""
        prediction, _ = predict(method, batches, job.protocol, run.name)
        groups = group_metrics(test.table, run.target, class_names(test, run.target, prediction))
        return {f"{group}_accuracy": metrics["accuracy"] for group, metrics in groups.items()}

    return Loaded(train, val, track)


def load_test(job: Job, run: Run, scaling: Scaling) -> tuple[Images, Batches]:
    """The test images, and the same as batches, scaled as the training images."""
    test = job.datasets.load(run.dataset, "test")
    return test, Batches(test.pixels, test.labels(run.target), job.device, scaling)


def load_batches(job: Job, run: Run, split: str, like: Batches | None = None) -> Batches:
    """A split's images on the device, with their cues and environments.

    like: the training batches, for the other splits: these have the same scaling, no random
    changes, and environments numbered as there, with -1 for those that are not among them.
    """
    images = job.datasets.load(run.dataset, split)
    table = images.table
    has_environments = "environment" in table.column_names
    column = table["environment"].to_pylist() if has_environments else ["main"] * len(table)
    names = like.annotations.environments if like else tuple(sorted(set(column)))
    cues = [images.labels(factor) for factor in run.cues]
    annotations = Annotations(
        torch.stack(cues, 1) if cues else None,
        torch.tensor(pd.Index(names).get_indexer(column)),
        images.factors[run.target],
        {factor: images.factors[factor] for factor in run.cues},
        names,
        _cue_label(images, run),
    )
    content = images.pixels, images.labels(run.target), job.device
    if like:
        return Batches(*content, like.scaling, annotations)
    needs = declaration(job.settings["method"]["name"]).needs
    return Batches(
        *content,
        IMAGENET if job.settings["normalise"] == "imagenet" else None,
        annotations,
        SceneCounterfactuals(images, run.cues, job.prepared, job.device) if needs else None,
        augmentation(job.settings.get("augment") or ()),
    )


def _cue_label(images: Images, run: Run) -> torch.Tensor | None:
    """The target class that each cue of each image points to, int64[N, k]; None without cues, and
    for images that do not say."""
    labels, classes = images.metadata.get("speaks_for"), pd.Index(images.factors[run.target])
    if not run.cues or labels is None:
        return None
    label_columns = (images.table[cue].to_pandas().map(labels[cue]) for cue in run.cues)
    return torch.tensor(np.stack([classes.get_indexer(column) for column in label_columns], 1))
