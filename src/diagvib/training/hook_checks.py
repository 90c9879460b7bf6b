"""Checks of what a method's hooks give, where a violation would be silent or fail far from its
cause."""

from collections.abc import Sequence

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError
from diagvib.methods.method import Batch, Method, Optimiser, Phase, Sampling, StepOutput


def check_phases(phases: Sequence[Phase], selections: Sequence[str], method: Method) -> None:
    """DiagvibError unless these are one or more phases of different names, each of one epoch or
    more, with a known selection."""
    where = f"method: {method.chosen['name']}: phases gives"
    if (
        not isinstance(phases, list | tuple)
        or not phases
        or not all(isinstance(each, Phase) for each in phases)
    ):
        raise DiagvibError(f"{where} {phases!r}; a list of one or more Phase is needed")
    names = [phase.name for phase in phases]
    for phase in phases:
        if names.count(phase.name) > 1:
            raise DiagvibError(
                f"{where} two phases named {phase.name}; every phase needs its own name"
            )
        if phase.max_epochs is not None and (
            not isinstance(phase.max_epochs, int) or phase.max_epochs < 1
        ):
            raise DiagvibError(
                f"{where} phase {phase.name} max_epochs {phase.max_epochs}; 1 or more is needed, or "
                "None for the protocol's"
            )
        if phase.selection not in (None, *selections):
            raise DiagvibError(
                f"{where} phase {phase.name} the selection {phase.selection}; the study offers "
                f"{', '.join(selections)}"
            )


def check_sampling(chosen: Sampling, n: int, method: Method) -> None:
    """DiagvibError unless these are weights or indices of n training images. Reads them; not for
    use in a step."""
    where = f"method: {method.chosen['name']}: sampling gives"
    if chosen is None:
        return
    sets = chosen if isinstance(chosen, list) else [chosen]
    if not sets or not all(isinstance(each, Tensor) and each.ndim == 1 for each in sets):
        raise DiagvibError(f"{where} neither None, a tensor of one dimension, nor a list of these")
    for each in sets:
        if each.is_floating_point() and not isinstance(chosen, list):
            if len(each) != n:
                raise DiagvibError(
                    f"{where} {len(each)} weights; one per training image is needed, {n}"
                )
            if not (each.isfinite() & (each >= 0)).all() or not each.any():
                raise DiagvibError(f"{where} weights that are negative, not finite or all 0")
        elif each.dtype not in (torch.int64, torch.int32):
            raise DiagvibError(
                f"{where} {each.dtype}; indices must be int64"
                + ("" if isinstance(chosen, list) else ", weights float")
            )
        elif not len(each):
            raise DiagvibError(
                f"{where} no images, or a set without any; every set needs at least one"
            )
        elif each.min() < 0 or each.max() >= n:
            raise DiagvibError(
                f"{where} indices from {int(each.min())} to {int(each.max())}; the training images are "
                f"0 to {n - 1}"
            )


def checked_optimisers(phase: str, method: Method) -> dict[str, Optimiser]:
    """The phase's optimisers. DiagvibError unless each has parameters, none of them twice."""
    where = f"method: {method.chosen['name']}: optimisers gives {phase}"
    given = method.optimisers(phase)
    for name, optimiser in given.items():
        parameters = list(optimiser.parameters)
        if not parameters:
            raise DiagvibError(
                f"{where} the optimiser {name} without parameters; it needs one or more that are "
                "trainable"
            )
        if len({id(parameter) for parameter in parameters}) < len(parameters):
            raise DiagvibError(
                f"{where} the optimiser {name} with a parameter twice; each may occur once"
            )
    return given


def check_update(name: str, loss: Tensor, optimisers: Sequence[str], method: Method) -> None:
    """DiagvibError unless this is one loss for a known optimiser. Reads nothing from the device."""
    where = f"method: {method.chosen['name']}: update"
    if name not in optimisers:
        raise DiagvibError(
            f"{where} names the optimiser {name}; this phase has {', '.join(optimisers)}"
        )
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        is_now = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise DiagvibError(
            f"{where} of {name} is given a loss of {is_now}; one number is needed, as from combine "
            "and penalty: a tensor of shape []"
        )


def check_memory(method: Method) -> dict[str, Tensor]:
    """The method's memory. DiagvibError unless it has tensors only: a run could not continue from
    anything else."""
    for name, value in method.memory.items():
        if not isinstance(value, Tensor):
            raise DiagvibError(
                f"method: {method.chosen['name']}: memory {name} is {type(value).__name__}; a tensor "
                "is needed"
            )
    return method.memory


def check_output(output: StepOutput, batch: Batch, hook: str, method: Method) -> None:
    """DiagvibError unless a hook of a method gives what a `StepOutput` must contain. Reads nothing
    from the device."""
    where, images, classes = (
        f"method: {method.chosen['name']}: {hook} gives",
        len(batch.labels),
        method.n_classes,
    )
    if not isinstance(output, StepOutput):
        raise DiagvibError(f"{where} {type(output).__name__}; a StepOutput is needed")
    for name, value in (
        ("loss", output.loss),
        ("logits", output.logits),
        ("labels", output.labels),
    ):
        if not isinstance(value, Tensor) and (name == "loss" or value is not None):
            raise DiagvibError(f"{where} {name} that is {type(value).__name__}; a tensor is needed")
    if output.loss.shape != (images,):
        raise DiagvibError(
            f"{where} a loss of shape {list(output.loss.shape)}; one per image is needed, [{images}]"
        )
    if output.logits is not None:
        check_logits(output.logits, images, classes, where)
    labels = output.labels
    if labels is not None and labels.shape != (
        (images, classes) if labels.is_floating_point() else (images,)
    ):
        raise DiagvibError(
            f"{where} labels {labels.dtype} of shape {list(labels.shape)}; int64 [{images}] or float "
            f"[{images}, {classes}] is needed"
        )


def check_logits(logits: Tensor, images: int, classes: int, where: str) -> None:
    """DiagvibError, beginning with `where`, unless there is a logit for every image and class."""
    if logits.shape != (images, classes):
        raise DiagvibError(
            f"{where} logits of shape {list(logits.shape)}; [{images}, {classes}] is needed"
        )
