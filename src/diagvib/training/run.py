"""The train stage: image files in, run folders out. One call trains the dataset samples of one (study, pair)."""

import json
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from diagvib import __version__
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import write_json, write_table, write_text
from diagvib.images.datasets import Datasets, ImageFiles
from diagvib.images.files import Images
from diagvib.images.prefetch import ReadAhead
from diagvib.methods.method import Baseline
from diagvib.methods.registry import make_baseline
from diagvib.scenes.digits.factors import FACTORS, classes, parse_binding
from diagvib.settings.grid import WEIGHTS_FILE, Run
from diagvib.studies.study import GROUPS, SPLITS
from diagvib.training.accuracy import mean_per_class_accuracy, per_class_accuracy
from diagvib.training.batches import Batches, Scaling
from diagvib.training.callbacks import summary_writer, training_watcher
from diagvib.training.checkpoints import Checkpoint, digest, save_tensors
from diagvib.training.code_digest import code_digest, git_state
from diagvib.training.protocol import Protocol, enough_memory, run_name
from diagvib.training.trainer import Fitted, Tracker, Trainer, predict
from diagvib.training.visualisations import write_exhibits

# What the three files of a dataset must have in common.
_SHARED = ("study", "binding", "sample", "sources", "comparable", "sources_digest", "image_shape")


@dataclass(frozen=True)
class Job:
    """What the runs of one call share. settings: the baseline's, as in config/baselines.yaml. code: digest of what
    trains them. keep_weights: beside each run, the weights that were selected. curves: folder of the runs' TensorBoard
    files. cuda_graphs: as in Trainer."""

    settings: dict
    protocol: Protocol
    device: torch.device
    datasets: Datasets
    code: str
    keep_weights: bool = False
    curves: Path | None = None
    cuda_graphs: bool = True


@dataclass
class Kept:
    """What a run leaves for the next one of its job: the trainer and, where its steps are recorded, its images' place
    on the device, by split."""

    trainer: Trainer | None = None
    batches: dict[str, Batches] = field(default_factory=dict)


def train_runs(baseline: str, settings: dict, study: str, binding: str, samples: Sequence[int], datasets: Datasets,
               out: str | Path, checkpoints: str | Path, training: dict, device: torch.device,
               keep_weights: bool = False, curves: str | Path | None = None, cuda_graphs: bool = True) -> None:
    """Train `baseline` on each dataset sample's images and write its run folder, `out`/{sample}.

    datasets: where the images come from. checkpoints: folder for unfinished runs; a job that was killed continues
    from there, and a job that succeeds leaves nothing there. training: keys as in the configuration. keep_weights: also
    write the selected weights, a state dict. curves: also write TensorBoard files, to `curves`/{sample}.
    DiagvibError for files that do not belong together, settings that do not fit, a loss that is no number, or too
    little GPU memory.
    """
    if curves:
        summary_writer()
    factors, code = parse_binding(binding), code_digest(settings, __name__)
    out, checkpoints, curves = Path(out), Path(checkpoints), curves and Path(curves)
    metadata = {sample: dataset_metadata(datasets, study, binding, sample) for sample in samples}
    states, kept = [], Kept()
    with _read_ahead(datasets, samples, device) as source:
        job = Job(settings, Protocol(**training), device, source, code, keep_weights, curves, cuda_graphs)
        for sample in samples:
            run = Run(baseline, study, binding, factors.target, factors.cue, sample)
            states.append(Checkpoint(checkpoints / f"{sample}.pt", _digest(job, run, metadata[sample])))
            with enough_memory(run, settings["batch_size"]):
                _train_run(job, run, out / str(sample), states[-1], kept)
    for state in states:
        state.remove()


def _read_ahead(datasets: Datasets, samples: Sequence[int], device: torch.device) -> AbstractContextManager[Datasets]:
    # Reading is a thousandth of a CPU's training time; there the thread would only take a core and memory from it.
    if device.type == "cuda" and isinstance(datasets, ImageFiles):
        return ReadAhead(datasets, samples)
    return nullcontext(datasets)


