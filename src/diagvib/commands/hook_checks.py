"""Checks of what a method's hooks give, which name the hook: torch's own messages would name a line
of the trainer, or there would be none."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import wraps
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.hooks import hooks_of
from diagvib.foundation.plug_ins import reason
from diagvib.methods.method import Batch, Method, Optimiser, Sampling, StepOutput, Visualisation
from diagvib.training.optimisers import make_optimiser

# Whether a value is what a hook must give to the trainer. Arguments: the method, the value, and what
# the hook was called with.
_Check = Callable[..., bool]


def check_results(method: Method) -> None:
    """Let each hook of a method raise DiagvibError for what the trainer cannot use. DiagvibError if a
    hook is hidden by a layer of its name, which torch keeps apart from functions."""
    for hook in hooks_of(Method):
        if hook in {**method._modules, **method._parameters, **method._buffers}:
            raise DiagvibError(
                f"method: {method.name} sets self.{hook}, the name of a hook, which would be called in "
                f"its place; give it another name, and call it in `def {hook}`"
            )
    vars(method).update({hook: _checked(method, hook) for hook in _CHECKS})


@contextmanager
def unchecked(method: Method) -> Iterator[None]:
    """The hooks without their checks, as in a run, to be timed."""
    checked = {hook: vars(method)[hook] for hook in _CHECKS}
    vars(method).update({hook: function.__wrapped__ for hook, function in checked.items()})
    try:
        yield
    finally:
        vars(method).update(checked)


def check_loss(loss: object, location: str) -> None:
    """DiagvibError for what `update` cannot take."""
    if not (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
        raise DiagvibError(f"{location} a loss that is {_shown(loss)}; {_NUMBER}")


def check_facts(method: Method) -> None:
    """DiagvibError for doubts or selections of a finished training that cannot be written."""
    doubts, name = method.doubts, f"of {method.name} gives"
    texts = isinstance(doubts, list | tuple) and all(isinstance(doubt, str) for doubt in doubts)
    if not texts:
        raise DiagvibError(f"method: doubts {name} {_shown(doubts)}; a list of texts is needed")
    selections = method.selections
    try:
        json.dumps({**selections})
    except TypeError as error:
        raise DiagvibError(
            f"method: selections {name} {_shown(selections)}, which JSON cannot hold ({error}); "
            "a dict of names and lists of numbers is needed, such as by `tolist()`"
        ) from None


def _checked(method: Method, hook: str) -> Callable:
    call, (check, needed) = getattr(method, hook), _CHECKS[hook]

    @wraps(call)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        value, problem = call(*arguments, **keywords), ""
        try:
            valid = check(method, value, *arguments, *keywords.values())
        except Exception as error:  # of torch, such as for a learning rate
            valid, problem = False, f" ({reason(error)})"
        if not valid:
            raise DiagvibError(
                f"method: {hook} of {method.name} gives {_shown(value)}{problem}; {needed}"
            )
        return value

    return checked


def _shown(value: object) -> str:
    """A value on a line, with the kinds and ranges of tensors instead of their numbers."""
    if isinstance(value, Tensor):
        kind = f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"
        has_range = value.ndim == 1 and len(value) and not value.is_complex()
        return (
            f"{kind} from {value.min().item():g} to {value.max().item():g}" if has_range else kind
        )
    if isinstance(value, list | tuple):
        return one_line(f"[{', '.join(map(_shown, value))}]", 200)
    parts = value if isinstance(value, dict) else vars(value) if is_dataclass(value) else None
    if parts is None:
        return one_line(value, 120)
    name = "" if isinstance(value, dict) else type(value).__name__
    return one_line(f"{name}({', '.join(f'{k}={_shown(v)}' for k, v in parts.items())})", 200)


def _are_optimisers(method: Method, value: dict[str, Optimiser], phase: str) -> bool:
    fitting = isinstance(value, dict) and all(isinstance(k, Optimiser) for k in value.values())
    return fitting and all(make_optimiser(optimiser) for optimiser in value.values())


def _is_sampling(method: Method, value: Sampling, phase: str, data: Any) -> bool:
    n = len(data)
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.shape == (n,) and bool(
            (value >= 0).all() & value.isfinite().all() & value.any()
        )
    sets = value if isinstance(value, list) else [value]
    return value is None or (len(sets) > 0 and all(_are_indices(part, n) for part in sets))


def _are_indices(value: Tensor, n: int) -> bool:
    integers = isinstance(value, Tensor) and value.dtype in (torch.int64, torch.int32)
    fitting = integers and value.ndim == 1 and len(value) > 0
    return fitting and bool((value.min() >= 0) & (value.max() < n))


def _is_batch(method: Method, value: Batch, batch: Batch) -> bool:
    if not (isinstance(value, Batch) and len(value.labels) == len(value.inputs)):
        return False
    labels = value.labels
    if not labels.is_floating_point():
        return labels.dtype == torch.int64 and labels.ndim == 1
    sums = labels.double().sum(1) if labels.ndim == 2 else labels
    shares = labels.shape == (len(sums), method.n_classes)
    return shares and bool((labels >= 0).all() & ((sums - 1).abs() < 1e-3).all())


def _are_losses(method: Method, value: Tensor, logits: Tensor, labels: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == logits.shape[:1]


def _is_number(method: Method, value: Tensor, *arguments: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _is_output(method: Method, value: StepOutput, *arguments: object) -> bool:
    return isinstance(value, StepOutput) and isinstance(value.loss, Tensor)


def _are_logits(method: Method, value: Tensor, batch: Any) -> bool:
    return isinstance(value, Tensor) and value.shape == (len(batch.inputs), method.n_classes)


def _are_pictures(
    method: Method, value: list[Visualisation], batch: Any, *arguments: object
) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(item, Visualisation) and _is_picture(method, item, len(batch.inputs))
        for item in value
    )


def _is_picture(method: Method, value: Visualisation, images: int) -> bool:
    pixels, logits = value.pixels, value.logits
    count = images if value.dimension is None else len(value.values)
    fitting = pixels.dtype == torch.uint8 and pixels.ndim == 4 and pixels.shape[3] == 3
    numbers = [*value.values, *([] if value.kl is None else [value.kl])]
    return (
        fitting
        and len(pixels) == count
        and (logits is None or logits.shape == (count, method.n_classes))
        and all(isinstance(number, Real) for number in numbers)
    )


_NUMBER = "one number that depends on the weights, such as losses.mean(), is needed"
_OUTPUT = "a StepOutput with the loss of each image is needed"
_CHECKS: dict[str, tuple[_Check, str]] = {
    "optimisers": (
        _are_optimisers,
        "a dict of names and Optimisers is needed, such as by self.optimiser(self.model)",
    ),
    "sampling": (
        _is_sampling,
        "None is needed, or a weight for each training image, finite, at least 0 and some of them "
        "greater, or indices of training images, int64[M], counted from 0, or a list of such indices",
    ),
    "augment": (
        _is_batch,
        "a Batch with labels for its inputs is needed, int64[B], or float[B, classes], shares that "
        "sum to 1",
    ),
    "losses": (_are_losses, "a loss for each image is needed, float[B]"),
    "combine": (_is_number, _NUMBER),
    "penalty": (
        lambda method, value, *arguments: value is None or _is_number(method, value),
        _NUMBER,
    ),
    "training_step": (_is_output, _OUTPUT),
    "validation_step": (_is_output, _OUTPUT),
    "predict": (_are_logits, "logits [B, classes] are needed, a tensor"),
    "visualisations": (
        _are_pictures,
        "a list of Visualisation is needed, each with pixels uint8[N, H, W, 3] for the batch's "
        "images, or for `values` if it has a dimension, and logits [N, classes] if any",
    ),
}
