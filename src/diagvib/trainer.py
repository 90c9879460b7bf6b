"""Training: epochs, batches, precision, early stopping and continuation, for any baseline; it names none."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from diagvib.baselines.base import Baseline, Batch, Outcome, Phase
from diagvib.batches import Batches
from diagvib.checkpoints import Checkpoint
from diagvib.errors import DiagvibError
from diagvib.grid import Run
from diagvib.randomness import name_digest


@dataclass(frozen=True)
class Protocol:
    """The `training` part of the configuration. patience None: all epochs. threads: CPU threads, part of the result.

    track_test: the history also tells each epoch's accuracy on the test groups, which select nothing.
    """

    max_epochs: int
    patience: int | None
    seed: int
    precision: str = "bf16"
    threads: int = 1
    track_test: bool = False

    def on(self, device: torch.device) -> str:
        """The precision used: bf16 only on CUDA, where it is fast."""
        return self.precision if device.type == "cuda" else "fp32"


class Watcher:
    """What looks on while a run is trained; this one looks away."""

    def on_start(self, epochs: int, images_per_epoch: int) -> None:
        """A phase starts; `epochs` are left at most."""

    def on_step(self, images: int) -> None:
        """So many images were trained on."""

    def on_epoch(self, row: dict) -> None:
        """An epoch is complete, and in the checkpoint."""


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
class Fitted:
    """A finished training; the model holds the selected weights. images_per_second: of the training steps here."""

    history: list[dict]
    selected_epoch: int
    val_loss: float
    images_per_second: float | None


def fit(model: Baseline, train: Batches, val: Batches, run: Run, protocol: Protocol, device: torch.device,
        checkpoint: Checkpoint | None = None, watcher: Watcher | None = None,
        tracker: Tracker | None = None) -> Fitted:
    """Train `model` in place, phase by phase, and leave it on the device with the weights of lowest validation loss.

    Continues from `checkpoint` if that holds a state. On the CPU the outcome is the same, bit for bit, however often
    the run was interrupted and however many cores there are. tracker: adds to the rows of the history. Paper, Sec. A.2.
    DiagvibError if the batch is larger than the training data, or the loss is no longer a number.
    """
    batch_size = model.settings["batch_size"]
    if batch_size > len(train):
        raise DiagvibError(f"{run_name(run)}: batch_size {batch_size} is more than the {len(train)} training images; "
                           f"lower batch_size of {run.baseline} in config/baselines.yaml, or raise counts.train")
    with determined(device, protocol.threads):
        return _Training(model, train, val, run, protocol, device, checkpoint, watcher or Watcher(), tracker).fit()


class _Training:
    """The state of one `fit`."""

    def __init__(self, model: Baseline, train: Batches, val: Batches, run: Run, protocol: Protocol,
                 device: torch.device, checkpoint: Checkpoint | None, watcher: Watcher, tracker: Tracker | None):
        self.model = model.to(device, memory_format=torch.channels_last)
        self.train, self.val, self.run, self.protocol, self.device = train, val, run, protocol, device
        self.checkpoint, self.watcher, self.tracker = checkpoint, watcher, tracker
        self.progress = Progress()
        self.optimisers: dict[str, torch.optim.Optimizer] = {}
        self.steps = len(train) // model.settings["batch_size"]
        self.seconds, self.images = 0.0, 0

    def fit(self) -> Fitted:
        phases = self.model.phases()
        self._make_optimisers(phases[0])
        self._restore(phases)
        while not self.progress.finished:
            phase = phases[self.progress.phase]
            self._train_phase(phase)
            self.model.load_state_dict(self.progress.best["weights"])
            if self.progress.phase + 1 < len(phases):
                self.progress.phase += 1
                self.progress.epochs_in_phase, self.progress.best = 0, {}
                self._make_optimisers(phases[self.progress.phase])
            else:
                self.progress.finished, self.optimisers = True, {}
            self._save()
        best = self.progress.best
        speed = self.images / self.seconds if self.images else None
        return Fitted(self.progress.history, best["epoch"], best["val_loss"], speed)

    def _make_optimisers(self, phase: Phase) -> None:
        # Fused on the CPU too: it is the faster one there for small nets, and as deterministic.
        self.optimisers = {
            name: torch.optim.Adam(given.parameters, lr=given.lr, betas=given.betas, fused=True)
            for name, given in self.model.optimisers(phase.name).items()}

    def _restore(self, phases: list[Phase]) -> None:
        state = self.checkpoint.read() if self.checkpoint else None
        if state is None:
            return
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["weights"])
        self._make_optimisers(phases[self.progress.phase])
        for name, saved in state["optimisers"].items():
            self.optimisers[name].load_state_dict(saved)

    def _save(self) -> None:
        if self.checkpoint:
            # No state of a random generator: every epoch seeds its own from the run's names.
            self.checkpoint.write({
                "progress": vars(self.progress), "weights": self.model.state_dict(),
                "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()}})

    def _train_phase(self, phase: Phase) -> None:
        progress = self.progress
        epochs = phase.max_epochs or self.protocol.max_epochs
        self.watcher.on_start(epochs - progress.epochs_in_phase, self.steps * self.model.settings["batch_size"])
        while progress.epochs_in_phase < epochs and not self._out_of_patience():
            row = self._epoch(phase)
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

    def _epoch(self, phase: Phase) -> dict:
        epoch = len(self.progress.history) + 1
        started = time.perf_counter()
        train = self._learn(phase, epoch)
        self.seconds += time.perf_counter() - started
        self.images += self.steps * self.model.settings["batch_size"]
        val = self._validate(phase)
        row = {"epoch": epoch, "phase": phase.name, "train_loss": train[0], "train_accuracy": train[1],
               "val_loss": val[0], "val_accuracy": val[1]}
        for key in ("train_loss", "val_loss"):
            if not math.isfinite(row[key]):
                raise DiagvibError(f"{run_name(self.run)}: {key} is {row[key]} in epoch {epoch}; lower lr of "
                                   f"{self.run.baseline} in config/baselines.yaml (now {self.model.settings['lr']})"
                                   + ("" if self._precision == "fp32" else ", or set training.precision: fp32"))
        if self.tracker and row["val_accuracy"] is not None:
            row |= self.tracker(self.model)
        return row

    def _learn(self, phase: Phase, epoch: int) -> tuple[float, float | None]:
        seed = epoch_seed(self.run, self.protocol.seed, epoch)
        # For dropout and for baselines that draw noise.
        torch.manual_seed(seed)
        size = self.model.settings["batch_size"]
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
        order = order[:self.steps * size].view(self.steps, size).to(self.train.pixels.device)
        self.model.train()
        tally = Tally(self.device)
        for index in order:
            batch = self.train.batch(index)
            with self._autocast():
                outcome = self.model.training_step(phase.name, batch, self._update)
            tally.add(outcome, batch)
            self.watcher.on_step(size)
        return tally.means(self.steps * size)

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


class Tally:
    """Sums of losses and of correct predictions, kept on the device: reading them once an epoch is the only wait."""

    def __init__(self, device: torch.device):
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._classifies = True

    def add(self, outcome: Outcome, batch: Batch) -> None:
        self._loss += outcome.loss.detach().sum(dtype=torch.float64)
        if outcome.logits is None:
            self._classifies = False
        else:
            self._correct += (outcome.logits.detach().argmax(1) == batch.labels).sum()

    def means(self, images: int) -> tuple[float, float | None]:
        """Mean loss and share of correct images; None where the phase does not classify."""
        return self._loss.item() / images, self._correct.item() / images if self._classifies else None


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


def autocast(precision: str, device: torch.device) -> torch.autocast:
    # Without the cache: a step may update weights more than once, and a cached copy would then be stale.
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


def run_name(run: Run) -> str:
    """The run's name in messages, which is also its folder's."""
    return f"{run.baseline}/{run.study}/{run.pair}/{run.sample}"


def epoch_seed(run: Run, seed: int, epoch: int) -> int:
    """Seed of one epoch's order and noise; the same for every baseline on the same data."""
    return int.from_bytes(name_digest(seed, run.study, run.pair, run.sample, epoch)[:7], "big")


@contextmanager
def determined(device: torch.device, threads: int) -> Iterator[None]:
    """Fix what torch would otherwise take from the machine or the process, and put it back afterwards.

    On the CPU the number of threads decides the order of sums, hence the last bits of every result.
    """
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    # Deterministic algorithms would otherwise also fill every new tensor, which costs time and decides nothing here.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
    # Batches of one shape only, so the search for the fastest convolution pays.
    with (torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.type == "cuda" else []),
          torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False)):
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            torch.use_deterministic_algorithms(before[1])