def dataset_metadata(datasets: Datasets, study: str, binding: str, sample: int) -> dict[str, dict]:
    """Each split's metadata. DiagvibError, naming the file, if the three are not of one dataset, or of another."""
    found = {split: datasets.metadata(sample, split) for split in SPLITS}
    asked = {"study": study, "binding": binding, "sample": sample}
    for split, metadata in found.items():
        path = datasets.place(sample, split)
        for key in _SHARED:
            expected = asked.get(key, found["train"].get(key))
            if metadata.get(key) != expected:
                whose = "asked for" if key in asked else "that of train.parquet"
                raise DiagvibError(f"{path}: {key} is {metadata.get(key)!r}, not {expected!r} ({whose}); delete "
                                   f"{path.parent} and render again")
        if metadata.get("split") != split:
            raise DiagvibError(f"{path}: holds split {metadata.get('split')!r}; delete {path.parent} and render again")
    return found


def _digest(job: Job, run: Run, metadata: dict) -> str:
    """Of everything that decides a run: a checkpoint made with anything else cannot be continued."""
    return digest({"run": asdict(run), "settings": job.settings, "protocol": asdict(job.protocol),
                   "device": job.device.type, "images": metadata, "code": job.code, "torch": torch.__version__})


def _train_run(job: Job, run: Run, out: Path, checkpoint: Checkpoint, kept: Kept) -> None:
    started = time.perf_counter()
    model, fitted, facts = _fit_run(job, run, checkpoint, kept)
    trained = time.perf_counter()
    test, labels = load_split(job.datasets, run, "test")
    batches = Batches(test.pixels, labels, job.device, facts["scaling"])
    prediction, confidence = predict(model, batches, job.protocol)
    metrics = _write_results(run, fitted, test, prediction, confidence, out)
    write_exhibits(out / "exhibits.parquet", model, batches, test, run, job.protocol)
    _write_weights(out / WEIGHTS_FILE, model, job.keep_weights)
    tested = time.perf_counter()
    write_json(out / "run.json", {
        "settings": job.settings, "seed": job.protocol.seed, "training": asdict(job.protocol),
        "device": _device_name(job.device), "precision": job.protocol.on(job.device), "versions": _versions(),
        "code": {"sha256": job.code, "git": git_state()},
        "parameters": sum(p.numel() for p in model.parameters()), "train_images": facts["train_images"],
        "pixel_mean": facts["scaling"].mean, "pixel_std": facts["scaling"].std,
        "seconds": {"train": round(trained - started, 2), "test": round(tested - trained, 2)},
        "images_per_second": fitted.images_per_second and round(fitted.images_per_second, 1)})
    _report(run, fitted, metrics, tested - started)


def _fit_run(job: Job, run: Run, checkpoint: Checkpoint, kept: Kept) -> tuple[Baseline, Fitted, dict]:
    """Train on a dataset's images. Unless kept, these are let go on return, before the test ones come."""
    images, labels = load_split(job.datasets, run, "train")
    size = images.metadata["image_shape"][0]
    train = _on_device(kept, "train", images, labels, job.device)
    images, labels = load_split(job.datasets, run, "val")
    val = _on_device(kept, "val", images, labels, job.device, train.scaling)
    del images
    if kept.trainer is None:
        model = make_baseline(job.settings, len(classes(run.target)), size, job.protocol.seed)
        kept.trainer = Trainer(model, job.protocol, job.device, job.cuda_graphs)
    if kept.trainer.graphs:
        kept.batches = {"train": train, "val": val}
    with training_watcher(run_name(run), job.curves and job.curves / str(run.sample)) as watcher:
        fitted = kept.trainer.fit(train, val, run, checkpoint, watcher,
                                  _test_tracker(job, run, train.scaling) if job.protocol.track_test else None)
    return kept.trainer.model, fitted, {"scaling": train.scaling, "train_images": len(train)}


def _on_device(kept: Kept, split: str, images: Images, labels: torch.Tensor, device: torch.device,
               scaling: Scaling | None = None) -> Batches:
    """A split's batches, in the place of the last run's if that was kept and is of the same shape."""
    batches = kept.batches.get(split)
    if batches is not None and batches.refill(images.pixels, labels, scaling):
        return batches
    return Batches(images.pixels, labels, device, scaling)


