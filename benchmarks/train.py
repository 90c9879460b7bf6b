"""Training speed on this machine, baseline by baseline, through the real trainer.

python benchmarks/train.py small_cnn resnet18
python benchmarks/train.py resnet18 --device cuda --batch-size 64 --full-run
python benchmarks/train.py resnet18 --device cuda --processes 1 --processes 4
"""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from render import random_recipes, stacks
from result_file import RESULTS, Out, machine, print_rows, result_row, save_result

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.files import file_sha256
from diagvib.images.datasets import ImageFiles
from diagvib.images.files import write_images
from diagvib.methods.method import Method
from diagvib.methods.registry import make_baseline
from diagvib.scenes import load_scene
from diagvib.scenes.digits.renderer import Renderer
from diagvib.scenes.digits.resizing import PAPER_SIZE
from diagvib.scenes.digits.scene import RecipeRenderer
from diagvib.settings.baselines import load_settings
from diagvib.settings.layout import Run
from diagvib.settings.resolve import load_config
from diagvib.studies.binding import all_bindings
from diagvib.studies.study import load_studies
from diagvib.training.batches import Batches
from diagvib.training.job import Folders, Job
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.run import train_runs
from diagvib.training.trainer import Fitted, Trainer

# Images in the speed measurement: on a GPU an epoch of the paper, since fewer would measure mostly
# start-up.
_IMAGES = {"cpu": 512, "cuda": 43_740}
_CLASSES = 10
# A run of the paper (Sec. 3.2, A.2), and its test images, 10,000 in each group.
FULL_RUN = {"train": 43_740, "val": 8_748, "test": 20_000}
EPOCHS = 30
# Dataset samples in full runs: two, because the second finds everything warm.
_SAMPLES = (0, 1)


@dataclass(frozen=True)
class Task:
    """Measurements of one process. begun: when it was requested, in seconds of `time.time()`."""

    name: str
    settings: dict
    device: str
    images: int
    precision: str
    begun: float = 0.0

    def protocol(self, epochs: int) -> Protocol:
        return Protocol(
            max_epochs=epochs, patience=None, seed=0, precision=self.precision, threads=1
        )


