"""The one interface between the trainer and every baseline: a training step, a validation step and a prediction."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from diagvib.foundation.errors import unknown_name
from diagvib.foundation.seeding import name_digest


@dataclass(frozen=True)
class Batch:
    """Images of one batch, on the training device.

    pixels: uint8[B, H, W, 3] as rendered. inputs: float32[B, 3, H, W], the same z-scored per channel.
    labels: int64[B], indices into all classes of the target factor.
    """

    pixels: Tensor
    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Outcome:
    """What a step tells about a batch: loss float[B], one value per image; logits [B, classes], None where the phase
    does not classify."""

    loss: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class Optimiser:
    """What one Adam optimiser moves, and how. A parameter that no optimiser of a phase holds is frozen in it."""

    parameters: Sequence[nn.Parameter]
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class Phase:
    """A stretch of training with its own optimisers and its own best weights. max_epochs None: the protocol's."""

    name: str
    max_epochs: int | None = None


@dataclass(frozen=True)
class Exhibit:
    """Pictures for people to look at, of one kind.

    what: a word or two for the kind. pixels: uint8[N, H, W, 3]; one for each image of the batch or, of a latent
    `dimension`, one for each of `values` that it takes while the rest of the first image's code stands still.
    logits [N, classes]: what the classifier says to each picture, where it was asked. kl: nats that the dimension
    carries.
    """

    what: str
    pixels: Tensor
    logits: Tensor | None = None
    dimension: int | None = None
    values: Sequence[float] = ()
    kl: float | None = None


# Inputs, float[N, 3, H, W] z-scored as a batch's, back to uint8[N, H, W, 3].
ToPixels = Callable[[Tensor], Tensor]

# update("net", loss): one Adam step of the optimiser of that name; gradients reach its own parameters only.
Update = Callable[[str, Tensor], None]


class Baseline(nn.Module):
    """A model with its training method.

    As it stands it trains `self.net` (images -> logits) by cross entropy with one Adam optimiser (paper, Sec. A.2); a
    subclass for a classifier only makes `self.net`. Others override what differs: `phases` for training in several
    stretches, `optimisers` and `training_step` for several optimisers or frozen parts, `validation_step` for the loss
    that selects a phase's weights, and always `predict`. The trainer calls nothing else, moves the module to the
    device and switches `train()` / `eval()`. No step may read a value back from the device: that would stall it.
    `exhibits` offers pictures, where there is something to see.
    """

    net: nn.Module

    def __init__(self, settings: dict):
        super().__init__()
        self.settings = settings

    def options(self, **defaults) -> dict:
        """`options` of the settings over these defaults. DiagvibError for an option that is not among them."""
        given = self.settings.get("options", {})
        for name in given:
            if name not in defaults:
                raise unknown_name("option", name, defaults, f"kind: {self.settings['kind']}")
        return {**defaults, **given}

    def phases(self) -> list[Phase]:
        return [Phase("classify", self.settings.get("max_epochs"))]

    def optimisers(self, phase: str) -> dict[str, Optimiser]:
        return {"net": Optimiser(list(self.net.parameters()), self.settings["lr"], tuple(self.settings["betas"]))}

    def training_step(self, phase: str, batch: Batch, update: Update) -> Outcome:
        """Learn from one batch, through one or more calls of `update`."""
        outcome = self.validation_step(phase, batch)
        update("net", outcome.loss.mean())
        return outcome

    def validation_step(self, phase: str, batch: Batch) -> Outcome:
        """Loss per image, whose mean over the validation images selects the phase's weights."""
        logits = self.predict(batch)
        return Outcome(F.cross_entropy(logits.float(), batch.labels, reduction="none"), logits)

    def predict(self, batch: Batch) -> Tensor:
        """Logits [B, classes]. Must not look at the labels."""
        return self.net(batch.inputs)

    def exhibits(self, batch: Batch, to_pixels: ToPixels) -> list[Exhibit]:
        """Pictures of what the baseline makes of a few test images, drawn once, after training; by default none."""
        return []


class _SeededDraws(TorchDispatchMode):
    """Every random draw gets a seed of its own: of `seed`, the operation, the shape it fills and its bounds, and how
    many draws with all of these the same came before."""

    def __init__(self, seed: int):
        super().__init__()
        self._seed, self._drawn = seed, Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch would load its compiler, to keep it from what it never sees

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if torch.Tag.nondeterministic_seeded in function.tags:
            name = f"{function}{[getattr(argument, 'shape', argument) for argument in arguments]}"
            digest = name_digest(self._seed, name, self._drawn[name])
            self._drawn[name] += 1
            torch.random.default_generator.manual_seed(int.from_bytes(digest[:7], "big"))
        return function(*arguments, **(keywords or {}))


def initialised(make: Callable[[], Baseline], seed: int) -> Baseline:
    """A baseline whose initial weights depend on `seed` and their shapes alone; no global random state moves.

    Drawn one after another, everything behind the last layer, which torchvision makes first, would depend on its size,
    hence on the number of classes. As it is, only tensors with that number in their shape do (paper, A.2: one
    initialisation for all experiments), and each is distributed as its layer has it.
    """
    with torch.random.fork_rng(devices=[]), _SeededDraws(seed):
        return make()
