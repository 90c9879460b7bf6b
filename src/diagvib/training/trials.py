"""The training runs of a tuning: one baseline with several settings, on several datasets. Each is
kept when finished, so that a killed tuning continues."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol as Interface

import pandas as pd
import torch
import yaml

from diagvib.foundation.errors import DiagvibError, Diverged
from diagvib.foundation.files import read_json, write_json, write_text
from diagvib.foundation.plug_ins import out_of_memory
from diagvib.images.datasets import Datasets
from diagvib.settings.baselines import shortened
from diagvib.settings.grid import Run, make_run
from diagvib.training.batches import Batches
from diagvib.training.callbacks import training_callback
from diagvib.training.checkpoints import Checkpoint, digest
from diagvib.training.code_digest import code_digest, package_versions
from diagvib.training.cuda_graphs import cuda_graphs
from diagvib.training.protocol import Protocol
from diagvib.training.run import (
    Job,
    dataset_metadata,
    kind_of,
    load_batches,
    make_method,
    make_tracker,
)
from diagvib.training.trainer import Tracker, Trainer

# Keys of an entry in config/baselines, in the order in which they are written.
ENTRY_KEYS = (
    "model",
    "method",
    "optimiser",
    "batch_size",
    "normalise",
    "augment",
    "depends",
    "selection",
    "max_epochs",
    "origin",
)


class Candidate(Interface):
    """Settings to try; as text, a description. file: a name for its stored results."""

    @property
    def file(self) -> str: ...

    def applied(self, settings: dict) -> dict:
        """A baseline's settings with those of the candidate."""


@dataclass(frozen=True)
class Task:
    """What is tuned. settings: the baseline's, as in config/baselines; tuning: the configuration's
    section; datasets: the study's, by binding; out: folder for the results; kept: folder for
    finished and unfinished training runs; prepared: the scene's prepared sources; weights: folder
    with published weights."""

    baseline: str
    settings: dict
    tuning: dict
    datasets: dict[str, Datasets]
    out: Path
    kept: Path
    protocol: Protocol
    device: torch.device
    prepared: Path | None = None
    weights: Path | None = None

    def baseline_settings(self) -> dict:
        """The baseline's settings, with as many epochs as the tuning has."""
        fewer = {"max_epochs": self.tuning["max_epochs"]} if self.tuning["max_epochs"] else {}
        return {**self.settings, **fewer}


