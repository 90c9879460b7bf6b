"""Training, from top to bottom: phases, epochs, sampling, batches, step, validation, selection,
checkpoint.

It names no method: methods differ in the hooks of `methods.method.Method` that it calls.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import torch
from torch import Tensor

from diagvib.foundation.devices import device_name, machine
from diagvib.foundation.errors import DiagvibError, Diverged, one_line, within
from diagvib.foundation.seeding import seed_generators
from diagvib.methods.method import Method, Phase, Sampling
from diagvib.settings.layout import Run
from diagvib.training.batches import Batches
from diagvib.training.callbacks import Callback
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.epochs import check_sampling, epoch_batches, epoch_shape
from diagvib.training.optimisers import forget_where, make_optimiser
from diagvib.training.plain_state import changed_place, plain_state
from diagvib.training.protocol import Protocol, deterministic, epoch_seed
from diagvib.training.running_metrics import (
    RunningMetrics,
    cue_preferences,
    group_accuracies,
    worst_inferred_group,
)
from diagvib.training.selection_rules import INFERRED, score

# Computes further entries of an epoch's row from the method; called in phases that classify,
# changes nothing.
Tracker = Callable[[Method], dict]


@dataclass
class Progress:
    """The progress of a run; with the weights, the method's state and the optimisers, this is all a
    checkpoint contains."""

    phase: int = 0
    epochs_in_phase: int = 0
    best: dict = field(default_factory=dict)  # of this phase: epoch, val_loss, score, weights
    history: list[dict] = field(default_factory=list)
    sampling: Sampling = None  # of this phase
    finished: bool = False
    places: list[tuple[str, str]] = field(default_factory=list)  # device and machine, in order


@dataclass(frozen=True)
class Timing:
    """The training steps of one epoch: their phase, images, and seconds until the device had
    finished them."""

    phase: str
    images: int
    seconds: float


@dataclass(frozen=True)
class Fitted:
    """A finished training; the method has the selected weights. timings: of the epochs trained
    here. places: the devices and machines that it was trained on, in order."""

    history: list[dict]
    selected_epoch: int
    val_loss: float
    timings: list[Timing]
    places: list[tuple[str, str]]

    @property
    def trained_on(self) -> dict[str, str]:
        """`A then B`, if a run that began on the device or machine A was continued on B."""
        devices, machines = (
            " then ".join(name for name, _ in groupby(names))
            for names in zip(*self.places, strict=True)
        )
        return {"device": devices, "machine": machines}

    @property
    def images_per_second(self) -> float | None:
        """Over all training steps made here; None if there were none."""
        seconds = sum(timing.seconds for timing in self.timings)
        return sum(timing.images for timing in self.timings) / seconds if seconds else None


class Trainer:
    """Trains one method in one run. On the CPU the result is the same, bit for bit, however often
    the run was interrupted and however many cores there are. Paper, Sec. A.2."""

    # Whoever makes or calls it may have switched gradients off.
    @torch.inference_mode(False)
    def __init__(self, method: Method, train: Batches, val: Batches, run: Run, protocol: Protocol):
        self.device = train.device
        self.method, self.run, self.protocol = method, run, protocol
        method.to(self.device, memory_format=torch.channels_last)
        self.train, self.val = train, val
        self.batch_size = method.settings["batch_size"]
        self.selection = method.settings.get("selection", "val_loss")
        self.drop_last = method.settings.get("drop_last", True)
        self.data = replace(
            train.training_data(),
            validation=val.training_data(),
            max_epochs=method.settings.get("max_epochs") or protocol.max_epochs,
            rank=None if self.selection == "last" else self.rank,
        )
        self.progress = Progress()
        self.optimisers: dict[str, torch.optim.Optimizer] = {}
        self.timings: list[Timing] = []

    @torch.inference_mode(False)
    @torch.enable_grad()
    def fit(
        self,
        checkpoint: Checkpoint | None = None,
        callback: Callback | None = None,
        tracker: Tracker | None = None,
    ) -> Fitted:
        """Train phase by phase, and leave the method with the weights selected in the last one.

        Continues from `checkpoint` if that contains a state. tracker: adds to the rows of the
        history. DiagvibError, beginning with the run's name, if the data lack what the method or
        the selection needs, or are fewer than a batch; Diverged if the loss is no longer
        a number.
        """
        self.callback, self.tracker = callback or Callback(), tracker
        self.checkpoint = checkpoint
        with within(self.run.name), deterministic(self.device, self.protocol.threads):
            selection_rules, self._given = self._check(), self._versions()
            seed_generators(self._phase_seed)
            self.method.setup(self.data)
            self.phases = self._plan(selection_rules)
            self._plain = plain_state(self.method)
            restored, place = self._restore(), (device_name(self.device), machine())
            if self.progress.places[-1:] != [place]:
                self.progress.places.append(place)
            if not restored:
                self._start_phase()
            self.callback.on_run(self.progress.history)
            while not self.progress.finished:
                self._train_phase()
                self._end_phase()
        best = self.progress.best
        history, places = self.progress.history, self.progress.places
        return Fitted(history, best["epoch"], best["val_loss"], self.timings, places)

    @property
    def phase(self) -> Phase:
        return self.phases[self.progress.phase]

    def _plan(self, selection_rules: Sequence[str]) -> Sequence[Phase]:
        """The method's phases. selection_rules: those that the images allow."""
        phases, name = self.method.phases(self.data), self.method.name
        listed = isinstance(phases, Sequence) and len(phases) > 0
        if not listed or not all(isinstance(phase, Phase) for phase in phases):
            raise DiagvibError(
                f"method: phases of {name} gives {one_line(repr(phases), 120)}; a list of one or more "
                'phases is needed, such as [Phase("classify")], of diagvib.methods.method'
            )
        for phase in phases:
            max_epochs, selection = phase.max_epochs, phase.selection
            valid = max_epochs is None or (isinstance(max_epochs, int) and max_epochs > 0)
            if not valid or selection not in (None, *selection_rules):
                raise DiagvibError(
                    f"method: {phase} of {name}: max_epochs must be None or an integer from 1 up, and "
                    f"selection None or one of {', '.join(selection_rules)}"
                )
        return phases

    def _start_phase(self) -> None:
        seed_generators(self._phase_seed)
        with self.protocol.autocast(self.device):
            self.method.start_phase(self.phase.name, self.data)
        self._make_optimisers()
        seed_generators(self._phase_seed)
        sampling = self.method.sampling(self.phase.name, self.data)
        check_sampling(sampling, len(self.train))
        self.progress.sampling = sampling

    def _make_optimisers(self) -> None:
        optimisers = self.method.optimisers(self.phase.name)
        parameters = {*self.method.parameters()}
        for name, optimiser in optimisers.items():
            if not optimiser.parameters:
                raise DiagvibError(
                    f"method: the optimiser {name} of {self.method.name} has nothing to train: no "
                    "parameter of its modules has requires_grad; leave some trainable, or set "
                    "model.frozen: true, which trains a head on the network's features"
                )
            if not parameters.issuperset(optimiser.parameters):
                raise DiagvibError(
                    f"method: the optimiser {name} of {self.method.name} has parameters that are none "
                    "of the method's, so they would be neither selected nor kept; put lists of "
                    "modules into an nn.ModuleList"
                )
        self.optimisers = {
            name: make_optimiser(optimiser) for name, optimiser in optimisers.items()
        }

    def _train_phase(self) -> None:
        progress, phase, sampling = self.progress, self.phase, self.progress.sampling
        images, _ = epoch_shape(sampling, len(self.train), self.batch_size, self.drop_last)
        epochs = phase.max_epochs or self.protocol.max_epochs
        self.callback.on_start(epochs - progress.epochs_in_phase, images)
        while progress.epochs_in_phase < epochs and not self._out_of_patience():
            self._schedule(progress.epochs_in_phase / epochs)
            row = self._epoch(sampling)
            progress.history.append(row)
            progress.epochs_in_phase += 1
            self.select(row)
            self._save()
            self.callback.on_epoch(row)

    def _schedule(self, fraction: float) -> None:
        """Set the learning rates of an epoch. fraction: of the phase's epochs, those before it."""
        if self.method.settings.get("schedule") == "cosine":
            for optimiser in self.optimisers.values():
                for group in optimiser.param_groups:
                    initial_rate = group.setdefault("initial_lr", group["lr"])
                    group["lr"] = initial_rate * 0.5 * (1 + math.cos(math.pi * fraction))

    def _end_phase(self) -> None:
        self.method.load_state_dict(self.progress.best["weights"])
        if self.progress.phase + 1 < len(self.phases):
            self.progress.phase += 1
            self.progress.epochs_in_phase, self.progress.best = 0, {}
            self._start_phase()
        else:
            self.progress.finished, self.optimisers = True, {}
        self._save()

    def _epoch(self, sampling: Sampling) -> dict:
        epoch = len(self.progress.history) + 1
        train_loss, train_accuracy = self.learn(
            sampling, epoch_seed(self.run, self.protocol.seed, epoch)
        )
        row = {
            "epoch": epoch,
            "phase": self.phase.name,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            **self.validate(),
        }
        self._check_losses(row)
        self._check_state()
        if self.tracker and row["val_accuracy"] is not None:
            row |= self.tracker(self.method)
        return row

    def _check_state(self) -> None:
        """DiagvibError for state that a checkpoint would not have."""
        name, reason = self.method.name, "which a run that continues would not repeat"
        if self._versions() != self._given:
            raise DiagvibError(
                f"method: {name} changes images or labels in place, {reason}; change a copy (`clone()`), "
                "and keep it in `self.memory`"
            )
        for key, value in self.method.memory.items():
            if not isinstance(value, Tensor):
                raise DiagvibError(
                    f"method: self.memory of {name} has {key}, of type {type(value).__name__}, but a "
                    "checkpoint keeps tensors; write torch.tensor(...)"
                )
        if place := changed_place(self._plain, plain_state(self.method)):
            raise DiagvibError(
                f"method: {name} changes {place} while it trains, {reason}, since it is no parameter or "
                "buffer; keep it as a tensor in `self.memory`, or make it in `setup`"
            )

    def _versions(self) -> list[int]:
        """How often each tensor of images and labels has been changed in place."""
        return [
            tensor._version
            for batches in (self.train, self.val)
            for tensor in (batches.pixels, batches.labels, batches.cues, batches.environment)
        ]

    def learn(self, sampling: Sampling, seed: int) -> tuple[float, float | None]:
        started = time.perf_counter()
        # For dropout and for methods that draw noise.
        seed_generators(seed)
        batches = epoch_batches(
            sampling,
            len(self.train),
            self.batch_size,
            torch.Generator().manual_seed(seed),
            self.drop_last,
        )
        images = sum(map(len, batches))
        metrics = RunningMetrics(self.device, self.method.n_classes)
        self.method.train()
        self._updated = False
        # All indices at once, so that no step waits for a copy of its own.
        for index in torch.cat(batches).to(self.device).split(len(batches[0])):
            batch = self.train.batch(index)
            with self.protocol.autocast(self.device):
                output = self.method.training_step(self.phase.name, batch, self._update)
            metrics.add(output, batch)
            self.callback.on_step(len(index))
        if self.optimisers and not self._updated:
            raise DiagvibError(
                f"method: training_step of {self.method.name} never called update in the phase "
                f"{self.phase.name}, so nothing was trained; call update(name, loss) in each step"
            )
        means = metrics.means(images)
        self.timings.append(Timing(self.phase.name, images, time.perf_counter() - started))
        return means

    def _update(
        self,
        name: str,
        loss: Tensor | None = None,
        forget: Tensor | None = None,
        step: bool = True,
    ) -> None:
        self._updated |= step
        optimiser = self.optimisers[name]
        if forget is not None:
            forget_where(optimiser, forget)
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        if loss is not None:
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, enabled=False):
                loss.backward(inputs=parameters)
        elif all(parameter.grad is None for parameter in parameters):
            raise DiagvibError(
                f"method: {self.method.name} calls update({name!r}) without a loss, but there are no "
                "gradients; call update(name, loss, step=False) before"
            )
        if step:
            optimiser.step()

    @torch.inference_mode()
    def validate(self) -> dict:
        seed_generators(epoch_seed(self.run, self.protocol.seed, 0))
        self.method.eval()
        metrics, predicted = RunningMetrics(self.device, self.method.n_classes), []
        for batch in self.val.in_order():
            with self.protocol.autocast(self.device):
                output = self.method.validation_step(self.phase.name, batch)
            metrics.add(output, batch)
            if output.logits is not None:
                predicted.append(output.logits.argmax(1))
        loss, accuracy = metrics.means(len(self.val))
        row = {"val_loss": loss, "val_accuracy": accuracy}
        if accuracy is not None:
            prediction = torch.cat(predicted)
            row |= self._group_accuracies(prediction)
            row |= cue_preferences(prediction, self.val.cue_label)
        return row

    def _group_accuracies(self, prediction: Tensor) -> dict[str, float]:
        val, inferred = self.val, self.method.memory.get("validation_group")
        correct, environments = prediction == val.labels, len(self.data.environments)
        row = group_accuracies(correct, val.labels, val.cues, val.environment, environments)
        return row if inferred is None else row | worst_inferred_group(correct, inferred)

    def rank(self, logits: Tensor) -> tuple[float, float]:
        """How good these logits of the validation images are by the rule of selection."""
        prediction = logits.argmax(1)
        accuracy = (prediction == self.val.labels).double().mean().item()
        row = {"val_accuracy": accuracy}
        if self.selection == "val_loss":
            row["val_loss"] = self.method.losses(logits, self.val.labels).double().mean().item()
        elif self.selection != "val_accuracy":
            row |= self._group_accuracies(prediction)
        return score(row, self.selection)

    def select(self, row: dict) -> None:
        """Keep the weights if this epoch is better than all before in its phase."""
        rule = self.phase.selection or self.selection
        if row["val_accuracy"] is None and rule != "last":
            rule = "val_loss"
        value = score({**row, "last": len(self.progress.history)}, rule)
        if value > self.progress.best.get("score", (-math.inf,)):
            self.progress.best = {
                "epoch": row["epoch"],
                "val_loss": row["val_loss"],
                "score": value,
                "weights": {
                    name: value.clone() for name, value in self.method.state_dict().items()
                },
            }

    def _out_of_patience(self) -> bool:
        progress, patience = self.progress, self.protocol.patience
        if patience is None or not progress.best:
            return False
        return len(progress.history) - progress.best["epoch"] >= patience

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        # No state of a random generator: every epoch seeds its own from the run's names.
        self.checkpoint.write(
            {
                "progress": vars(self.progress),
                "weights": self.method.state_dict(),
                "memory": {name: value.detach() for name, value in self.method.memory.items()},
                "optimisers": {
                    name: optimiser.state_dict() for name, optimiser in self.optimisers.items()
                },
            }
        )

    def _restore(self) -> bool:
        """Whether there was a state to continue from."""
        state = self.checkpoint.read() if self.checkpoint else None
        if state is None:
            return False
        self.progress = Progress(**state["progress"])
        try:
            self.method.load_state_dict(state["weights"])
        except RuntimeError as error:
            raise DiagvibError(
                f"method: {self.method.name} cannot continue ({one_line(error, 120)}); make its modules "
                f"in `build` or `setup`, not later, and delete {self.checkpoint.path}"
            ) from None
        self.method.memory = {
            name: value.to(self.device) for name, value in state["memory"].items()
        }
        self._make_optimisers()
        for name, saved in state["optimisers"].items():
            self.optimisers[name].load_state_dict(saved)
        return True

    def _check(self) -> list[str]:
        """The rules of selection that validation offers."""
        if self.batch_size > len(self.train):
            raise DiagvibError(
                f"batch_size {self.batch_size} is more than the {len(self.train)} "
                f"training images; lower the batch_size of {self.run.baseline}, or raise counts.train"
            )
        groups = self._group_accuracies(self.val.labels)
        selection_rules = ["val_loss", "val_accuracy", "last", *groups]
        if self.method.groups_validation:
            selection_rules.append(INFERRED)
        if self.selection not in selection_rules:
            raise DiagvibError(
                f"selection: {self.selection} of {self.run.baseline} needs cues or environments that "
                f"the study lacks, or groups that {self.method.name} does not infer; choose one of "
                f"{', '.join(selection_rules)}"
            )
        return selection_rules

    def _check_losses(self, row: dict) -> None:
        bf16 = self.protocol.on(self.device) != "fp32"
        for key in ("train_loss", "val_loss"):
            if not math.isfinite(row[key]):
                raise Diverged(
                    f"{key} is {row[key]} in epoch {row['epoch']}; lower the lr of "
                    f"{self.run.baseline} (now {self.method.settings['optimiser']['lr']})"
                    f"{self._numbers()}{', or set training.precision: fp32' if bf16 else ''}"
                )

    def _numbers(self) -> str:
        """The options of the method that are numbers, which may be to blame for a loss."""
        options = vars(self.method.options).items()
        numbers = [f"{key} {value:g}" for key, value in options if type(value) in (int, float)]
        return f", or change the options of its method ({', '.join(numbers)})" * bool(numbers)

    @property
    def _phase_seed(self) -> int:
        return epoch_seed(self.run, self.protocol.seed, -1 - self.progress.phase)
