"""State that no checkpoint has: what a method, its network's modules, their classes and the user's
module keep besides parameters, buffers and `memory`."""

import pickle
import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import FunctionType, ModuleType

import torch
from torch import Tensor, nn

from diagvib.methods.method import Method, TrainingData

# Attributes of every module; and those of a method that continue, or are made again.
_OF_MODULES = {*vars(nn.Module()), "_is_full_backward_hook"}
_CONTINUED = {"memory", "data"}
_TRUSTED = ("torch", "torchvision", "timm", "builtins", "abc", "typing")
_SKIPPED = (ModuleType, type, FunctionType, TrainingData, property, cached_property)
_SKIPPED += (staticmethod, classmethod)
_SCALARS = (int, float, complex, str, bytes, type(None))


def plain_state(method: Method) -> dict[str, object]:
    """Where -> what is there, to compare with a later state."""
    restored = {id(tensor) for tensor in (*method.parameters(), *method.buffers())}
    return {
        place: _content(value, restored, ())
        for place, value in _places(method)
        if not isinstance(value, _SKIPPED)
    }


def changed_place(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """The name of something that differs between two states; None if nothing does."""
    names = (name for name in {**before, **after} if before.get(name) != after.get(name))
    return next(names, None)


def _places(method: Method) -> Iterator[tuple[str, object]]:
    kinds = dict.fromkeys(kind for part in method.modules() for kind in type(part).__mro__)
    for name, module in method.named_modules():
        if _package(type(module)) not in _TRUSTED:
            state, computed = module.__getstate__(), _computed(module)
            names = [*vars(module)] if module is not method else vars(method).keys() - _CONTINUED
            for key in names:
                if key not in _OF_MODULES and key not in computed:
                    yield f"{name}.{key}".lstrip("."), state.get(key)
    user_classes = [kind for kind in kinds if _package(kind) not in (*_TRUSTED, "diagvib")]
    for kind in user_classes:
        for key, value in vars(kind).items():
            if key[:2] != "__":
                yield f"{kind.__name__}.{key}", value
    for module in dict.fromkeys(kind.__module__ for kind in user_classes):
        for key, value in vars(sys.modules[module]).items():
            if key[:2] != "__" and _is_plain(value, module):
                yield f"{module}.{key}", value


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _computed(module: nn.Module) -> set[str]:
    """Attributes that hooks before each pass compute, such as weight_norm's weight."""
    return {getattr(hook, "name", "") for hook in module._forward_pre_hooks.values()}


def _is_plain(value: object, module: str) -> bool:
    """Whether a global may hold state of the module itself: not an object of some other package."""
    plain = not hasattr(value, "__dict__") or type(value).__module__ == module
    return plain or isinstance(value, Tensor | random.Random)


class _Held:
    """A tensor as it is now. Its values are compared only if another tensor takes its place."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor
        self.version = 0 if tensor.is_inference() else tensor._version

    def __eq__(self, later: object) -> bool:
        if not isinstance(later, _Held):
            return False
        if self.tensor is later.tensor:
            return self.version == later.version
        return _Held(self.tensor).version == self.version and self.tensor.equal(later.tensor)

    __hash__ = None


def _content(value: object, restored: set[int], above: tuple[int, ...]) -> object:
    """A value's content in a form that can be compared. restored: ids of tensors that a checkpoint
    has; above: ids of the objects that this one is part of."""
    if id(value) in above or isinstance(value, _SKIPPED):
        return None
    if isinstance(value, Tensor):
        return None if id(value) in restored else _Held(value)
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        pairs = value.items()
        return [(_key(key), _content(item, restored, inside)) for key, item in pairs]
    if isinstance(value, list | tuple | deque):
        return [type(value), *(_content(item, restored, inside) for item in value)]
    if isinstance(value, _SCALARS):
        return repr(value)
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, nn.Module) or _has_plain_state(value):
        pairs = ((key, item) for key, item in vars(value).items() if key != "training")
        return [(key, _content(item, restored, inside)) for key, item in pairs]
    return _pickled(value)


def _key(key: object) -> object:
    return repr(key) if isinstance(key, (*_SCALARS, tuple)) else id(key)


def _has_plain_state(value: object) -> bool:
    """Whether an object's attributes are all that it holds."""
    return type(value).__reduce__ is object.__reduce__ and hasattr(value, "__dict__")


def _pickled(value: object) -> bytes | None:
    """None for what cannot be pickled, such as an open file."""
    try:
        return pickle.dumps(value)
    except Exception:  # of a user's class, anything
        return None
