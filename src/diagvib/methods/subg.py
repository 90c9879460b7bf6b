"""`subg`: plain training on equally many images of every group, as many as the smallest has
(Idrissi et al., 2022)."""

from diagvib.methods.groups import equal_groups, group_index
from diagvib.methods.method import Method


class SubG(Method):
    """The subset is drawn once, and an epoch is that subset: with a small group it has few images
    and few steps.

    Groups: target x all cues (`supervision: cues`), or target x one (`supervision: cue-1`).
    """

    supervision = ("cues", "cue")

    def setup(self, data):
        super().setup(data)
        self.group, self.groups = group_index(data, self.options.supervision, self.name)

    def start_phase(self, phase, data):
        self.memory["subset"] = equal_groups(self.group, self.groups).flatten()

    def sampling(self, phase, data):
        return self.memory["subset"]