def _test_tracker(job: Job, run: Run, scaling: Scaling) -> Tracker:
    """Accuracies on the test groups, as `id_accuracy` and `ood_accuracy`. Holds the test images while it lives."""
    test, labels = load_split(job.datasets, run, "test")
    batches, names = Batches(test.pixels, labels, job.device, scaling), np.array(classes(run.target))
    table = test.table.select(["group", run.target])

    def track(model: Baseline) -> dict:
        prediction, _ = predict(model, batches, job.protocol)
        predicted = table.append_column("prediction", pa.array(names[prediction.numpy()], pa.string()))
        return {f"{group}_accuracy": metrics["accuracy"]
                for group, metrics in _group_metrics(predicted, run.target).items()}

    return track


def load_split(datasets: Datasets, run: Run, split: str) -> tuple[Images, torch.Tensor]:
    """A split's images, and their labels of the target factor, int64[N]."""
    images, path = datasets.load(run.sample, split), datasets.place(run.sample, split)
    if not len(images.table):
        raise DiagvibError(f"{path}: holds no images; raise the counts of the configuration and render again")
    try:
        return images, images.labels(run.target)
    except DiagvibError as error:
        raise DiagvibError(f"{path}: {error}") from None


def _write_results(run: Run, fitted: Fitted, test: Images, prediction: torch.Tensor, confidence: torch.Tensor,
                   out: Path) -> dict:
    """Write everything of a run that its names decide; returns the metrics. prediction: class index int64[N]."""
    names = np.array(classes(run.target))
    facts = {"baseline": run.baseline, "study": run.study, "binding": run.binding, "sample": run.sample,
             "sources": test.metadata["sources"], "comparable": test.metadata["comparable"]}
    table = test.table.select(["group", *FACTORS])
    table = table.append_column("prediction", pa.array(names[prediction.numpy()], pa.string()))
    table = table.append_column("confidence", pa.array(confidence.numpy(), pa.float32()))
    metrics = {**facts, "target": run.target, "cue": run.cue, "groups": _group_metrics(table, run.target),
               "selected_epoch": fitted.selected_epoch, "epochs": len(fitted.history), "val_loss": fitted.val_loss}
    write_table(out / "predictions.parquet", table, facts)
    write_text(out / "history.jsonl", "".join(json.dumps(row) + "\n" for row in fitted.history))
    write_json(out / "metrics.json", metrics)
    return metrics


def _write_weights(path: Path, model: Baseline, keep: bool) -> None:
    """The model's state dict, on the CPU; if it is not to be kept, an earlier training's goes."""
    if not keep:
        path.unlink(missing_ok=True)
        return
    save_tensors(path, {name: value.cpu().clone() for name, value in model.state_dict().items()})


def _group_metrics(table: pa.Table, target: str) -> dict:
    """Per group present: mean per-class accuracy (paper, Sec. 3.4), number of images, and each class's accuracy."""
    group, label, prediction = (table[c].to_numpy(zero_copy_only=False) for c in ("group", target, "prediction"))
    metrics = {}
    for name in GROUPS:
        at = group == name
        if at.any():
            metrics[name] = {"accuracy": mean_per_class_accuracy(label[at], prediction[at]), "n": int(at.sum()),
                             "per_class": per_class_accuracy(label[at], prediction[at])}
    return metrics


def _versions() -> dict[str, str]:
    return {"diagvib": __version__, "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "torchvision", "numpy", "pyarrow")}}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _report(run: Run, fitted: Fitted, metrics: dict, seconds: float) -> None:
    accuracy = ", ".join(f"{name} {100 * group['accuracy']:.1f} %" for name, group in metrics["groups"].items())
    print(f"{run_name(run)}: {accuracy} (mean per-class accuracy), epoch {fitted.selected_epoch} of "
          f"{len(fitted.history)} selected, {seconds:.0f} s", file=sys.stderr, flush=True)
