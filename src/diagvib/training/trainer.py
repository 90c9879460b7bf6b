"""Training: epochs, batches, precision, early stopping and continuation, for any baseline; it names none."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError, Diverged
from diagvib.methods.method import Baseline, Phase
from diagvib.settings.grid import Run
from diagvib.training.adam import Adam
from diagvib.training.batches import Batches
from diagvib.training.checkpoints import Checkpoint, Checkpoints
from diagvib.training.in_place import InitialState, clear_optimiser, load_optimiser
from diagvib.training.protocol import Protocol, autocast, determined, epoch_seed, run_name
from diagvib.training.steps import CudaGraphs, Step, Tally, say_no_graph


class Watcher:
    """What looks on while a run is trained; this one looks away."""

    def on_run(self, history: list[dict]) -> None:
        """A run starts, or continues behind these epochs."""

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        """A phase starts; `epochs` are left at most."""

    def on_step(self, images: int) -> None:
        """So many images were trained on."""

    def on_epoch(self, row: dict) -> None:
        """An epoch is complete, and in the checkpoint, or on CUDA on its way there."""


@dataclass
class Progress:
    """How far a run is; with the weights and optimisers, all that a checkpoint holds."""

    phase: int = 0
    epochs_in_phase: int = 0
    best: dict = field(default_factory=dict)  # of this phase: epoch, val_loss, weights
    history: list[dict] = field(default_factory=list)
    finished: bool = False


# Further entries of an epoch's row, of the model after that epoch; called in phases that classify. Must change nothing.
Tracker = Callable[[Baseline], dict]


@dataclass(frozen=True)
class Timing:
    """The training steps of one epoch: their phase, images, and seconds until the device had done them."""

    phase: str
    images: int
    seconds: float


@dataclass(frozen=True)
class Fitted:
    """A finished training; the model holds the selected weights. timings: of the epochs trained here."""

    history: list[dict]
    selected_epoch: int
    val_loss: float
    timings: list[Timing]

    @property
    def images_per_second(self) -> float | None:
        """Over all training steps here; None if there were none."""
        seconds = sum(timing.seconds for timing in self.timings)
        return sum(timing.images for timing in self.timings) / seconds if seconds else None


def fit(model: Baseline, train: Batches, val: Batches, run: Run, protocol: Protocol, device: torch.device,
        checkpoint: Checkpoint | None = None, watcher: Watcher | None = None,
        tracker: Tracker | None = None, *, cuda_graphs: bool = True) -> Fitted:
    """Train `model` in place, phase by phase, and leave it on the device with the weights of lowest validation loss.

    `Trainer(model, ...).fit(...)`; a Trainer is for several runs of one model.
    """
    return Trainer(model, protocol, device, cuda_graphs).fit(train, val, run, checkpoint, watcher, tracker)


class Trainer:
    """A model on its device, with optimisers and recorded steps that serve one run after another.

    Every `fit` starts from the weights that the model was given with, as a new model would: parameters, buffers and
    optimisers are set back in place. (What a model keeps elsewhere, in plain attributes, is not.) cuda_graphs: whether
    a GPU's steps are recorded; that changes how fast they start, not what they compute.
    """

    def __init__(self, model: Baseline, protocol: Protocol, device: torch.device, cuda_graphs: bool = True):
        self._initial = InitialState(model)
        self.model = model.to(device, memory_format=torch.channels_last)
        self.protocol, self.device = protocol, device
        self.graphs = CudaGraphs(device) if cuda_graphs and device.type == "cuda" else None
        self._optimisers: dict[str, dict[str, torch.optim.Optimizer]] = {}
        self._steps: dict[str, Step] = {}
        self._images: Batches | None = None
        self._used = False

    def fit(self, train: Batches, val: Batches, run: Run, checkpoint: Checkpoint | None = None,
            watcher: Watcher | None = None, tracker: Tracker | None = None) -> Fitted:
        """Train on a dataset, and leave the model with the weights of lowest validation loss.

        Continues from `checkpoint` if that holds a state. On the CPU the outcome is the same, bit for bit, however
        often the run was interrupted, however many cores there are, and whatever was trained here before. tracker:
        adds to the rows of the history. Paper, Sec. A.2. DiagvibError if the batch is larger than the training data;
        Diverged if the loss is no longer a number.
        """
        batch_size = self.model.settings["batch_size"]
        if batch_size > len(train):
            raise DiagvibError(f"{run_name(run)}: batch_size {batch_size} is more than the {len(train)} training "
                               f"images; lower batch_size of {run.baseline} in config/baselines.yaml, or raise "
                               "counts.train")
        if self._used:
            self._initial.restore(self.model)
        self._used = True
        if train is not self._images or not train.resident:
            self._images, self._steps = train, {}
        if self.graphs and not train.resident:
            say_no_graph("the images do not fit into the GPU's memory and stay in the host's")
        with (determined(self.device, self.protocol.threads), self.graphs.running() if self.graphs else nullcontext(),
              Checkpoints(checkpoint, aside=self.device.type == "cuda").finished() as checkpoints):
            fitted = _Training(self, train, val, run, checkpoint, checkpoints, watcher or Watcher(), tracker).fit()
        self._steps = {phase: step for phase, step in self._steps.items() if step.recorded}
        if not self._steps:
            self._images = None
        return fitted

    def optimisers(self, phase: Phase) -> dict[str, torch.optim.Optimizer]:
        """A phase's optimisers, as new."""
        if phase.name in self._optimisers:
            for optimiser in self._optimisers[phase.name].values():
                clear_optimiser(optimiser)
        else:
            # Fused on the CPU too: it is the faster one there for small nets, and as deterministic.
            self._optimisers[phase.name] = {
                name: Adam(given.parameters, lr=given.lr, betas=given.betas, fused=True)
                for name, given in self.model.optimisers(phase.name).items()}
        return self._optimisers[phase.name]

    def step(self, phase: str, work: Callable[[Tensor, Tally], None]) -> Step:
        """A phase's step: `work`, or what was recorded of it with the images where they still are."""
        if phase not in self._steps or not self._steps[phase].recorded:
            graphs = self.graphs if self._images.resident else None
            self._steps[phase] = Step(work, self._optimisers[phase].values(), graphs, self.device)
        return self._steps[phase]


