"""The interface between the trainer and all training methods: hooks, of which each method overrides
some.

A method has a network, `model`, and defines how it learns. By itself, `Method` is cross entropy on
that network.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.hooks import check_hooks
from diagvib.foundation.seeding import generators_restored, name_seed, seed_generators
from diagvib.methods.supervision import check_supervision
from diagvib.models.network import Network
from diagvib.models.registry import make_network


@dataclass(frozen=True)
class Unlabelled:
    """Images to classify, on the training device.

    pixels: uint8[B, H, W, 3] as rendered. inputs: float32[B, 3, H, W], the pixels z-scored per
    channel. With a frozen network, both are its features, [B, D].
    """

    pixels: Tensor
    inputs: Tensor


@dataclass(frozen=True)
class Batch(Unlabelled):
    """Images to learn from, with what is known about them.

    labels: int64[B], indices into all classes of the target factor. cues: int64[B, k], likewise for
    each cue's factor. environment: int64[B]. index: int64[B], which images of the split these are.
    """

    labels: Tensor
    cues: Tensor
    environment: Tensor
    index: Tensor


class Counterfactuals(Protocol):
    """Further images and facts that a scene can provide about its training images; tensors on the
    training device."""

    def exchanged(self, index: Tensor, cue: int, donors: Tensor) -> Tensor:
        """The images `index`, int64[B], each with one cue, by its number from 0, taken from the
        image `donors`, int64[B]: its class and every value that realises it. Nothing else changes.
        Pixels uint8[B, H, W, 3]."""

    def object_boxes(self, index: Tensor) -> Tensor:
        """A box around each image's object: first row, first column, and those after the last,
        int64[B, 4]."""


@dataclass(frozen=True, repr=False)
class TrainingData:
    """All N training images, as far as a method may know them; tensors on the training device.

    labels int64[N], cues int64[N, k], environment int64[N] as in a `Batch`. classes: names of the
    target's classes; cue_classes: those of each cue, by the cue's name; environments: names.
    in_order: every image once, in batches. batch: the images of these indices, int64[B]. inputs:
    pixels uint8[B, H, W, 3] as inputs. counterfactuals: present if a method `needs` them.
    validation: the same about the validation images. rank: of logits of all validation images, [N,
    classes], by the run's rule of selection, the larger the better; None: it keeps the last.
    augment: the baseline's random changes to training images, uint8[B, H, W, 3]; `batch` has
    applied them, `in_order` has not. views: of a frozen network, features of changed training
    images, float[N, D], by the change.
    """

    labels: Tensor
    cues: Tensor
    environment: Tensor
    classes: Sequence[str]
    cue_classes: dict[str, Sequence[str]]
    environments: Sequence[str]
    in_order: Callable[[], Iterable[Batch]]
    batch: Callable[[Tensor], Batch]
    inputs: Callable[[Tensor], Tensor]
    counterfactuals: Counterfactuals | None = None
    validation: "TrainingData | None" = None
    rank: Callable[[Tensor], tuple[float, ...]] | None = None
    max_epochs: int = 1
    augment: Callable[[Tensor], Tensor] = lambda pixels: pixels
    views: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class StepOutput:
    """The results of a step on a batch: loss float[B], one value per image; logits [B, classes],
    None if the phase does not classify; labels, what counts as correct: int64[B], or the largest
    share of float[B, classes]. None: the batch's own."""

    loss: Tensor
    logits: Tensor | None = None
    labels: Tensor | None = None


@dataclass(frozen=True)
class Optimiser:
    """The parameters that one optimiser updates, and its settings, as in a baseline's `optimiser`,
    including its name. A parameter that no optimiser of a phase holds is frozen in that phase."""

    parameters: Sequence[nn.Parameter]
    settings: dict


@dataclass(frozen=True)
class Phase:
    """A stretch of training with its own optimisers and its own best weights. max_epochs None: the
    protocol's; selection None: the baseline's."""

    name: str
    max_epochs: int | None = None
    selection: str | None = None


@dataclass(frozen=True)
class Visualisation:
    """Pictures for people to look at, of one kind.

    what: a word or two for the kind. pixels: uint8[N, H, W, 3]; one for each image of the batch or,
    for a latent `dimension`, one for each of `values` that it takes while the rest of the first
    image's code is fixed. logits [N, classes]: the classifier's prediction for each picture, if it
    was asked. kl: nats of information in the dimension.
    """

    what: str
    pixels: Tensor
    logits: Tensor | None = None
    dimension: int | None = None
    values: Sequence[float] = ()
    kl: float | None = None


# Inputs, float[N, 3, H, W] z-scored like a batch's, back to uint8[N, H, W, 3].
Denormalise = Callable[[Tensor], Tensor]


class Update(Protocol):
    """One step of the optimiser of that name, or only a part of it."""

    def __call__(
        self,
        name: str,
        loss: Tensor | None = None,
        forget: Tensor | None = None,
        step: bool = True,
    ) -> None:
        """loss: float[], whose gradients replace the earlier ones, of the optimiser's own parameters
        only; None: the gradients that are there. forget, bool[] on the device: where it is true, the
        optimiser is reset first. step: False only computes the gradients, as each parameter's `grad`,
        for a step that asks twice before it moves."""


