"""The train stage: image files in, run folders out. One call trains the dataset samples of one
(study, binding)."""

import json
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from diagvib.foundation.devices import machine
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_json, write_table, write_text
from diagvib.foundation.messages import say
from diagvib.foundation.plug_ins import out_of_memory
from diagvib.images.counterfactuals import SceneCounterfactuals
from diagvib.images.datasets import Datasets
from diagvib.images.features import FeatureFiles
from diagvib.images.files import Images
from diagvib.methods.method import Method, Unlabelled
from diagvib.methods.registry import declaration, make_baseline
from diagvib.models.registry import make_network
from diagvib.models.weights import located
from diagvib.provenance.code import code_for, git_state, package_versions
from diagvib.provenance.finished import (
    RUN_RECORD,
    digest_of_images,
    file_digests,
    is_finished,
    other_versions,
    run_provenance,
)
from diagvib.scenes import load_scene
from diagvib.settings.baselines import is_frozen
from diagvib.settings.layout import WEIGHTS_FILE, Run
from diagvib.studies.scarcity import absent_combinations
from diagvib.studies.study import SPLITS
from diagvib.training.accuracy import per_class_accuracy
from diagvib.training.answers import answers
from diagvib.training.augmentation import augmentation
from diagvib.training.batches import IMAGENET, Annotations, Batches, Scaling
from diagvib.training.callbacks import summary_writer, training_callback
from diagvib.training.checkpoints import Checkpoint, digest, save_tensors
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol, deterministic
from diagvib.training.saliency import shares
from diagvib.training.selection_rules import INFERRED
from diagvib.training.trainer import Fitted, Tracker, Trainer
from diagvib.training.visualisations import SALIENCY_IMAGES, shown_images, write_visualisations

# With fewer images of a group, the standard error of its accuracy may exceed 9 points.
_FEW_IMAGES = 30
_MOST_NAMES = 5  # combinations of classes that are named
# Metadata that the three files of a dataset must have in common.
_SHARED = (
    "roles",
    "scene",
    "sources",
    "comparable",
    "sources_digest",
    "image_shape",
)


@dataclass(frozen=True)
class Folders:
    """Where the runs of one call are written: `runs`/{sample}. checkpoints: of unfinished runs; a
    killed job continues from there, and a successful one leaves nothing. curves: folder of
    TensorBoard files, `curves`/{sample}, if they are wanted."""

    runs: Path
    checkpoints: Path
    curves: Path | None = None


@dataclass(frozen=True)
class Job:
    """How all runs of one call are trained. settings: the baseline's, as `load_settings` gives
    them. datasets: the source of the images, if it is already known. keep_weights: also store the
    selected weights with each run, as a state dict. prepared: the scene's prepared sources, for
    methods that render. weights: a folder that may contain published weights. code, versions:
    digest of the code that trains them, and the versions of packages, both found when training
    starts."""

    settings: dict
    protocol: Protocol
    device: torch.device
    datasets: Datasets | None = None
    keep_weights: bool = False
    prepared: Path | None = None
    weights: Path | None = None
    code: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def present_code(self, run: Run) -> str:
        """The digest of the code that trains the job's baseline on a run's images."""
        return code_for(self.settings, __name__, self.datasets.metadata(run.dataset, "train"))

    def expected_provenance(self, run: Run, metadata: dict) -> dict:
        """`run_provenance`. metadata: of the dataset's splits."""
        images = {
            split: digest_of_images(split_metadata) for split, split_metadata in metadata.items()
        }
        return run_provenance(run, self.settings, asdict(self.protocol), self.code, images)

    def checkpoint(self, provenance: dict, path: Path) -> Checkpoint:
        """A run's checkpoint, which nothing made in another way continues. provenance: expected."""
        conditions = {**self.conditions(), "device": self.device.type}
        return Checkpoint(path, digest({**provenance, **conditions}))

    def conditions(self) -> dict:
        """Conditions that may change the last bits of a run, as its run.json has them."""
        cuda = self.device.type == "cuda"
        return {
            "threads": self.protocol.threads,
            "device": torch.cuda.get_device_name(self.device) if cuda else "cpu",
            "precision": self.protocol.on(self.device),
            "versions": self.versions,
        }


