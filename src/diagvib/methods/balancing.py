"""`rwg`, `rwy`, `subg`, `suby`: plain training on balanced groups or classes (Idrissi et al.,
2022)."""

from diagvib.methods.groups import balancing_weights, equal_groups, group_index
from diagvib.methods.method import Method


class Rwg(Method):
    """Images are drawn with replacement so that every group occurs equally often; an epoch has as
    many as without. `subg` removes images instead.

    Groups: target x all cues (`supervision: cues`), or target x one (`supervision: cue-1`).
    """

    supervision = ("cues", "cue")
    every_group = True

    def sampling(self, phase, data):
        return balancing_weights(*group_index(data, self.options.supervision, self.name))


class Rwy(Method):
    """`rwg` whose groups are the target's classes."""

    def sampling(self, phase, data):
        return balancing_weights(data.labels, self.n_classes)


class SubG(Method):
    """An epoch is a subset, drawn once, with equally many images of every group, as many as the
    smallest has: with a small group it has few images and few steps.

    Groups: as for `rwg`.
    """

    supervision = ("cues", "cue")
    every_group = True

    def sampling(self, phase, data):
        return equal_groups(*group_index(data, self.options.supervision, self.name)).flatten()


class SubY(Method):
    """`subg` whose groups are the target's classes."""

    def sampling(self, phase, data):
        classes, index = data.labels.unique(return_inverse=True)
        return equal_groups(index, len(classes)).flatten()
