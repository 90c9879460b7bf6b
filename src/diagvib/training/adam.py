"""Adam as torch has it, without loading torch's compiler.

torch marks an optimiser's methods as nothing to compile, and loads the compiler for that, which takes longer than
loading torch itself; nothing is compiled here. The methods below are those that the marks are wrapped around.
"""

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """torch.optim.Adam; the same arguments, state and arithmetic."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    zero_grad = unwrap(torch.optim.Adam.zero_grad)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
