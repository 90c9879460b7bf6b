"""Checks a user's own class against the class that it extends: a name that differs from a hook's, or
a hook that takes other arguments, would otherwise have no effect, or fail after hours."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from inspect import Parameter, signature
from types import CodeType, FunctionType

from diagvib.foundation.errors import DiagvibError

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def hooks_of(base: type) -> list[str]:
    """The functions that a subclass may override."""
    return [name for name, value in vars(base).items() if name[0] != "_" and callable(value)]


def overrides_hook(kind: type, base: type) -> bool:
    """Whether a class, or one between it and `base`, overrides any of the hooks."""
    between = kind.__mro__[: kind.__mro__.index(base)]
    return any(name in vars(parent) for parent in between for name in hooks_of(base))


def check_hooks(kind: type, base: type, noun: str, hooks: Collection[str] = ()) -> None:
    """DiagvibError for a name that is nearly a hook's or an attribute's, and for a hook that cannot
    be called as that of `base`. noun: method or scene, for messages; hooks: by default the
    functions of `base`."""
    location, hooks = f"{noun}: {kind.__module__}:{kind.__name__}", hooks or hooks_of(base)
    members = {*vars(base), *vars(base).get("__annotations__", ())}
    for name, value in vars(kind).items():
        if name[0] == "_" or (name in hooks and name not in members):
            continue
        if name in members:
            _check_override(location, name, value, vars(base).get(name))
        elif not any(hasattr(parent, name) for parent in kind.__bases__):
            attributes = [key for key in members.difference(hooks) if key[0] != "_"]
            candidates = hooks if _is_function(value) else attributes
            nearest = _nearest(name, candidates, is_hook=candidates is hooks)
            if nearest and name not in _mentions(kind, name):
                effect = (
                    "a hook and would never be called" if candidates is hooks else "an attribute"
                )
                raise DiagvibError(
                    f"{location}: {name} is not {effect}; did you mean {nearest}? If not, call it _{name}"
                )


def _is_function(value: object) -> bool:
    return callable(value) or isinstance(value, staticmethod | classmethod)


def _check_override(location: str, name: str, value: object, original: object) -> None:
    if isinstance(original, property) and _is_function(value):
        raise DiagvibError(f"{location}: {name} is a property; write @property above it")
    if not isinstance(original, FunctionType):
        return
    if not _is_function(value) and not hasattr(value, "__get__"):
        raise DiagvibError(
            f"{location}: {name} is a hook; define a function, def {_call(name, original)}"
        )
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        parameters = [
            parameter
            for parameter in signature(original).parameters.values()
            if parameter.kind in _POSITIONAL
        ]
        try:
            signature(function).bind(*parameters[isinstance(value, staticmethod) :])
        except TypeError:
            raise DiagvibError(
                f"{location}: {_call(name, function)} cannot be called as {_call(name, original)}; "
                "give it these arguments"
            ) from None


def _call(name: str, function: FunctionType) -> str:
    """`name(self, batch)`"""
    return f"{name}({', '.join(signature(function).parameters)})"


def _nearest(name: str, names: Collection[str], is_hook: bool) -> str | None:
    """The name that is probably meant: similar as a whole, or of a hook, with words such as `loss`
    of `compute_loss` for `losses`."""
    close = get_close_matches(name, names, 1, 0.7 if is_hook else 0.85)
    similar = (hook for hook in names if is_hook and _shares_words(name, hook))
    return next(iter(close), None) or next(similar, None)


def _shares_words(name: str, hook: str) -> bool:
    words, parts = name.split("_"), hook.split("_")
    return all(get_close_matches(part, words, 1, 0.75) for part in parts) or {*words} <= {*parts}


def _mentions(kind: type, name: str) -> set[str]:
    """The names that occur in the class's functions other than `name`, which thus may call it."""
    functions = (
        getattr(value, "__func__", value) for key, value in vars(kind).items() if key != name
    )
    codes = (function.__code__ for function in functions if isinstance(function, FunctionType))
    return {mentioned for code in codes for mentioned in _names(code)}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
