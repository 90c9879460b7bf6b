"""Training speed on this machine, baseline by baseline, through the real trainer on random images."""

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from diagvib.baseline_settings import load_settings
from diagvib.baselines import make_baseline
from diagvib.batches import Batches
from diagvib.bench import RESULTS, machine, print_rows, result_row, save_result
from diagvib.devices import resolve_device
from diagvib.grid import Run
from diagvib.renderer import PAPER_SIZE
from diagvib.trainer import Protocol, fit, predict

# A GPU needs more images than a CPU for a figure that is not all start-up.
_IMAGES = {"cpu": 512, "cuda": 16_384}
_CLASSES = 10


def bench_train(baselines: list[str], device: str = "auto", batch_size: int | None = None, images: int | None = None,
                precision: str = "bf16", out: str | Path = RESULTS) -> Path:
    """Measure each baseline's training and prediction; print a table and return the JSON file written.

    batch_size, images: default to the baseline's setting, and to 512 images on the CPU, 16,384 on CUDA. On a CPU, where
    a training takes one core, once alone and once with as many processes as cores, whose images are counted together.
    """
    resolved = resolve_device(device)
    images = images or _IMAGES[resolved.type]
    counts = [1] if resolved.type == "cuda" else sorted({1, machine()["cores"]})
    rows = []
    for name in baselines:
        settings = load_settings(name) | ({"batch_size": batch_size} if batch_size else {})
        for processes in counts:
            rows += _measure(name, settings, resolved.type, images, precision, processes)
    print_rows(rows, [])
    return save_result("train", resolved.type, rows, out)


def _measure(name: str, settings: dict, device: str, images: int, precision: str, processes: int) -> list[dict]:
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(_one, *zip(*[(settings, device, images, precision)] * processes, strict=True)))
    total = images * processes
    more = {"batch_size": settings["batch_size"], "processes": processes,
            "startup_seconds": max(p["startup"] for p in parts), "peak_memory_mib": max(p["memory"] for p in parts)}
    return [result_row(f"{what} {name}", device, processes, total,
                       images / (sum(p[what] for p in parts) / processes), **more) for what in ("train", "predict")]


def _one(settings: dict, device: str, images: int, precision: str) -> dict[str, float]:
    """In a process of its own: images/s of training (second epoch, so warm) and prediction, start-up, peak memory."""
    start = time.perf_counter()
    target = resolve_device(device)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (images, PAPER_SIZE, PAPER_SIZE, 3), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, _CLASSES, (images,), generator=generator)
    data = Batches(pixels, labels, target)
    held_out = Batches(pixels[:settings["batch_size"]], labels[:settings["batch_size"]], target, data.scaling)
    run = Run("bench", "zso", "shape", "shape", None, 0)
    protocol = {"patience": None, "seed": 0, "precision": precision, "threads": 1}
    model = make_baseline(settings, _CLASSES, PAPER_SIZE, 0)
    fit(model, data, held_out, run, Protocol(max_epochs=1, **protocol), target)
    startup = time.perf_counter() - start
    trained = fit(model, data, held_out, run, Protocol(max_epochs=1, **protocol), target).images_per_second
    start = time.perf_counter()
    predict(model, data, Protocol(max_epochs=1, **protocol))
    predicted = images / (time.perf_counter() - start)
    peak = (torch.cuda.max_memory_allocated() if target.type == "cuda" else
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return {"train": trained, "predict": predicted, "startup": round(startup, 2), "memory": round(peak / 2**20)}
