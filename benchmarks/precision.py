"""What bfloat16 gains on a CPU: images per second of the real trainer in fp32 and in bf16,
alternating, on one core.

Times are CPU seconds. A round is fp32, bf16, fp32; its ratio is that of bf16 to the mean of the two
fp32. Images are random.

    python benchmarks/precision.py                              # writes benchmarks/results/precision-cpu-DATE.json
    python benchmarks/precision.py --case resnet18:128:64 --rounds 3
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from statistics import median
from typing import Annotated

import torch
import typer

from diagvib.bench.results import RESULTS, save_result
from diagvib.foundation.devices import has_bf16
from diagvib.methods.registry import make_baseline
from diagvib.settings.baselines import complete
from diagvib.settings.grid import make_run
from diagvib.training.batches import Annotations, Batches
from diagvib.training.callbacks import Callback
from diagvib.training.prediction import predict
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer

CPU, CLASSES = torch.device("cpu"), 6
# Network, pixels per side, batch size, training images per epoch.
CASES = [
    "small_cnn:64:32:1024",
    "small_cnn:64:128:1024",
    "small_cnn:128:32:768",
    "small_cnn:128:128:768",
    "resnet18:64:64:192",
    "resnet18:128:64:128",
]


class Clock(Callback):
    """CPU seconds spent on training steps."""

    def __init__(self):
        self.seconds = 0.0

    def on_start(self, epochs: int, images: int) -> None:
        self._last = time.process_time()

    def on_step(self, images: int) -> None:
        now = time.process_time()
        self.seconds += now - self._last
        self._last = now

    def on_epoch(self, row: dict) -> None:
        self._last = time.process_time()


def make_trainer(case: str, precision: str = "bf16") -> Trainer:
    """A trainer of two epochs on random images."""
    model, size, batch_size, count = (
        int(part) if part.isdigit() else part for part in case.split(":")
    )
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator)
    known = Annotations(classes=tuple("abcdef"))
    batches = Batches(pixels, torch.arange(count) % CLASSES, CPU, annotations=known)
    few = Batches(
        pixels[:32], torch.arange(len(pixels[:32])) % CLASSES, CPU, batches.scaling, known
    )
    settings = complete(
        {
            "model": model,
            "method": "erm",
            "optimiser": {"name": "adam", "lr": 1e-3},
            "batch_size": batch_size,
            "origin": "benchmarks/precision.py",
        }
    )
    protocol = Protocol(max_epochs=2, patience=None, seed=0, precision=precision)
    method = make_baseline(settings, CLASSES, size, 0)
    return Trainer(method, batches, few, make_run("bench", "bench", "a-b", 0), protocol)


def images_per_second(case: str, precision: str) -> tuple[float, float]:
    """Images per second of training and of prediction."""
    trainer, clock = make_trainer(case, precision), Clock()
    fitted = trainer.fit(callback=clock)
    started = time.process_time()
    predict(trainer.method, trainer.train, trainer.protocol)
    return (
        sum(timing.images for timing in fitted.timings) / clock.seconds,
        len(trainer.train) / (time.process_time() - started),
    )


def paired(rates: list[float]) -> list[float]:
    """The ratio of every second rate to the mean of its two neighbours."""
    return [2 * rates[i] / (rates[i - 1] + rates[i + 1]) for i in range(1, len(rates), 2)]


def main(
    case: Annotated[
        list[str] | None, typer.Option(help="MODEL:PIXELS:BATCH:IMAGES; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = RESULTS,
) -> None:
    """Train in both precisions, alternating, and write the rates."""
    if not has_bf16(CPU):
        raise SystemExit("this CPU has no bfloat16 instructions: there is nothing to compare")
    torch.set_num_threads(1)
    rows = []
    for name in case or CASES:
        images_per_second(name, "bf16")  # warm up
        found = [
            images_per_second(name, precision)
            for _ in range(rounds)
            for precision in ("fp32", "bf16")
        ]
        found.append(images_per_second(name, "fp32"))
        for number, what in enumerate(("train", "predict")):
            rates = [rate[number] for rate in found]
            ratios = paired(rates)
            rows.append(
                {
                    "what": what,
                    "case": name,
                    "fp32": round(median(rates[::2]), 1),
                    "bf16": round(median(rates[1::2]), 1),
                    "ratio": round(median(ratios), 3),
                    "ratios": [round(ratio, 3) for ratio in ratios],
                }
            )
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    save_result("precision", "cpu", rows, out)


if __name__ == "__main__":
    typer.run(main)
