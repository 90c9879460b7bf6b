"""`group_dro`: the larger a group's loss, the larger its weight (Sagawa et al., 2020, the online
algorithm)."""

import torch
from torch import Tensor

from diagvib.methods.groups import balancing_weights, group_index, group_means, members
from diagvib.methods.method import Method, TrainingData


class GroupDro(Method):
    """The loss is the sum of q_g l_g, with l_g a group's mean loss in the batch, 0 if it has no
    image there; before that, q_g becomes q_g exp(step_size l_g), and all q are scaled to sum to 1.

    Groups: target x all cues (`supervision: cues`), target x one (`supervision: cue-1`), or environments. Unless
    balanced is false, images are drawn so that every group occurs equally often, and environments
    have equal shares of every batch. No adjustment for a group's size.
    """

    supervision = ("cues", "cue", "environments")
    every_group = True
    options = {
        "step_size": {"exclusiveMinimum": 0, "maximum": 1000, "default": 0.01},
        "balanced": {"default": True},
    }

    def setup(self, data):
        super().setup(data)
        self.start_with(*self.first_groups(data))

    def first_groups(self, data: TrainingData) -> tuple[Tensor, int]:
        """The group of each training image, int64[N], and the number of groups."""
        return group_index(data, self.options.supervision, self.name)

    def start_with(self, group: Tensor, groups: int) -> None:
        """Use these groups, with equal weights."""
        self.memory["group"] = group
        self.memory["q"] = torch.full((groups,), 1 / groups, device=group.device)

    def sampling(self, phase, data):
        balanced = members if self.options.supervision == "environments" else balancing_weights
        return (
            balanced(self.memory["group"], len(self.memory["q"])) if self.options.balanced else None
        )

    def combine(self, losses, batch):
        q, group = self.memory["q"], self.memory["group"][batch.index]
        of_groups = group_means(losses, group, len(q))
        q.mul_((self.options.step_size * of_groups.detach()).exp())
        q.div_(q.sum())
        return (q * of_groups).sum()


class InferredGroups(GroupDro):
    """Group DRO on groups that a first phase infers: class x part of the images, 0 or 1. A part of a
    class without images makes no group."""

    supervision = ("none",)

    def first_groups(self, data):
        # One group of all images, for which group DRO is plain training.
        return torch.zeros_like(data.labels), 1

    def inferred(self, data: TrainingData) -> Tensor:
        """The part that each training image is in, int64[N] or bool[N], after the first phase."""
        raise NotImplementedError

    @torch.no_grad()
    def start_phase(self, phase, data):
        if phase == "classify":
            self.eval()
            groups, group = (2 * data.labels + self.inferred(data)).unique(return_inverse=True)
            self.start_with(group, len(groups))

    @property
    def doubts(self):
        undivided = len(self.memory["q"]) == len(self.data.labels.unique())
        return ["it divided no class, so its groups are the classes"] if undivided else []

    def sampling(self, phase, data):
        return super().sampling(phase, data) if phase == "classify" else None
