"""The cost of each training method relative to ERM: images per second at 64 pixels, phase by phase,
of small_cnn or another network.

ERM and the method alternate (ERM, X, ERM, X, ..., ERM), so that other work on the machine slows
both, and times are CPU seconds; a round's ratio is that of the method to the mean of the ERM runs
before and after it. Images are rendered from embedded sources, with two cues and two environments,
for every registered method.

    python benchmarks/methods.py                    # writes benchmarks/results/methods-cpu-DATE.json
    python benchmarks/methods.py lff jtt --rounds 9
    python benchmarks/methods.py asr vae factor_vae --model resnet18
"""

import os
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import torch
import typer
from result_file import RESULTS, Out, print_rows, save_result

from diagvib import stages
from diagvib.images.datasets import RenderedRecipes
from diagvib.methods.method import Method, StepOutput, initialised
from diagvib.methods.registry import METHODS, declaration, make_baseline
from diagvib.scenes import load_scene
from diagvib.settings.baselines import complete
from diagvib.settings.jobs import Draw, Fetch
from diagvib.settings.layout import Layout, Run
from diagvib.studies.dataset_sample import dataset_sample
from diagvib.training.batches import Batches
from diagvib.training.callbacks import Callback
from diagvib.training.job import Job
from diagvib.training.load import load_batches
from diagvib.training.protocol import Protocol
from diagvib.training.trainer import Trainer

CPU = torch.device("cpu")
PROTOCOL = Protocol(max_epochs=1, patience=None, seed=0)
# Each cue agrees with the target in half of the images; every group of target and cues has some.
CELLS = [
    (0.5, "same", "same"),
    (0.2, "other", "same"),
    (0.2, "same", "other"),
    (0.1, "other", "other"),
]
STUDY = {
    "metrics": "accuracy",
    "roles": [["target", 3], ["cue-1", 3], ["cue-2", 3]],
    "rows": [
        {
            "splits": ["train", "val", "test"],
            "group": "id",
            "weight": weight,
            "environment": environment,
            "cells": {"cue-1": first, "cue-2": second},
        }
        for environment in ("one", "two")
        for weight, first, second in CELLS
    ],
}
SCENE, BINDING = "digits", "shape-hue-texture"
# ERM as a bare loop, to measure the cost of the interface's hooks.
PLAIN = "erm without hooks"
# Options that shorten a phase without changing the cost per image.
SHORTER = {"jtt": {"copies": 4}}


class Plain(Method):
    def training_step(self, phase, batch, update):
        logits = self.model(batch.inputs)
        loss = torch.nn.functional.cross_entropy(logits.float(), batch.labels, reduction="none")
        update("model", loss.mean())
        return StepOutput(loss, logits)


class Clock(Callback):
    """For each phase: images trained on, and the CPU seconds of its steps."""

    def __init__(self):
        self.images, self.seconds = [], []

    def on_start(self, epochs: int, images: int) -> None:
        self.images.append(0)
        self.seconds.append(0.0)
        self._last = time.process_time()

    def on_step(self, images: int) -> None:
        now = time.process_time()
        self.images[-1] += images
        self.seconds[-1] += now - self._last
        self._last = now

    def on_epoch(self, row: dict) -> None:
        self._last = time.process_time()  # validation does not count as training


