"""`llr`, last-layer retraining: a new last layer, learnt from training images that the network has
not seen (LaBonte et al., 2023); and the base of methods that do it in other ways."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.methods.groups import balancing_weights
from diagvib.methods.method import Method, Phase, TrainingData
from diagvib.methods.sizes import check_held_out


@dataclass
class Selection:
    """Keeps the best epoch of a head. features: of the validation images, float[N, D]; rank: as in
    `TrainingData`. epochs: those kept, from 1, one for each head."""

    features: Tensor
    rank: Callable[[Tensor], tuple[float, ...]] | None = None
    epochs: list[int] = field(default_factory=list)

    def keep_best(self, head: nn.Module, epochs: Iterable) -> None:
        """Go through the epochs, which train the head, and leave it as it was after the best; of
        equal ones, the first."""
        best_score, best_epoch, weights = (), 0, head.state_dict()
        for epoch, _ in enumerate(epochs, 1):
            with torch.no_grad():
                score = self.rank(head(self.features)) if self.rank else (epoch,)
            if score > best_score:
                best_score, best_epoch = score, epoch
                weights = {name: value.clone() for name, value in head.state_dict().items()}
        head.load_state_dict(weights)
        self.epochs.append(best_epoch)


class Retraining(Method):
    """Phase `classify`: plain training on all but a random share of the training images,
    `held_out`. Then `retrain`, of a subclass, changes the head, given these images' features,
    unaugmented and in evaluation mode; of the head's epochs, the run's rule of selection keeps one.
    The phase `retrain` itself has one epoch, without updates, which measures the head.

    images: `validation` trains on all training images, and takes those of validation for the head;
    then the same images select.
    """

    options = {
        "images": {"enum": ["training", "validation"], "default": "training"},
        "held_out": {
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "default": 0.2,
        },
    }
    unused_if = {"held_out": {"images": ["validation"]}}
    uses_head = True

    def setup(self, data):
        super().setup(data)
        self.apart = self.options.images == "validation"
        if self.apart:
            check_validated(data, self.name)
        self.source = data.validation if self.apart else data
        n = len(self.source)
        held_out = torch.randperm(n) < (n if self.apart else self.options.held_out * n)
        self.memory["held_out"] = held_out.to(data.labels.device)

    def retrain(self, features: Tensor, labels: Tensor, selection: Selection) -> None:
        """features: float32[M, D]; labels: int64[M]."""
        raise NotImplementedError

    def phases(self, data):
        return [*super().phases(data), Phase("retrain", 1, "last")]

    def start_phase(self, phase, data):
        if phase == "retrain":
            features, labels = self.held_out()
            selection = Selection(self._validation_features(data), data.rank)
            with torch.autocast(features.device.type, enabled=False):
                self.retrain(features, labels, selection)
            self.memory["head_epochs"] = torch.tensor(selection.epochs)

    @property
    def selections(self):
        return {"head_epochs": self.memory["head_epochs"].tolist()}

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The features, float32[M, D], and labels, int64[M], of the images for the head."""
        is_held_out = self.memory["held_out"]
        inputs = (batch.inputs[is_held_out[batch.index]] for batch in self.source.in_order())
        return self._features(inputs), self.source.labels[is_held_out]

    def _validation_features(self, data: TrainingData) -> Tensor:
        """float32[N, D]; of no image if the last epoch is kept."""
        images = data.validation.in_order() if data.rank else ()
        return self._features(batch.inputs for batch in images)

    @torch.no_grad()
    def _features(self, inputs: Iterable[Tensor]) -> Tensor:
        self.eval()
        parts = [self.model.features(batch).float() for batch in inputs if len(batch)]
        return torch.cat(parts) if parts else torch.empty(0, 1)

    def optimisers(self, phase):
        return {} if phase == "retrain" else super().optimisers(phase)

    def sampling(self, phase, data):
        if self.apart:
            return None
        held_out = self.memory["held_out"]
        if phase != "retrain" and held_out.all():
            method = {"name": self.name, "held_out": self.options.held_out}
            check_held_out(method, len(held_out))
        return (held_out if phase == "retrain" else ~held_out).nonzero().flatten()

    def training_step(self, phase, batch, update):
        if phase != "retrain":
            return super().training_step(phase, batch, update)
        with torch.no_grad():
            return self.eval().validation_step(phase, batch)


def check_validated(data: TrainingData, name: str) -> None:
    """DiagvibError if a head is learnt from validation images, but none is of some class that the
    network is trained on, since this head would never predict it. name: the method's."""
    validated = set(data.validation.labels.tolist())
    absent = [data.classes[label] for label in {*data.labels.tolist()} - validated]
    if absent:
        raise DiagvibError(
            f"method: {name}: images: validation: no validation image is of {some_names(absent)}, which "
            "training images are of; raise counts.val, or choose images: training"
        )


class Llr(Retraining):
    """A new head by cross entropy and SGD, `head_epochs` of the held-out images in batches of
    batch_size. class_balanced: drawn with replacement, every class equally often."""

    options = {
        "class_balanced": {"default": False},
        "head_epochs": {"minimum": 1, "maximum": 100_000, "default": 100},
        "head_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 3.0e-3},
    }

    def retrain(self, features, labels, selection):
        head, size = self.model.head, self.settings["batch_size"]
        head.reset_parameters()
        weights = balancing_weights(labels, self.n_classes) if self.options.class_balanced else None
        epochs = batches(len(labels), size, self.options.head_epochs, weights)
        selection.keep_best(head, fit(head, features, labels, epochs, self.options.head_lr))


def batches(
    n: int, size: int, epochs: int, weights: Tensor | None = None
) -> Iterator[Sequence[Tensor]]:
    """The batches of each epoch, indices int64[B] of n images, from torch's CPU generator: each
    image once, or n drawn with replacement with these weights, float[n]. The last batch of an epoch
    may be smaller."""
    for _ in range(epochs):
        index = torch.randperm(n) if weights is None else torch.multinomial(weights.cpu(), n, True)
        yield index.split(size)


def fit(
    head: nn.Module,
    features: Tensor,
    labels: Tensor,
    epochs: Iterable[Sequence[Tensor]],
    lr: float,
) -> Iterator[None]:
    """SGD on the mean cross entropy of these epochs' batches, with the momentum and weight decay of
    LaBonte et al. (2023). features: float[M, D]; labels: int64[M]."""
    entropy = nn.CrossEntropyLoss()
    decayed = {"lr": lr, "momentum": 0.9, "weight_decay": 1e-4}
    return descend(
        head, epochs, lambda index: entropy(head(features[index]), labels[index]), **decayed
    )


def descend(
    module: nn.Module,
    epochs: Iterable[Iterable],
    loss: Callable[..., Tensor],
    clip: float = torch.inf,
    **sgd: float,
) -> Iterator[None]:
    """A step of SGD on the loss of each batch of each epoch; yields after each epoch. clip: the
    largest norm of a step's gradient; sgd: torch's arguments."""
    optimiser = torch.optim.SGD(module.parameters(), **sgd)
    for epoch in epochs:
        for batch in epoch:
            optimiser.zero_grad()
            loss(batch).backward()
            nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimiser.step()
        yield