def train_runs(job: Job, runs: Sequence[Run], folders: Folders) -> None:
    """Train a baseline on each run's images and write the run's folder. runs: samples, or
    replicates on one, of a (baseline, study, binding). An existing run made with the same settings,
    images and code is kept, even if packages have other versions since, which is then said.

    DiagvibError for files that do not belong together, settings that do not fit, a loss that is not
    a number, or too little GPU memory.
    """
    if folders.curves:
        summary_writer()
    metadata = [dataset_metadata(job.datasets, run) for run in runs]
    job = replace(job, code=job.present_code(runs[0]), versions=package_versions(job.settings))
    for run, run_metadata in zip(runs, metadata, strict=True):
        folder = folders.runs / str(run.sample)
        provenance = job.expected_provenance(run, run_metadata)
        seeded_job = replace(job, protocol=replace(job.protocol, seed=run.seed(job.protocol.seed)))
        checkpoint = seeded_job.checkpoint(provenance, folders.checkpoints / f"{run.sample}.pt")
        if is_finished(folder, provenance, job.keep_weights):
            print(
                f"{run.name}: kept, because it was made with the same settings, images and code"
                + other_versions(folder, job.versions)
            )
        else:
            # A run that is trained again does not exist until it is complete.
            (folder / RUN_RECORD).unlink(missing_ok=True)
            try:
                _train_run(seeded_job, run, folders, checkpoint, provenance)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                raise DiagvibError(
                    f"{run.name}: the GPU's memory is too small; lower the batch_size of "
                    f"{run.baseline} (now {job.settings['batch_size']}), let fewer programs use the "
                    "GPU at once, or set device: cpu"
                ) from None
        checkpoint.remove()


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