class Trials:
    """Every candidate on every dataset of a task. sizes: the configuration key for batch sizes, for
    messages."""

    def __init__(self, task: Task, candidates: Sequence[Candidate], sizes: str):
        self.task, self.candidates, self.sizes = task, candidates, sizes
        tuning = task.tuning
        self.runs = [
            make_run(task.baseline, tuning["study"], binding, sample)
            for binding in task.datasets
            for sample in tuning["samples"]
        ]
        self.made_from = {
            run: dataset_metadata(task.datasets[run.binding], run.study, run.binding, run.sample)
            for run in self.runs
        }
        self.settings = task.baseline_settings()
        kind = kind_of(self.images)
        self.code = code_digest(task.settings, __name__, self.images["scene"], kind)
        self.versions = package_versions(task.settings)

    @property
    def study(self) -> str:
        return self.task.tuning["study"].upper()

    @property
    def images(self) -> dict:
        """The metadata of the first dataset's training images."""
        return self.made_from[self.runs[0]]["train"]

    def datasets(self) -> str:
        """The datasets trained on, for an entry's origin."""
        samples = ", ".join(map(str, self.task.tuning["samples"]))
        return f"{self.study} ({', '.join(self.task.datasets)}; dataset sample {samples})"

    def made(self, train_images: int) -> str:
        """The amount of training, for an entry's origin."""
        epochs = self.settings.get("max_epochs", self.task.protocol.max_epochs)
        return (
            f"{train_images} training images of {self.images['image_shape'][0]} pixels from "
            f"{self.images['sources']} sources and {epochs} epochs"
        )

    def outcomes(self) -> Iterator[tuple[Run, Candidate, dict]]:
        """Each training with its outcome: val_loss, selected_epoch, epochs, seconds, train_images,
        status (ok | diverged | out of memory), and history, the epochs of the last phase.

        A dataset's images are loaded once, and only if some candidate is not finished. DiagvibError
        if a batch is larger than the training data.
        """
        for run in self.runs:
            loaded = None
            for candidate in self.candidates:
                settings = candidate.applied(self.settings)
                made_by = digest(
                    {
                        "run": asdict(run),
                        "settings": settings,
                        "protocol": asdict(self.task.protocol),
                        "device": self.task.device.type,
                        "precision": self.task.protocol.on(self.task.device),
                        "images": self.made_from[run],
                        "code": self.code,
                        "versions": self.versions,
                    }
                )
                folder = self.task.kept / run.binding / str(run.sample)
                result = folder / f"{candidate.file}.json"
                checkpoint = Checkpoint(folder / f"{candidate.file}.pt", made_by)
                outcome = read_json(result) if result.exists() else {}
                if outcome.get("digest") != made_by:
                    loaded = loaded or self._load(run)
                    outcome = {
                        "digest": made_by,
                        **self._train(run, candidate, settings, loaded, checkpoint),
                    }
                    if outcome["status"] != "out of memory":  # another process may be to blame
                        write_json(result, outcome)
                checkpoint.remove()
                yield run, candidate, outcome

    def _load(self, run: Run) -> tuple[Batches, Batches, Tracker | None]:
        datasets, device = self.task.datasets[run.binding], self.task.device
        train = load_batches(
            datasets, run, "train", device, settings=self.settings, prepared=self.task.prepared
        )
        largest = max(
            candidate.applied(self.settings)["batch_size"] for candidate in self.candidates
        )
        if largest > len(train):
            raise DiagvibError(
                f"{datasets.path(run.sample, 'train')}: batch size {largest} is more than the "
                f"{len(train)} training images; lower {self.sizes}, or raise counts.train and render "
                "again"
            )
        job = Job(self.settings, self.task.protocol, device, datasets)
        tracker = make_tracker(job, run, train.scaling) if job.protocol.track_test else None
        return train, load_batches(datasets, run, "val", device, like=train), tracker

    def _train(
        self,
        run: Run,
        candidate: Candidate,
        settings: dict,
        loaded: tuple[Batches, Batches, Tracker | None],
        checkpoint: Checkpoint,
    ) -> dict:
        """One training's outcome. seconds: since it was started or continued."""
        number = (
            self.runs.index(run) * len(self.candidates) + list(self.candidates).index(candidate) + 1
        )
        name = f"{run.name}, {candidate} ({number} of {len(self.runs) * len(self.candidates)})"
        train, val, tracker = loaded
        outcome = {"val_loss": None, "selected_epoch": None, "epochs": None, "history": []}
        started = time.perf_counter()
        try:
            method = make_method(settings, train, self.task.protocol.seed, self.task.weights)
            with training_callback(name) as callback:
                fitted = Trainer(method, train, val, run, self.task.protocol).fit(
                    checkpoint, callback, tracker, cuda_graphs(self.task.device)
                )
            history = fitted.history
            outcome = {
                "val_loss": fitted.val_loss,
                "selected_epoch": fitted.selected_epoch,
                "epochs": len(history),
                "history": [row for row in history if row["phase"] == history[-1]["phase"]],
            }
            status = "ok"
            says = f"validation loss {fitted.val_loss:.4f}, epoch {fitted.selected_epoch} of {outcome['epochs']}"
        except Diverged:
            status, says = "diverged", "diverged"
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            status, says = "out of memory", "does not fit into the GPU's memory"
        seconds = time.perf_counter() - started
        print(f"{name}: {says}, {seconds:.0f} s", file=sys.stderr, flush=True)
        return {
            **outcome,
            "seconds": round(seconds, 2),
            "status": status,
            "train_images": len(train),
        }


def write_tuned(task: Task, table: pd.DataFrame, best: Candidate, origin: str) -> None:
    """Write the table of all training runs, and the best settings as an entry for
    config/baselines."""
    entry = shortened({**best.applied(task.settings), "origin": origin})
    entry = {key: entry[key] for key in ENTRY_KEYS if key in entry}
    write_text(task.out / f"{task.baseline}.csv", table.to_csv(index=False))
    write_text(
        task.out / f"{task.baseline}.yaml",
        yaml.safe_dump({task.baseline: entry}, sort_keys=False, default_flow_style=None, width=118),
    )
