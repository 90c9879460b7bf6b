"""Checks of what a method's hooks give, where a violation would be silent or fail far from its
cause."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.methods.method import Batch, Method, Phase, Sampling, StepOutput
from diagvib.training.optimisers import make_optimiser


def _gives(method: Method, hook: str, what: str) -> DiagvibError:
    return DiagvibError(f"method: {method.chosen['name']}: {hook} gives {what}")


def check_phases(phases: Sequence[Phase], selections: Sequence[str], method: Method) -> None:
    """DiagvibError unless these are one or more phases of different names, each of one epoch or
    more, with a known selection."""
    right = [
        (phase.max_epochs is None or phase.max_epochs in range(1, 10**6))
        and phase.selection in (None, *selections)
        for phase in phases
    ]
    if not all(right) or not 0 < len({phase.name for phase in phases}) == len(phases):
        raise _gives(
            method,
            "phases",
            f"{one_line(phases)}; one or more are needed, of different names, with max_epochs of 1 or "
            f"more or None, and a selection of {', '.join(selections)} or None",
        )


def check_sampling(chosen: Sampling, n: int, method: Method) -> None:
    """DiagvibError unless these are weights or indices of n training images. Reads them; not for
    use in a step."""
    sets = chosen if isinstance(chosen, list) else [] if chosen is None else [chosen]
    for each in sets:
        right = each.ndim == 1 and len(each) and each.min() >= 0
        if right and each.is_floating_point() and sets is not chosen:
            right = len(each) == n and each.isfinite().all() and each.any()
        elif right:
            right = each.dtype in (torch.int64, torch.int32) and each.max() < n
        if not right:
            raise _gives(
                method,
                "sampling",
                f"{one_line(each, 120)}, {each.dtype}; None, a float weight for each of the {n} training "
                f"images, int64 indices from 0 to {n - 1}, or a list of sets of these is needed",
            )


def make_optimisers(phase: str, method: Method) -> dict[str, torch.optim.Optimizer]:
    """The phase's optimisers. DiagvibError if one has a parameter twice."""
    made = {}
    for name, given in method.optimisers(phase).items():
        parameters = list(given.parameters)
        if len({id(parameter) for parameter in parameters}) < len(parameters):
            raise _gives(
                method, "optimisers", f"{phase} the optimiser {name} with a parameter twice"
            )
        made[name] = make_optimiser(replace(given, parameters=parameters))
    return made


def check_output(output: StepOutput, batch: Batch, hook: str, method: Method) -> None:
    """DiagvibError unless a step's loss, logits and labels are those of the batch's images. Reads
    nothing from the device."""
    where, images = f"method: {method.chosen['name']}: {hook} gives", len(batch.labels)
    check_shape(output.loss, (images,), f"{where} a loss")
    logits, labels = (images, method.n_classes), output.labels
    if output.logits is not None:
        check_shape(output.logits, logits, f"{where} logits")
    if labels is not None:
        shape = logits if labels.is_floating_point() else (images,)
        check_shape(labels, shape, f"{where} labels {labels.dtype}")


def check_shape(values: Tensor, shape: tuple[int, ...], what: str) -> None:
    """DiagvibError, beginning with `what`, for another shape."""
    if values.shape != shape:
        raise DiagvibError(f"{what} of shape {list(values.shape)}; {list(shape)} is needed")