# The results that `Method.sampling` may return.
Sampling = Tensor | list[Tensor] | None


class Method(nn.Module):
    """How a network learns. By itself: cross entropy, one phase, one optimiser (paper, Sec. A.2).

    A subclass overrides what differs. In the order in which the trainer calls them: `setup`,
    `phases` and `start_phase`; `optimisers`; `sampling`, the images of an epoch; in every step `augment`,
    `combine` (the images' losses into one), `penalty` (on features); methods that need more
    override `training_step`, `validation_step` or `predict`. The trainer moves the module to the
    device, seeds the global generators of torch, NumPy and Python's `random` for every epoch and
    every start of a phase, from which all randomness comes, and switches `train()` / `eval()`. No
    step may read a value back from the device: that would stall it.

    A killed run continues with what a checkpoint holds: parameters, buffers, `memory` and the
    optimisers. `build`, `setup` and `phases` are called again; what a step or `start_phase` writes to any
    other attribute, such as a counter, is lost.

    `supervision`, `options`, `own_network`, `trains`, `needs`, `pixels`, `uses_features`,
    `every_group`, `pairs_if`, `environment_images`, `halvings` and `groups_validation`, and
    `unused_if` and `reads_views` (`methods.registry.Declaration`), are read from the source, without
    running it, so that a configuration is checked quickly: they must be written as literals.
    """

    # The labels besides the target's that it can use: "none", "cues" (the class of each cue), "cue"
    # (of one, `supervision: cue-2`), "cue_types" (which factors are cues, but no classes) and
    # "environments"; the first is the default of the option `supervision`.
    supervision: Sequence[str] = ("none",)
    # Option -> its JSON schema with a default, which gives the type of numbers and truth values
    # unless the schema does. A subclass adds to those of its bases.
    options: Any = {}
    # Whether it builds its own network; then a baseline names no `model`.
    own_network = False
    # Whether it trains anything; if not, the network needs a head of its own, `head: published`.
    trains = True
    # Abilities that the scene must have: "exchange" cues between images, "object_boxes". Provided as
    # `data.counterfactuals`.
    needs: Sequence[str] = ()
    # Whether it changes pixels or reads more of them than features, and so cannot train a head on
    # stored features.
    pixels = False
    # Whether it needs images of every combination of classes of the target and the cues of its
    # supervision.
    every_group = False
    # Options with which it needs two of each of these, such as to choose by one half of a group.
    pairs_if: ClassVar[Mapping] = {}
    # How many images of every environment it needs in a batch.
    environment_images = 0
    # The option that says how often it halves images, or "map": until they have 4 to 7 cells per
    # side.
    halvings = ""
    # Whether it asks something of the features, so that these must be trained.
    uses_features = False
    # Whether it needs a network whose head it may replace, or apply to anything but the features of
    # the latest pass.
    uses_head = False
    # Whether it groups the validation images, too, in `memory["validation_group"]`, int64[N]; then
    # their worst group can select epochs.
    groups_validation = False

    @property
    def selections(self) -> Mapping[str, Sequence[int]]:
        """Selections within phases, for the metrics of a finished training, from its
        `memory`."""
        return {}

    @property
    def doubts(self) -> Sequence[str]:
        """Reasons to distrust a finished training, from its `memory`."""
        return ()

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        check_hooks(cls, Method, "method")

    def __init__(self, settings: dict, n_classes: int, image_size: int):
        """settings: a baseline's, as `load_settings` gives them."""
        super().__init__()
        self.settings, self.n_classes, self.image_size = settings, n_classes, image_size
        # Its options, with `supervision` and `name`.
        self.options = SimpleNamespace(**settings["method"])
        self.name = settings["method"]["name"]
        # State carried from step to step or phase to phase in addition to weights: in checkpoints,
        # not with the weights.
        self.memory: dict[str, Tensor] = {}
        self.build()

    def build(self) -> None:
        """Make the network, and anything else with weights; random ones from torch's global
        generator. DiagvibError if the network lacks features or a head that the method uses."""
        self.model = self._new_network()
        reason = f"but model {self.settings['model']['name']} does not"
        if (self.uses_features or self.uses_head) and not self.model.has_features:
            raise DiagvibError(
                f"method: {self.name} needs features, {reason} end in a linear layer that reads them"
            )
        if self.uses_head and not (self.model.separable and isinstance(self.model.head, nn.Linear)):
            raise DiagvibError(
                f"method: {self.name} needs a head of its own, {reason} say where a linear one begins; "
                "return diagvib.models.network.Network(body, head)"
            )

    def _new_network(self) -> Network:
        """A network as the baseline names it, with random weights of its own."""
        return make_network(self.settings["model"], self.n_classes, self.image_size)

    def setup(self, data: TrainingData) -> None:
        """Make what depends on the training data, such as groups or `memory`. Called once, on the
        new weights, before anything else, also when a run continues.

        Keeps the data as `self.data`, for the steps. DiagvibError if they lack the labels that the
        method uses.
        """
        self.data = data
        check_supervision(vars(self.options), len(data.cue_classes), len(data.environments))

    def phases(self, data: TrainingData) -> list[Phase]:
        """The phases in their order. Called once, after `setup`."""
        return [Phase("classify", self.settings.get("max_epochs"))]

    def start_phase(self, phase: str, data: TrainingData) -> None:
        """Before a phase's first epoch, with the weights selected in the previous one; not when a
        run continues."""

    def optimisers(self, phase: str) -> dict[str, Optimiser]:
        """The optimisers of a phase, by the names that `update` takes; {} if nothing is trained."""
        return {"model": self.optimiser(self.model)}

    def optimiser(self, *modules: nn.Module, **changed) -> Optimiser:
        """An optimiser of everything trainable in these modules: the baseline's, with some settings
        changed."""
        trained = [
            parameter
            for module in modules
            for parameter in module.parameters()
            if parameter.requires_grad
        ]
        return Optimiser(trained, {**self.settings["optimiser"], **changed})

    def sampling(self, phase: str, data: TrainingData) -> Sampling:
        """The images that an epoch of this phase consists of. None: each once.

        float[N]: N images, drawn with replacement with these weights. int64[M]: those with these
        indices, which may repeat, in random order. A list of int64[M]: every batch has equally many
        of each of these sets, set after set, as many as batch_size allows; an epoch has as many
        steps as with None, and a set that is exhausted within an epoch starts again.
        """
        return None

    def augment(self, batch: Batch) -> Batch:
        """The batch to train on; its labels may become float[B, classes], shares that sum to 1."""
        return batch

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of every image, float[B]; labels: int64[B], or float[B, classes]."""
        return F.cross_entropy(logits.float(), labels, reduction="none")

    def combine(self, losses: Tensor, batch: Batch) -> Tensor:
        """A batch's losses as one, float[B] -> float[]."""
        return losses.mean()

    def penalty(self, features: Tensor, batch: Batch) -> Tensor | None:
        """A term added to the loss, float[], from features float[B, D]; None: nothing."""
        return None

    def training_step(self, phase: str, batch: Batch, update: Update) -> StepOutput:
        """Learn from one batch, through one or more calls of `update`."""
        plain, batch = batch, self.augment(batch)
        if batch.pixels is not plain.pixels and batch.inputs is plain.inputs:
            raise DiagvibError(
                f"method: augment of {self.name} changes the pixels of a batch and not its inputs, which "
                "the network sees; change these, too, such as by self.data.inputs(pixels)"
            )
        features = self.model.features(batch.inputs)
        logits = self.model.head(features)
        losses = self.losses(logits, batch.labels)
        penalty = self.penalty(features, batch)
        if penalty is not None and not penalty.requires_grad:
            raise DiagvibError(
                f"method: the penalty of {self.name} depends on nothing that is trained, so it would "
                "do nothing; choose a network whose features are trained, or another method"
            )
        loss = self.combine(losses, batch)
        update("model", loss if penalty is None else loss + penalty)
        return StepOutput(losses, logits, batch.labels)

    def validation_step(self, phase: str, batch: Batch) -> StepOutput:
        """Loss per image, whose mean over the validation images selects the phase's weights."""
        logits = self.predict(batch)
        return StepOutput(self.losses(logits, batch.labels), logits)

    def predict(self, batch: Unlabelled) -> Tensor:
        """Logits [B, classes]."""
        return self.model(batch.inputs)

    def visualisations(self, batch: Unlabelled, denormalise: Denormalise) -> list[Visualisation]:
        """Pictures of what the method sees in a few test images, drawn once, after training; by
        default none."""
        return []


class _SeededDraws(TorchDispatchMode):
    """Gives every random draw its own seed: from `seed`, the operation, the shape it fills and its
    bounds, and the number of earlier draws with the same values of all these."""

    def __init__(self, seed: int):
        super().__init__()
        self._seed, self._drawn = seed, Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch would load its compiler, which is not used

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if torch.Tag.nondeterministic_seeded in function.tags:
            name = f"{function}{[getattr(argument, 'shape', argument) for argument in arguments]}"
            seed = name_seed(self._seed, name, self._drawn[name])
            self._drawn[name] += 1
            torch.random.default_generator.manual_seed(seed)
        return function(*arguments, **(keywords or {}))


def initialised(make: Callable[[], Method], seed: int) -> Method:
    """A method whose initial weights depend only on `seed` and their shapes; the state of the global
    generators does not change.

    If they were drawn one after another, everything after the last layer, which torchvision makes
    first, would depend on its size, hence on the number of classes. Drawn separately, only tensors
    with that number in their shape do (paper, A.2: one initialisation for all experiments), and
    each has its layer's distribution.
    """
    with generators_restored():
        seed_generators(seed)
        with _SeededDraws(seed):
            return make()