class _Training:
    """The state of one `fit`."""

    def __init__(self, trainer: Trainer, train: Batches, val: Batches, run: Run, checkpoint: Checkpoint | None,
                 checkpoints: Checkpoints, watcher: Watcher, tracker: Tracker | None):
        self.trainer, self.model, self.protocol = trainer, trainer.model, trainer.protocol
        self.train, self.val, self.run, self.device = train, val, run, trainer.device
        self.checkpoint, self.checkpoints, self.watcher, self.tracker = checkpoint, checkpoints, watcher, tracker
        self.progress = Progress()
        self.optimisers: dict[str, torch.optim.Optimizer] = {}
        self.steps = len(train) // self.model.settings["batch_size"]
        self.timings: list[Timing] = []

    def fit(self) -> Fitted:
        phases = self.model.phases()
        self.optimisers = self.trainer.optimisers(phases[0])
        self._restore(phases)
        self.watcher.on_run(self.progress.history)
        while not self.progress.finished:
            phase = phases[self.progress.phase]
            self._train_phase(phase)
            self.model.load_state_dict(self.progress.best["weights"])
            if self.progress.phase + 1 < len(phases):
                self.progress.phase += 1
                self.progress.epochs_in_phase, self.progress.best = 0, {}
                self.optimisers = self.trainer.optimisers(phases[self.progress.phase])
            else:
                self.progress.finished, self.optimisers = True, {}
            self._save()
        best = self.progress.best
        return Fitted(self.progress.history, best["epoch"], best["val_loss"], self.timings)

    def _restore(self, phases: list[Phase]) -> None:
        state = self.checkpoint.read() if self.checkpoint else None
        if state is None:
            return
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["weights"])
        self.optimisers = self.trainer.optimisers(phases[self.progress.phase])
        for name, saved in state["optimisers"].items():
            load_optimiser(self.optimisers[name], saved)

    def _save(self) -> None:
        # No state of a random generator: every epoch seeds its own from the run's names.
        self.checkpoints.write({
            "progress": vars(self.progress), "weights": self.model.state_dict(),
            "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()}})

    def _train_phase(self, phase: Phase) -> None:
        progress = self.progress
        epochs = phase.max_epochs or self.protocol.max_epochs
        self.watcher.on_start(epochs - progress.epochs_in_phase, self.steps * self.model.settings["batch_size"])
        step = self.trainer.step(phase.name, lambda index, tally: self._step(phase.name, index, tally))
        while progress.epochs_in_phase < epochs and not self._out_of_patience():
            row = self._epoch(phase, step)
            progress.history.append(row)
            progress.epochs_in_phase += 1
            if row["val_loss"] < progress.best.get("val_loss", math.inf):
                weights = {name: value.clone() for name, value in self.model.state_dict().items()}
                progress.best = {"epoch": row["epoch"], "val_loss": row["val_loss"], "weights": weights}
            self._save()
            self.watcher.on_epoch(row)

    def _out_of_patience(self) -> bool:
        if self.protocol.patience is None or not self.progress.best:
            return False
        return self.progress.history[-1]["epoch"] - self.progress.best["epoch"] >= self.protocol.patience

    def _epoch(self, phase: Phase, step: Step) -> dict:
        epoch = len(self.progress.history) + 1
        started = time.perf_counter()
        train = self._learn(step, epoch)
        self.timings.append(Timing(phase.name, self.steps * self.model.settings["batch_size"],
                                   time.perf_counter() - started))
        val = self._validate(phase)
        row = {"epoch": epoch, "phase": phase.name, "train_loss": train[0], "train_accuracy": train[1],
               "val_loss": val[0], "val_accuracy": val[1]}
        for key in ("train_loss", "val_loss"):
            if not math.isfinite(row[key]):
                raise Diverged(f"{run_name(self.run)}: {key} is {row[key]} in epoch {epoch}; lower lr of "
                               f"{self.run.baseline} in config/baselines.yaml (now {self.model.settings['lr']})"
                               + ("" if self._precision == "fp32" else ", or set training.precision: fp32"))
        if self.tracker and row["val_accuracy"] is not None:
            row |= self.tracker(self.model)
        return row

    def _learn(self, step: Step, epoch: int) -> tuple[float, float | None]:
        seed = epoch_seed(self.run, self.protocol.seed, epoch)
        # For dropout and for baselines that draw noise.
        torch.manual_seed(seed)
        size = self.model.settings["batch_size"]
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        order = order[:self.steps * size].view(self.steps, size).to(self.train.pixels.device)
        self.model.train()
        step.tally.clear()
        for index in order:
            step(index)
            self.watcher.on_step(size)
        return step.tally.means(self.steps * size)

    def _step(self, phase: str, index: Tensor, tally: Tally) -> None:
        batch = self.train.batch(index)
        with self._autocast():
            outcome = self.model.training_step(phase, batch, self._update)
        tally.add(outcome, batch)

    def _update(self, name: str, loss: Tensor) -> None:
        optimiser = self.optimisers[name]
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, enabled=False):
            loss.backward(inputs=parameters)
        optimiser.step()

    @torch.inference_mode()
    def _validate(self, phase: Phase) -> tuple[float, float | None]:
        torch.manual_seed(epoch_seed(self.run, self.protocol.seed, 0))
        self.model.eval()
        tally = Tally(self.device)
        for batch in self.val.in_order():
            with self._autocast():
                outcome = self.model.validation_step(phase.name, batch)
            tally.add(outcome, batch)
        return tally.means(len(self.val))

    @property
    def _precision(self) -> str:
        return self.protocol.on(self.device)

    def _autocast(self) -> torch.autocast:
        return autocast(self._precision, self.device)


@torch.inference_mode()
def predict(model: Baseline, images: Batches, protocol: Protocol) -> tuple[Tensor, Tensor]:
    """Predicted class index int64[N] and its probability float32[N] for every image, on the CPU."""
    parts = []
    with determined(images.device, protocol.threads):
        model.eval()
        for batch in images.in_order():
            with autocast(protocol.on(images.device), images.device):
                logits = model.predict(batch)
            parts.append(logits.float().softmax(1).max(1))
    return torch.cat([p.indices for p in parts]).cpu(), torch.cat([p.values for p in parts]).cpu()