def _train_run(
    job: Job, run: Run, folders: Folders, checkpoint: Checkpoint, provenance: dict
) -> None:
    started, out = time.perf_counter(), folders.runs / str(run.sample)
    data = load(job, run)
    curves = folders.curves and folders.curves / str(run.sample)
    method, fitted = fit(job, run, data, checkpoint, run.name, curves)
    trained = time.perf_counter()
    test, batches = load_test(job, run, data.train.scaling)
    prediction, confidence = predict(method, batches, job.protocol, run.name)
    predicted = _names(test, run, prediction)
    predictions = pd.DataFrame({"prediction": predicted, "confidence": confidence.numpy()})
    if (watched := load_scene(test.metadata["scene"]).noted_class) in test.factors[run.target]:
        predictions = _answers(job, run, test, batches, method, watched)
    trained_counts, names = _seen(data.train), [run.target, *run.cues]
    tested = set(zip(*(test.table[name].to_pylist() for name in names), strict=True))
    doubts = [*method.doubts, *_doubts(job, predicted, trained_counts, _seen(data.val), tested)]
    if job.settings.get("selection") == INFERRED:
        _, sizes = method.memory["validation_group"].unique(return_counts=True)
        doubts += _noisy(INFERRED, int(sizes.min()), "an inferred group")
    trained_counts = {"-".join(cell): count for cell, count in trained_counts.items()}
    looks = shares(
        method, batches, test, names, shown_images(test, run, SALIENCY_IMAGES), job.protocol
    )
    facts = {**method.selections, "doubts": doubts, **({"saliency": looks} if looks else {})}
    scene = load_scene(test.metadata["scene"])
    if files := job.prepared and scene.source_files(test.table, job.prepared):
        predictions["path"] = files
    metrics = _write_results(run, fitted, test, predictions, trained_counts, facts, out)
    write_visualisations(out / "exhibits.parquet", method, batches, test, run, job.protocol)
    if job.keep_weights:
        weights = {name: value.cpu().clone() for name, value in method.state_dict().items()}
        save_tensors(out / WEIGHTS_FILE, weights)
    else:
        (out / WEIGHTS_FILE).unlink(missing_ok=True)  # of an earlier training
    finished = time.perf_counter()
    write_json(
        out / RUN_RECORD,
        {
            **provenance,
            "seed": job.protocol.seed,
            **job.conditions(),
            "git": git_state(),
            "date": date.today().isoformat(),
            "machine": machine(),
            "files": file_digests(out),
            "parameters": sum(p.numel() for p in method.parameters()),
            "train_images": len(data.train),
            "pixel_mean": data.train.scaling.mean,
            "pixel_std": data.train.scaling.std,
            "seconds": {"train": round(trained - started, 2), "test": round(finished - trained, 2)},
            "images_per_second": fitted.images_per_second and round(fitted.images_per_second, 1),
        },
    )
    accuracy = ", ".join(
        f"{name} {100 * group['accuracy']:.1f} %" for name, group in metrics["groups"].items()
    )
    say(
        f"{run.name}: {accuracy} (mean per-class accuracy), epoch {fitted.selected_epoch} of "
        f"{len(fitted.history)} selected, {finished - started:.0f} s",
        *(f"{run.name}: doubtful, {doubt}" for doubt in doubts),
    )


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
        groups = _group_metrics(test.table, run.target, _names(test, run, prediction))
        return {f"{group}_accuracy": metrics["accuracy"] for group, metrics in groups.items()}

    return Loaded(train, val, track)


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
        model = settings["model"]
        size = (model.get("input") or {}).get("size") or side
        last_layer = make_network(located(model, weights), classes, size).head
        if not isinstance(last_layer, torch.nn.Linear) or last_layer.out_features != classes:
            raise DiagvibError(
                f"model: {model['name']} does not end in a linear layer for {classes:,} classes, "
                "which head: published needs; choose head: linear"
            )
        method.model.head.load_state_dict({"bias": torch.zeros(classes), **last_layer.state_dict()})
    return method


def load_test(job: Job, run: Run, scaling: Scaling) -> tuple[Images, Batches]:
    """The test images, and the same as batches, scaled as the training images."""
    test = job.datasets.load(run.dataset, "test")
    return test, Batches(test.pixels, test.labels(run.target), job.device, scaling)


def _names(test: Images, run: Run, prediction: torch.Tensor) -> np.ndarray:
    """The target's classes of these indices, int64[N]."""
    return np.array(test.factors[run.target])[prediction.numpy()]


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


def _answers(
    job: Job, run: Run, test: Images, batches: Batches, method: Method, watched: str
) -> pd.DataFrame:
    """`answers` about the test images, in a scene with a class to watch."""
    scene = load_scene(test.metadata["scene"])
    photos = test.table.select(["photo", "watermark", "group"]).to_pandas()
    photos["label"] = test.table[run.target].to_pandas()

    def logits_of(rows: np.ndarray) -> torch.Tensor:
        batch = batches.batch(torch.from_numpy(rows))
        with job.protocol.autocast(job.device):
            return method.predict(Unlabelled(batch.pixels, batch.inputs))

    with deterministic(job.device, job.protocol.threads):
        method.eval()
        classes, groups = test.factors[run.target], scene.groups(job.prepared)
        return answers(photos, logits_of, classes, watched, groups)


def _seen(images: Batches) -> dict[tuple[str, ...], int]:
    """The number of images of each combination of classes, such as {("0", "red"): 12}."""
    annotations = images.annotations
    names = [annotations.classes, *annotations.cue_classes.values()]
    columns = [images.labels, *images.cues.T]
    counts = Counter(zip(*(column.tolist() for column in columns), strict=True))
    return {
        tuple(classes[index] for classes, index in zip(names, cell, strict=True)): count
        for cell, count in sorted(counts.items())
    }