class Bench:
    """The data of all training runs, and the measurements on them."""

    def __init__(self, folder: Path, model: str, images: int, size: int, batch_size: int):
        self.model, self.images, self.size, self.batch_size = model, images, size, batch_size
        self.run, self.scene = Run("bench", "bench", BINDING, 0), load_scene(SCENE)
        layout = Layout(folder)
        self.prepared, recipes = layout.prepared(SCENE), layout.recipes("bench", BINDING)
        stages.prepare(layout, Fetch(sources="embedded"), SCENE)
        samples = [dataset_sample(0, self.scene)]
        counts = {"train": images, "val": 2 * batch_size, "id": 9}
        draw = Draw(study=STUDY, dataset_samples=samples, counts=counts)
        stages.draw(layout, draw, "bench", BINDING)
        self.datasets = RenderedRecipes(recipes, self.scene, self.prepared, size, CPU)

    def settings(self, name: str) -> dict:
        known = "erm" if name == PLAIN else name
        model = {} if declaration(known).own_network else {"model": self.model}
        return complete(
            {
                "method": {"name": known, **SHORTER.get(name, {})},
                **model,
                "batch_size": self.batch_size,
                "optimiser": {"name": "adam", "lr": 1e-3},
                "origin": "benchmarks/methods.py",
            }
        )

    def trained(self, name: str) -> dict[str, tuple[float, float]]:
        """For each phase of a new training: images and CPU seconds of an epoch."""
        settings = self.settings(name)
        train, val = self._batches(name if declaration(settings["method"]["name"]).needs else "erm")
        classes = len(self.scene.factors[self.run.target])
        if name == PLAIN:
            method = initialised(lambda: Plain(settings, classes, self.size), 0)
        else:
            method = make_baseline(settings, classes, self.size, 0)
        clock = Clock()
        fitted = Trainer(method, train, val, self.run, PROTOCOL).fit(callback=clock)
        epochs = Counter(row["phase"] for row in fitted.history)
        of_phases = zip(epochs.items(), clock.images, clock.seconds, strict=True)
        return {phase: (images / n, seconds / n) for (phase, n), images, seconds in of_phases}

    @cache  # noqa: B019
    def _batches(self, name: str) -> tuple[Batches, Batches]:
        """Training and validation images for a method; ERM's serve all methods that need nothing
        from the scene."""
        job = Job(self.settings(name), PROTOCOL, CPU, self.datasets, prepared=self.prepared)
        train = load_batches(job, self.run, "train")
        return train, load_batches(job, self.run, "val", train)

    def compared(self, name: str, rounds: int) -> list[dict]:
        """A row for every phase of a method."""
        self.trained(name)  # a warm-up
        erm, own = [self._erm_seconds()], []
        for _ in range(rounds):
            own.append(self.trained(name))
            erm.append(self._erm_seconds())
        beside = (np.array(erm[1:]) + np.array(erm[:-1])) / 2
        return [self._row(name, phase, [each[phase] for each in own], beside) for phase in own[0]]

    def _erm_seconds(self) -> float:
        """Of an image."""
        ((images, seconds),) = self.trained("erm").values()
        return seconds / images

    def _row(self, name: str, phase: str, measured: list, erm: np.ndarray) -> dict:
        images, seconds = np.array(measured).T
        ratios = erm / (seconds / images)
        return {
            "what": f"train {name} {phase}",
            "method": name,
            "phase": phase,
            "device": "cpu",
            "images_per_second": float(np.median(images / seconds)),
            "erm_images_per_second": float(np.median(1 / erm)),
            "ratio_to_erm": float(np.median(ratios)),
            "lowest_ratio": float(ratios.min()),
            "highest_ratio": float(ratios.max()),
            "rounds": len(measured),
            "images_per_epoch": round(images[0]),
            "epoch_in_erm_epochs": float(np.median(seconds / erm / self.images)),
        }


def main(
    methods: Annotated[
        list[str] | None, typer.Argument(help="Default: all that are registered.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="The network of ERM, and of methods that build none.")
    ] = "small_cnn",
    images: Annotated[
        int, typer.Option(help="Training images, in an epoch of ERM.", min=512)
    ] = 1024,
    size: Annotated[int, typer.Option(help="Pixels a side.")] = 64,
    batch_size: Annotated[int, typer.Option(min=2)] = 64,
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    out: Out = RESULTS,
) -> None:
    """Measure each method against ERM and write the result."""
    load, rows = os.getloadavg()[0], []
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder), model, images, size, batch_size)
        for name in methods or [PLAIN, *METHODS]:
            rows += bench.compared(name, rounds)
            print(name, file=sys.stderr, flush=True)
    ratios = ("ratio_to_erm", "lowest_ratio", "highest_ratio", "epoch_in_erm_epochs")
    counts = dict.fromkeys(("images_per_second", "images_per_epoch"), ",.0f")
    print_rows(rows, what="", **counts, **dict.fromkeys(ratios, ".3f"))
    save_result(
        "methods",
        "cpu",
        rows,
        out,
        seconds="of the processor",
        model=model,
        image_size=size,
        batch_size=batch_size,
        images=images,
        shorter=SHORTER,
        load_before=load,
    )


if __name__ == "__main__":
    typer.run(main)
