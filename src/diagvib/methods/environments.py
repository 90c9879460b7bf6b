"""Shared by methods that use environments: batches with equal shares of each, and penalties that
start late."""

from functools import partial

import torch
from torch import Tensor

from diagvib.methods.groups import group_index, members
from diagvib.methods.method import Method
from diagvib.methods.sizes import check_batch


class ByEnvironment(Method):
    """A batch has equally many images of each environment, one environment after the other:
    batch_size / environments, rounded down, and at least two. DomainBed (Gulrajani and Lopez-Paz,
    2021) likewise draws one minibatch per environment."""

    supervision = ("environments",)
    environment_images = 2

    def setup(self, data):
        super().setup(data)
        self.sets = members(*group_index(data, "environments", self.name))
        size = self.settings["batch_size"]
        check_batch({"name": self.name}, self.environment_images, len(self.sets), size)

    def sampling(self, phase, data):
        return self.sets

    def by_environment(self, values: Tensor) -> Tensor:
        """A batch's values [B, ...] as [environments, B / environments, ...]."""
        return values.unflatten(0, (len(self.sets), -1))


class Annealed(ByEnvironment):
    """A penalty with weight 1 for the first `anneal_steps` steps, and with `weight`, an option of
    the subclass, from then on; at the change the optimiser is reset."""

    options = {"anneal_steps": {"minimum": 0, "maximum": 10_000_000, "default": 500}}

    def build(self):
        super().build()
        # With the weights, so that those that are kept say after which step they were.
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def weight(self) -> Tensor:
        """The penalty's weight at this step: float[]."""
        return torch.where(self.step < self.options.anneal_steps, 1.0, self.options.weight)

    def training_step(self, phase, batch, update):
        changes = self.step == self.options.anneal_steps
        output = super().training_step(phase, batch, partial(update, forget=changes))
        self.step.add_(1)
        return output

    @property
    def doubts(self):
        step, start = int(self.step), self.options.anneal_steps
        text = (
            f"its weights are those after step {step}, when its penalty still had weight 1; from step "
            f"{start} on, it would have been {self.options.weight:g}; lower anneal_steps"
        )
        return [text] if step <= start and self.options.weight != 1 else []