def main(
    baselines: Annotated[
        list[str] | None, typer.Argument(help="Default: those of the default configuration.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    batch_size: Annotated[
        list[int] | None, typer.Option(help="Instead of the baseline's; repeatable.")
    ] = None,
    images: Annotated[
        int | None, typer.Option(min=64, help="Images per figure. [512, on CUDA 43,740]")
    ] = None,
    processes: Annotated[
        list[int] | None,
        typer.Option(help="At once; repeatable. [1, on a CPU also one per core]"),
    ] = None,
    precision: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    full_run: Annotated[
        bool, typer.Option("--full-run", help="Also train two runs of the paper's size; slow.")
    ] = False,
    out: Out = RESULTS,
) -> None:
    """Time training and prediction of baselines, with one process and with several, whose images
    are added up."""
    resolved = resolve_device(device)
    images = images or _IMAGES[resolved.type]
    most = 1 if resolved.type == "cuda" else machine()["cores"]
    variants = processes or sorted({1, most})
    rows: list[dict] = []
    with TemporaryDirectory() as folder:
        for name in baselines or _configured():
            given = _settings(name, Path(folder))
            for size in batch_size or [given["batch_size"]]:
                for number in variants:
                    task = Task(
                        name, given | {"batch_size": size}, resolved.type, images, precision
                    )
                    full = full_run and variants[0] == number
                    rows += _measure(task, number, Path(folder) if full else None)
                    # A long measurement that is stopped keeps what it has.
                    save_result("train", resolved.type, rows, out)
    counts = dict.fromkeys(("batch_size", "processes", "peak_memory_mib"), ",")
    times = dict.fromkeys(("startup_seconds", "full_run_seconds", "later_run_seconds"), ",.1f")
    print_rows(rows, what="", images_per_second=",.0f", **times, full_run="", **counts)
    print(f"full run: {EPOCHS} epochs of {FULL_RUN['train']:,} images")


def _configured() -> list[str]:
    return [baseline.name for baseline in load_config().baselines]


def _dataset() -> tuple[str, str]:
    """Any study with a cue, and a binding for it."""
    study = next(study for study in load_studies().values() if study.cues)
    return study.name, all_bindings(study, load_scene(study.scene).factors)[0].name


def _settings(name: str, folder: Path) -> dict:
    """A baseline's settings for the measurement; published weights are replaced by random ones of
    the same shape."""
    settings, model = load_settings(name), load_settings(name)["model"]
    if model and model["weights"]:
        import torchvision

        path = folder / f"{model['name']}.pth"
        torch.save(torchvision.models.get_model(model["name"], weights=None).state_dict(), path)
        settings["model"] = {
            **model,
            "weights_file": str(path),
            "weights_sha256": file_sha256(path),
        }
    return {key: value for key, value in settings.items() if key != "max_epochs"}


def _measure(task: Task, processes: int, folder: Path | None) -> list[dict]:
    """Rows of one task in this many processes at once. folder: where full runs put their files;
    None: no full run."""
    parts = at_once(_speed, processes, replace(task, begun=time.time()))
    seconds = {
        what: sum(part["seconds"][what] for part in parts) / processes
        for what in parts[0]["seconds"]
    }
    more = {
        "batch_size": task.settings["batch_size"],
        "processes": processes,
        "precision": parts[0]["precision"],
        "startup_seconds": max(part["startup"] for part in parts),
        "peak_memory_mib": max(part["memory"] for part in parts),
        **(
            _full_run(task, folder)
            if folder
            else _computed(seconds, task.images, parts[0]["startup"])
        ),
    }
    if task.settings["model"] and task.settings["model"]["weights"]:
        more["weights"] = "random instead of published ones, since only speed is measured"
    images = task.images * processes
    return [
        result_row(what.format(task.name), task.device, processes, images, each, **more)
        for what, each in seconds.items()
    ]


def at_once(function: Callable, processes: int, *arguments) -> list:
    """The results of `function` in each of this many new processes."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return [
            future.result()
            for future in [pool.submit(function, *arguments) for _ in range(processes)]
        ]


def _computed(seconds: dict[str, float], images: int, startup: float) -> dict:
    """Seconds of a run of the paper's size, computed from those of fewer images."""
    *training, predicting = (each / images for each in seconds.values())
    later = (
        EPOCHS * (FULL_RUN["train"] * sum(training) + len(training) * FULL_RUN["val"] * predicting)
        + FULL_RUN["test"] * predicting
    )
    return {
        "full_run": "computed",
        "full_run_seconds": round(startup + later, 1),
        "later_run_seconds": round(later, 1),
    }


def _speed(task: Task) -> dict:
    """In a separate process: seconds of a warm epoch of each phase and of predicting; start-up;
    memory.

    Start-up is the time of the first epoch, counted from the call, minus those of the second one
    and of making images.
    """
    device = resolve_device(task.device)
    start = time.perf_counter()
    generator = torch.Generator(device).manual_seed(0)
    pixels = torch.randint(
        0,
        256,
        (task.images, PAPER_SIZE, PAPER_SIZE, 3),
        dtype=torch.uint8,
        generator=generator,
        device=device,
    )
    labels = torch.randint(0, _CLASSES, (task.images,), generator=generator, device=device)
    making = time.perf_counter() - start
    data = Batches(pixels, labels, device)
    size = task.settings["batch_size"]
    held_out = Batches(pixels[:size], labels[:size], device, data.scaling)
    protocol, run = task.protocol(1), Run(task.name, *_dataset(), 0)

    def fit() -> tuple[Method, Fitted]:
        method = make_baseline(task.settings, _CLASSES, PAPER_SIZE, 0)
        return method, Trainer(method, data, held_out, run, protocol).fit()

    fit()
    first = time.time() - task.begun - making
    method, fitted = fit()
    seconds = _epoch_seconds(fitted, task.images)
    start = time.perf_counter()
    predict(method, data, protocol)
    predicting = time.perf_counter() - start
    return {
        "seconds": {**seconds, "predict {}": predicting},
        "startup": round(first - sum(seconds.values()), 2),
        "memory": round(_peak_memory(device) / 2**20),
        "precision": protocol.on(device),
    }


def _epoch_seconds(fitted: Fitted, images: int) -> dict[str, float]:
    """By `train {}`, a baseline, or `train {} PHASE` if there are several: an epoch over this many
    images, from the steps made."""
    several = len(fitted.timings) > 1
    return {
        "train {}" + f" {timing.phase}" * several: timing.seconds * images / timing.images
        for timing in fitted.timings
    }


def _peak_memory(device: torch.device) -> int:
    """Bytes: on CUDA those that torch held there; otherwise the process's."""
    return (
        torch.cuda.max_memory_reserved()
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )


def _full_run(task: Task, folder: Path) -> dict:
    """Two runs of the paper's size from image files, everything included, in a separate process."""
    images = folder / "images"
    if not images.exists():
        _write_datasets(images)
    results = folder / "results" / str(time.time_ns())
    return at_once(_train_full_runs, 1, replace(task, begun=time.time()), images, results, EPOCHS)[
        0
    ]


def _write_datasets(folder: Path) -> None:
    digits, textures = stacks()
    renderer = RecipeRenderer(Renderer(digits, textures))
    study, binding = _dataset()
    roles = dict(zip(load_studies()[study].bound, binding.split("-"), strict=True))
    facts = {
        "study": study,
        "binding": binding,
        "roles": roles,
        "scene": load_studies()[study].scene,
        "sources": "bench",
        "comparable": False,
        "sources_digest": "bench",
    }
    for sample in _SAMPLES:
        for number, (split, count) in enumerate(FULL_RUN.items()):
            recipes = random_recipes(count, len(digits), seed=10 * sample + number)
            write_images(
                folder / str(sample) / f"{split}.parquet",
                recipes,
                renderer,
                {**facts, "sample": sample, "split": split},
            )


def _train_full_runs(task: Task, images: Path, out: Path, epochs: int) -> dict:
    device = resolve_device(task.device)
    job = Job(task.settings, task.protocol(epochs), device, ImageFiles(images))
    runs = [Run(task.name, *_dataset(), sample) for sample in _SAMPLES]
    train_runs(job, runs, Folders(out, out / "checkpoints"))
    first, second = ((out / str(sample) / "run.json").stat().st_mtime for sample in _SAMPLES)
    return {
        "full_run": "measured",
        "full_run_seconds": round(first - task.begun, 1),
        "later_run_seconds": round(second - first, 1),
    }


if __name__ == "__main__":
    typer.run(main)
