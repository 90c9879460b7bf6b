"""torch's optimisers, fused, without loading torch's compiler.

torch marks an optimiser's methods as not to be compiled, and loads the compiler for that, which
takes longer than loading torch itself; nothing is compiled here. The methods below are the unmarked
originals.
"""

from inspect import unwrap

import torch
from torch import Tensor

from diagvib.methods.method import Optimiser


def _without_compiler(optimiser: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimiser: the same arguments, state and arithmetic."""
    methods = {
        name: unwrap(getattr(optimiser, name))
        for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    }
    return type(
        optimiser.__name__,
        (optimiser,),
        {**methods, "step": torch.no_grad()(unwrap(optimiser.step))},
    )


OPTIMISERS = {
    "adam": _without_compiler(torch.optim.Adam),
    "adamw": _without_compiler(torch.optim.AdamW),
    "sgd": _without_compiler(torch.optim.SGD),
}


def make_optimiser(optimiser: Optimiser) -> torch.optim.Optimizer:
    """A new optimiser, as a method requests it. Fused on the CPU too: this is faster there for
    small networks, and just as deterministic."""
    settings = {**optimiser.settings}
    kind = OPTIMISERS[settings.pop("name")]
    return kind(list(dict.fromkeys(optimiser.parameters)), **settings, fused=True)


def forget_where(optimiser: torch.optim.Optimizer, condition: Tensor) -> None:
    """Reset the optimiser where `condition`, bool[] on the device, is true; it is not read on the
    host."""
    for state in optimiser.state.values():
        for value in state.values():
            if value is not None:
                value.masked_fill_(condition, 0)
