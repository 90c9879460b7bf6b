"""The settings of a baseline's method: its name, and the options that its class declares."""

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated

from pydantic import ConfigDict, JsonValue, model_validator

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.validation import InvalidField, Strict, TextLike, exponent_hint, misplaced
from diagvib.methods.registry import METHODS, PREDICTIONS, declaration
from diagvib.settings.model_settings import OWN_CLASS


class MethodSettings(Strict):
    """How it learns: the method's name, and its own options as further keys; those that are not
    given get their defaults."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]
    name: Annotated[
        str,
        TextLike(
            rf"[\w.-]+|{OWN_CLASS}",
            f"{', '.join(METHODS)}, or your own as package.module:Class is needed",
        ),
    ]

    @model_validator(mode="after")
    def _complete(self) -> "MethodSettings":
        try:
            declared = declaration(self.name)
        except DiagvibError as error:
            raise ValueError(str(error).removeprefix("method: ")) from None
        for key, value in self.model_extra.items():
            with misplaced(key):
                if key not in declared.schemas:
                    raise unknown_name("option", key, declared.schemas)
                for error in _options_validator()(declared.schemas[key]).iter_errors(value):
                    hint = exponent_hint(error.instance, error.validator_value == "integer")
                    raise DiagvibError(f"{one_line(error.message)}{hint}")
        options = {
            key: as_declared(value, declared.schemas[key])
            for key, value in self.model_extra.items()
        }
        complete = declared.defaults | options
        for option, choices in declared.unused_if.items():
            for key, values in choices.items():
                if complete[key] in values and complete[option] != declared.defaults[option]:
                    raise InvalidField(
                        option,
                        f"{self.name} does not use it with {key}: {complete[key]}; leave it out, or change {key}",
                    )
        return self.model_construct(name=self.name, **complete)


def as_declared(value: JsonValue, schema: Mapping) -> JsonValue:
    """The value of an option: as written in YAML, 10 would be an integer also where a number is
    meant."""
    kind = schema.get("type", [])
    kinds = [kind] if isinstance(kind, str) else kind
    is_integer = "number" in kinds and "integer" not in kinds and type(value) is int
    return float(value) if is_integer else value


def method_of(settings: dict | None) -> dict:
    """The method in a baseline's settings; empty if they are not known."""
    return (settings or {}).get("method") or {}


def has_probabilities(settings: dict | None) -> bool:
    """Whether the predictions of a baseline have probabilities, given its settings."""
    method = method_of(settings)
    return method.get("name") != PREDICTIONS or bool(method.get("probabilities"))


def is_trained(method: str | None) -> bool:
    """Whether a method of this name trains anything; an unknown one does."""
    with suppress(DiagvibError, TypeError):
        return declaration(method).trains
    return True


def changed(method: Mapping) -> dict:
    """A method's settings without those that have its defaults."""
    defaults = declaration(method["name"]).defaults
    return {
        key: value for key, value in method.items() if key not in defaults or defaults[key] != value
    }


@cache
def _options_validator() -> type:
    """JSON Schema's, but 1.0 is no integer, as in its draft 4, and NaN no number."""
    from jsonschema import Draft4Validator, Draft202012Validator
    from jsonschema.validators import extend

    types = Draft4Validator.TYPE_CHECKER

    def finite(_, value: JsonValue) -> bool:
        return types.is_type(value, "number") and math.isfinite(value)

    return extend(Draft202012Validator, type_checker=types.redefine("number", finite))
