"""`rwg`, `rwy`, `suby`: plain training on balanced groups or classes (Idrissi et al., 2022)."""

from diagvib.methods.groups import balancing_weights, equal_groups, group_index
from diagvib.methods.method import Method


class Rwg(Method):
    """Images are drawn with replacement so that every group occurs equally often; an epoch has as
    many as without. `subg` removes images instead.

    Groups: target x all cues (`supervision: cues`), or target x one (`supervision: cue-1`).
    """

    supervision = ("cues", "cue")

    def sampling(self, phase, data):
        return balancing_weights(*group_index(data, self.options.supervision, self.name))


class Rwy(Method):
    """`rwg` whose groups are the target's classes."""

    def sampling(self, phase, data):
        return balancing_weights(data.labels, self.n_classes)


class SubY(Method):
    """`subg` whose groups are the target's classes: an epoch is a subset, drawn once, with as many
    images of every class as the rarest has."""

    def sampling(self, phase, data):
        found, index = data.labels.unique(return_inverse=True)
        return equal_groups(index, len(found)).flatten()