def _doubts(
    job: Job,
    predicted: np.ndarray,
    trained_counts: dict[tuple[str, ...], int],
    validated: dict[tuple[str, ...], int],
    tested: Set[tuple[str, ...]],
) -> list[str]:
    """Reasons to distrust a run's numbers. seen, validated, tested: combinations of classes in
    training, with their numbers of images, in validation and in the test."""
    doubts, rule = [], job.settings.get("selection", "val_loss")
    if len(set(predicted)) == 1:
        doubts.append(f"predicts {predicted[0]} for every test image")
    for split, cells_there in (("validation", validated.keys()), ("test", tested)):
        if absent_names := [*absent_combinations(trained_counts, cells_there)]:
            remainder = (
                f" and {len(absent_names) - _MOST_NAMES} more"
                if len(absent_names) > _MOST_NAMES
                else ""
            )
            doubts.append(f"no {split} image of {', '.join(absent_names[:_MOST_NAMES])}{remainder}")
    if rule.startswith("val_worst_group"):
        cue, groups = rule.partition("_cue_")[2], Counter()
        for cell, count in validated.items():
            groups[(cell[0], cell[int(cue)]) if cue else cell] += count
        cell, fewest = min(groups.items(), key=lambda item: item[1])
        doubts += _noisy(rule, fewest, "-".join(cell))
    return doubts


def _noisy(rule: str, images: int, group: str) -> list[str]:
    """Whether a rule of selection judges by too few validation images of a group."""
    shortage = f"only {images} validation image{'s' * (images != 1)} of {group}"
    text = f"its epoch was chosen by {rule}, with {shortage}, so the choice is mostly noise"
    return [text] if images < _FEW_IMAGES else []


def _write_results(
    run: Run,
    fitted: Fitted,
    test: Images,
    predictions: pd.DataFrame,
    trained_counts: dict[str, int],
    measured_facts: dict,
    out: Path,
) -> dict:
    """Write everything about a run that depends only on its names; returns the metrics. noted: the
    class predicted for each test image, its probability (`confidence`), and further columns; seen:
    from `_seen`; more: further entries of the metrics."""
    predicted = predictions.pop("prediction").to_numpy()
    facts = run.names | {
        key: test.metadata[key] for key in ("roles", "scene", "sources", "comparable")
    }
    facts["trained"] = trained_counts
    placed = [name for name in ("group", "environment") if name in test.table.column_names]
    table = test.table.select([*placed, *test.factors])
    table = table.append_column("prediction", pa.array(predicted, pa.string()))
    for name in predictions:
        table = table.append_column(name, pa.array(predictions[name]))
    metrics = {
        **facts,
        "target": run.target,
        "cue": "-".join(run.cues) or None,
        "groups": _group_metrics(table, run.target, predicted),
        "selected_epoch": fitted.selected_epoch,
        "epochs": len(fitted.history),
        "val_loss": fitted.val_loss,
        **measured_facts,
    }
    write_table(out / "predictions.parquet", table, facts)
    write_text(out / "history.jsonl", "".join(json.dumps(row) + "\n" for row in fitted.history))
    write_json(out / "metrics.json", metrics)
    return metrics


def _group_metrics(table: pa.Table, target: str, predicted: np.ndarray) -> dict:
    """Per group present: mean per-class accuracy (paper, Sec. 3.4), number of images, and each
    class's accuracy. predicted: the classes' names, [N]."""
    group, label = (table[c].to_numpy(zero_copy_only=False) for c in ("group", target))
    metrics = {}
    for name in sorted(set(group)):
        members = group == name
        per_class = per_class_accuracy(label[members], predicted[members])
        accuracy = float(np.mean(list(per_class.values())))
        metrics[name] = {"accuracy": accuracy, "n": int(members.sum()), "per_class": per_class}
    return metrics
