"""Setting a model and its optimisers back without moving them in memory, where a recorded step looks for them."""

from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class InitialState:
    """A copy of all parameters and buffers of a module, as it was when this was made."""

    def __init__(self, module: nn.Module):
        self._values = [tensor.detach().clone() for tensor in _tensors(module)]

    @torch.no_grad()
    def restore(self, module: nn.Module) -> None:
        """Give the module, which may have been moved to another device, its former values."""
        for tensor, value in zip(_tensors(module), self._values, strict=True):
            tensor.copy_(value)


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(chain(module.parameters(), module.buffers()))


def clear_optimiser(optimiser: Optimizer) -> None:
    """Set the state to that of a new Adam: no steps, moments zero."""
    for state in optimiser.state.values():
        for tensor in state.values():
            tensor.zero_()


def load_optimiser(optimiser: Optimizer, saved: dict) -> None:
    """`optimiser.load_state_dict(saved)`, into the tensors that the optimiser already has, if it has any."""
    held = {parameter: dict(state) for parameter, state in optimiser.state.items()}
    optimiser.load_state_dict(saved)
    for parameter, state in held.items():
        loaded = optimiser.state.get(parameter)
        for name, tensor in state.items():
            if loaded:
                tensor.copy_(loaded[name])
            else:
                tensor.zero_()
        optimiser.state[parameter] = state
