"""`dpe`, diverse prototypical ensembles: classes are recognised by their distances from prototypes,
of which there are many, learnt one after the other and unlike each other (To et al., 2025)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diagvib.methods.groups import equal_groups, group_index, random_share
from diagvib.methods.retraining import Retraining, batches, descend


class Dpe(Retraining):
    """`members` sets of prototypes, one per class, read the features of held-out images, each
    image's standardised to mean 0 and variance 1. Each set is fitted for `head_epochs` of SGD to a
    subset of its own, with equally many images of every class, or of every group; the run's rule of
    selection keeps one epoch of each. Groups: target x all cues (`supervision: cues`), or x one
    (`cue-1`). With groups, the share `held_out` of each is held out, but at least one image. A
    prediction is the mean of the sets' probabilities.

    The logits are minus the distances, times a learnt scale (`Prototypes`). The loss is the cross
    entropy of `entropic_scale` times the logits, plus `shrinkage` times the mean squared norm of
    the prototypes, plus `diversity` times their `overlap` with earlier sets. That is divided by D -
    1; the published weight belongs to features of width D = 2,048.
    """

    supervision = ("none", "cues", "cue")
    every_group = True
    options = {
        "members": {"minimum": 1, "maximum": 1000, "default": 16},
        "head_epochs": {"minimum": 1, "maximum": 100_000, "default": 20},
        "head_lr": {"exclusiveMinimum": 0, "maximum": 1000, "default": 1.0e-3},
        "entropic_scale": {"exclusiveMinimum": 0, "maximum": 1.0e9, "default": 20.0},
        "shrinkage": {"minimum": 0, "maximum": 1.0e9, "default": 10.0},
        "diversity": {"minimum": 0, "maximum": 1.0e9, "default": 1.0e5},
    }

    def build(self):
        super().build()
        width = self.model.head.in_features
        self.members = nn.ModuleList(
            Prototypes(self.n_classes, width) for _ in range(self.options.members)
        )
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    def setup(self, data):
        super().setup(data)
        supervision, self.group = self.options.supervision, self.source.labels
        if supervision != "none":
            self.group, groups = group_index(self.source, supervision, self.name)
            if not self.apart:
                share = self.options.held_out
                self.memory["held_out"] = random_share(self.group, groups, share)

    def retrain(self, features, labels, selection):
        features = standardised(features)
        selection.features = standardised(selection.features)
        groups, group = self.group[self.memory["held_out"]].unique(return_inverse=True)
        for number in range(len(self.members)):
            subset = equal_groups(group, len(groups)).flatten()
            epochs = self.add(number, features[subset], labels[subset])
            selection.keep_best(self.members[number], epochs)
        self.fitted.fill_(True)

    def add(self, number: int, features: Tensor, labels: Tensor) -> Iterator[None]:
        """Fit the set of that number to these images, epoch by epoch; earlier ones are fitted."""
        options, member = self.options, self.members[number]
        earlier = [member_before.points.detach() for member_before in self.members[:number]]

        def loss(index: Tensor) -> Tensor:
            error = self.losses(
                options.entropic_scale * member(features[index]), labels[index]
            ).mean()
            size = options.shrinkage * member.points.square().sum(1).mean()
            return error + size + options.diversity * overlap(member.points, earlier)

        index_batches = batches(len(labels), self.settings["batch_size"], options.head_epochs)
        return descend(member, index_batches, loss, lr=options.head_lr, momentum=0.9)

    def predict(self, batch):
        features = self.model.features(batch.inputs)
        plain, read = self.model.head(features).float(), standardised(features.float())
        probabilities = torch.stack([member(read).softmax(1) for member in self.members])
        return torch.where(self.fitted, probabilities.mean(0).log(), plain)


class Prototypes(nn.Module):
    """A prototype for each class: features float[B, D] to logits [B, classes], minus |scale| times
    their distances, both scaled to length 1."""

    def __init__(self, classes: int, width: int):
        super().__init__()
        self.points = nn.Parameter(torch.empty(classes, width).normal_(0, 0.01))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features: Tensor) -> Tensor:
        away = F.normalize(features)[:, None] - F.normalize(self.points)
        return -self.scale.abs() * away.norm(dim=2)


def overlap(points: Tensor, earlier: list[Tensor]) -> Tensor:
    """The absolute mean over classes of the product of a prototype, float[classes, D], with the sum
    of the class's earlier ones, divided by D - 1 and by the number of all of them, float[]."""
    classes, width = points.shape
    product = (points * sum(earlier, torch.zeros_like(points))).sum().abs()
    return product / classes / (width - 1) / (1 + len(earlier))


def standardised(features: Tensor) -> Tensor:
    """Each row of float[B, D] with mean 0 and variance 1."""
    return F.layer_norm(features, features.shape[1:])
