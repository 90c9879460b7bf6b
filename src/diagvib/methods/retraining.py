"""`llr`, last-layer retraining: a new last layer, learnt from training images that the network has
not seen (LaBonte et al., 2023); and the base of methods that do it in other ways."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.groups import balancing_weights
from diagvib.methods.method import Method, Phase


class Retraining(Method):
    """Phase `classify`: plain training on all but a random share of the training images,
    `held_out`. Then `retrain`, of a subclass, changes the head, given these images' features,
    unaugmented and in evaluation mode. The phase `retrain` has one epoch, without updates, which
    measures it.

    images: `validation` trains on all training images, and takes those of validation for the head.
    """

    options = {
        "images": {"enum": ["training", "validation"], "default": "training"},
        "held_out": {
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "default": 0.2,
        },
    }
    uses_head = True

    def setup(self, data):
        super().setup(data)
        self.apart = self.options.images == "validation"
        self.source = data.validation if self.apart else data
        n = len(self.source)
        held = torch.randperm(n) < (n if self.apart else self.options.held_out * n)
        self.memory["held_out"] = held.to(data.labels.device)

    def retrain(self, features: Tensor, labels: Tensor) -> None:
        """features: float32[M, D]; labels: int64[M]."""
        raise NotImplementedError

    def phases(self, data):
        return [*super().phases(data), Phase("retrain", 1, "last")]

    def start_phase(self, phase, data):
        if phase == "retrain":
            features, labels = self.held_out()
            with torch.autocast(features.device.type, enabled=False):
                self.retrain(features, labels)

    @torch.no_grad()
    def held_out(self) -> tuple[Tensor, Tensor]:
        """The features, float32[M, D], and labels, int64[M], of the images for the head."""
        self.eval()
        held = self.memory["held_out"]
        inputs = (batch.inputs[held[batch.index]] for batch in self.source.in_order())
        features = [self.model.features(each) for each in inputs if len(each)]
        return torch.cat(features).float(), self.source.labels[held]

    def optimisers(self, phase):
        return {} if phase == "retrain" else super().optimisers(phase)

    def sampling(self, phase, data):
        if self.apart:
            return None
        held = self.memory["held_out"]
        if phase != "retrain" and held.all():
            raise DiagvibError(
                f"method: {self.name}: held_out: {self.options.held_out} leaves none of the "
                f"{len(held)} training images to the network; lower it, or raise counts.train"
            )
        return (held if phase == "retrain" else ~held).nonzero().flatten()

    def training_step(self, phase, batch, update):
        if phase != "retrain":
            return super().training_step(phase, batch, update)
        with torch.no_grad():
            return self.eval().validation_step(phase, batch)


class Llr(Retraining):
    """A new head by cross entropy and SGD, `head_epochs` of the held-out images in batches of
    batch_size. class_balanced: drawn with replacement, every class equally often."""

    options = {
        "class_balanced": {"default": False},
        "head_epochs": {"minimum": 1, "maximum": 100_000, "default": 100},
        "head_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 3.0e-3},
    }

    def retrain(self, features, labels):
        head, size = self.model.head, self.settings["batch_size"]
        head.reset_parameters()
        weights = balancing_weights(labels, self.n_classes) if self.options.class_balanced else None
        drawn = batches(len(labels), size, self.options.head_epochs, weights)
        fit(head, features, labels, drawn, self.options.head_lr)


def batches(n: int, size: int, epochs: int, weights: Tensor | None = None) -> Iterator[Tensor]:
    """Indices int64[B] of n images, from torch's CPU generator: each once per epoch, or n drawn
    with replacement with these weights, float[n]. The last batch of an epoch may be smaller."""
    for _ in range(epochs):
        drawn = torch.randperm(n) if weights is None else torch.multinomial(weights.cpu(), n, True)
        yield from drawn.split(size)


def fit(
    head: nn.Module, features: Tensor, labels: Tensor, batches: Iterable[Tensor], lr: float
) -> None:
    """SGD on the mean cross entropy of these batches, with the momentum and weight decay of LaBonte
    et al. (2023). features: float[M, D]; labels: int64[M]."""
    entropy = nn.CrossEntropyLoss()
    decayed = {"lr": lr, "momentum": 0.9, "weight_decay": 1e-4}
    descend(head, batches, lambda at: entropy(head(features[at]), labels[at]), **decayed)


def descend(
    module: nn.Module,
    batches: Iterable,
    loss: Callable[..., Tensor],
    clip: float = torch.inf,
    **sgd: float,
) -> None:
    """A step of SGD on the loss of each batch. clip: the largest norm of a step's gradient; sgd:
    torch's arguments."""
    optimiser = torch.optim.SGD(module.parameters(), **sgd)
    for batch in batches:
        optimiser.zero_grad()
        loss(batch).backward()
        nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimiser.step()
