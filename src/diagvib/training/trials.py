"""The training runs of a tuning: one baseline with several settings, on several datasets. Each is
kept when finished, so that a killed tuning continues."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pandas as pd
import yaml

from diagvib.foundation.errors import Diverged
from diagvib.foundation.files import read_json, write_json, write_text
from diagvib.foundation.messages import say
from diagvib.foundation.parallel import free_memory
from diagvib.foundation.plug_ins import out_of_memory
from diagvib.images.datasets import Datasets
from diagvib.provenance.code import package_versions
from diagvib.settings.baselines import shortened
from diagvib.settings.keys import Tuning
from diagvib.settings.layout import Run
from diagvib.settings.ranges import with_values
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.fit import fit
from diagvib.training.job import Job
from diagvib.training.load import Loaded, dataset_metadata, load


@dataclass(frozen=True)
class Trial:
    """Settings to try. name: for people; file: for its stored results; values: the settings tried,
    by key; own: whether they are the baseline's own."""

    name: str
    file: str
    values: dict
    own: bool = False

    def applied(self, settings: dict) -> dict:
        """A baseline's settings with those of the trial."""
        return settings if self.own else with_values(settings, self.values)


@dataclass(frozen=True)
class Task:
    """A baseline to tune. job: how it is trained, with the baseline's own settings and without
    images; tuning: the configuration's section; datasets: the study's, by binding; out: folder for
    the results; folder: of for finished and unfinished training runs."""

    baseline: str
    job: Job
    tuning: Tuning
    datasets: dict[str, Datasets]
    out: Path
    folder: Path

    @property
    def study(self) -> str:
        return self.tuning.study.upper()

    def on_datasets(self) -> str:
        """The datasets trained on, for an entry's origin."""
        samples = ", ".join(map(str, self.tuning.samples))
        return f"{self.study} ({', '.join(self.datasets)}; dataset sample {samples})"

    def training_amount(self, train_images: int) -> str:
        """The amount of training, for an entry's origin."""
        metadata = next(iter(self.datasets.values())).metadata(self.tuning.samples[0], "train")
        epochs = self.job.settings.get("max_epochs", self.job.protocol.max_epochs)
        return (
            f"{train_images} training images of {metadata['image_shape'][0]} pixels from "
            f"{metadata['sources']} sources and {self.tuning.max_epochs or epochs} epochs"
        )

    def write(self, table: pd.DataFrame, best: Trial, origin: str) -> None:
        """Write the table of all training runs, and the best settings as an entry for
        config/baselines."""
        entry = shortened({**best.applied(self.job.settings), "origin": origin})
        text = yaml.safe_dump(
            {self.baseline: entry}, sort_keys=False, default_flow_style=None, width=118
        )
        write_text(self.out / f"{self.baseline}.csv", table.to_csv(index=False))
        write_text(self.out / f"{self.baseline}.yaml", text)


def outcomes(task: Task, trials: Sequence[Trial]) -> Iterator[tuple[Run, Trial, dict]]:
    """Train with every trial's settings on every dataset: val_loss, selected_epoch, epochs,
    train_images, status (ok | diverged | out of memory), and history, the epochs of the last phase.

    A dataset's images are loaded once, and only if some trial is not finished. DiagvibError if a
    batch is larger than the training data.
    """
    fewer = {"max_epochs": task.tuning.max_epochs} if task.tuning.max_epochs else {}
    settings, count = {**task.job.settings, **fewer}, 0
    versions = package_versions(settings)
    total = len(trials) * len(task.datasets) * len(task.tuning.samples)
    for (binding, datasets), sample in product(task.datasets.items(), task.tuning.samples):
        run = Run(task.baseline, task.tuning.study, binding, sample)
        metadata, loaded = dataset_metadata(datasets, run), None
        job = replace(task.job, settings=settings, datasets=datasets, versions=versions)
        job = replace(job, code=job.present_code(run))
        folder = task.folder / binding / str(sample)
        for trial in trials:
            count += 1
            trial_job = replace(job, settings=trial.applied(settings))
            provenance = trial_job.expected_provenance(run, metadata)
            checkpoint = trial_job.checkpoint(provenance, folder / f"{trial.file}.pt")
            result = folder / f"{trial.file}.json"
            outcome = read_json(result) if result.exists() else {}
            if outcome.get("digest") != checkpoint.digest:
                loaded = loaded or load(job, run)
                name = f"{run.name}, {trial.name} ({count} of {total})"
                trained = train_trial(trial_job, run, loaded, checkpoint, name)
                free_memory()
                outcome = {"digest": checkpoint.digest, **trained}
                if outcome["status"] != "out of memory":
                    write_json(result, outcome)
            if outcome["status"] != "out of memory":  # else another process may be to blame
                checkpoint.remove()
            yield run, trial, outcome


def parts(task: Task, trials: Sequence[Trial]) -> dict[str, tuple[str, int, int]]:
    """By its name, each training: the binding, the dataset sample and the number of the trial."""
    return {
        f"{task.baseline}/{task.tuning.study}/{binding}/{sample}, {trial.name}": (
            binding,
            sample,
            number,
        )
        for binding, sample in product(task.datasets, task.tuning.samples)
        for number, trial in enumerate(trials)
    }


def train_part(task: Task, trials: Sequence[Trial], part: tuple[str, int, int]) -> None:
    """Train one of the `parts`, unless it is finished."""
    binding, sample, number = part
    tuning = task.tuning.model_copy(update={"samples": [sample]})
    datasets = {binding: task.datasets[binding]}
    for _ in outcomes(replace(task, tuning=tuning, datasets=datasets), [trials[number]]):
        pass


def train_trial(job: Job, run: Run, loaded: Loaded, checkpoint: Checkpoint, name: str) -> dict:
    """One training's outcome."""
    outcome = {"val_loss": None, "selected_epoch": None, "epochs": None, "history": []}
    started = time.perf_counter()
    try:
        _, fitted = fit(job, run, loaded, checkpoint, name)
        history = fitted.history
        outcome = {
            "val_loss": fitted.val_loss,
            "selected_epoch": fitted.selected_epoch,
            "epochs": len(history),
            "history": [row for row in history if row["phase"] == history[-1]["phase"]],
        }
        status = "ok"
        says = f"validation loss {fitted.val_loss:.4f}, epoch {fitted.selected_epoch} of {len(history)}"
    except Diverged:
        status = says = "diverged"
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        status, says = "out of memory", "does not fit into the GPU's memory"
    seconds = time.perf_counter() - started
    say(f"{name}: {says}, {seconds:.0f} s")
    return {**outcome, "status": status, "train_images": len(loaded.train)}
