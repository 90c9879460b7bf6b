"""Strict validation with pydantic: unknown keys are errors, defaults are filled in, the message names file and key."""

import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from diagvib.foundation.errors import DiagvibError, unknown_name

Model = TypeVar("Model", bound=BaseModel)

# What may become part of a path or of a command: no separators, no dot or dash in front.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


def _no_item_twice(items: list) -> list:
    twice = next((item for item in items if items.count(item) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is listed twice; list it once")
    return items


# For lists of things that are named once each.
unique = AfterValidator(_no_item_twice)


class Strict(BaseModel):
    """A record that takes no unknown keys, no text for numbers, no NaN, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def validated(model: type[Model], value: object, where: str) -> Model:
    """`value` (as read from YAML or JSON) as a `model`.

    where: the file named in messages. DiagvibError for the first violation, naming its key.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _readable(error.errors()[0], model, where) from None


def _readable(error: dict, model: type[BaseModel], where: str) -> DiagvibError:
    path = [str(part) for part in error["loc"]]
    place = ": ".join([where, *([".".join(path)] if path else [])])
    if error["type"] == "extra_forbidden":
        known = [".".join([*path[:-1], name]) for name in _fields_at(model, error["loc"][:-1])]
        return unknown_name("key", ".".join(path), known, where)
    if error["type"] == "missing":
        return DiagvibError(f"{where}: the key {'.'.join(path)} is missing")
    if error["type"] == "literal_error":
        return unknown_name("value", error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]), place)
    # YAML 1.1 takes 2e-4 for text: it wants the dot.
    dot = "; write it with a dot, like 2.0e-4" if re.fullmatch(r"\d+e-?\d+", str(error["input"])) else ""
    message = error["msg"].removeprefix("Value error, ")
    return DiagvibError(f"{place}: {message}, not {_short(error['input'])}{dot}"
                        if error["type"] != "value_error" else f"{place}: {message}")


def _fields_at(model: type[BaseModel], path: tuple) -> list[str]:
    """The keys known at a place inside a model; none where the place is no record."""
    for part in path:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        annotation = field.annotation if field else None
        inner = [annotation, *getattr(annotation, "__args__", ())]
        model = next((a for a in inner if isinstance(a, type) and issubclass(a, BaseModel)), model)
    return list(model.model_fields)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
