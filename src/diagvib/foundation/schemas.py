"""Strict validation: unknown keys are errors, defaults are filled in, and the message names file and key."""

import math
import re
from copy import deepcopy
from functools import cache

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import definition_path, read_yaml

# No file of ours comes near; YAML's aliases can make a short text endless.
_MOST_VALUES, _MOST_LEVELS = 100_000, 50
_LARGEST = 2**63 - 1


@cache
def _validator(schema_name: str):
    from jsonschema import Draft202012Validator  # here, so that commands that read no configuration start without it
    from jsonschema.validators import extend
    schema = read_yaml(definition_path(f"schema/{schema_name}.schema.yaml"))
    # JSON Schema takes 1.0 for an integer; range() and file names do not.
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool))
    return extend(Draft202012Validator, type_checker=types)(schema)


def validate(value, schema_name: str, where: str):
    """A copy of `value` with the schema's defaults filled in.

    schema_name: `config/schema/{schema_name}.schema.yaml`; where: the file named in messages. Raises DiagvibError for
    the first violation.
    """
    from jsonschema.exceptions import best_match
    validator = _validator(schema_name)
    _check_plain(value, where)
    value = deepcopy(value)
    error = best_match(validator.iter_errors(value))
    if error is not None:
        raise _readable(error, where)
    _fill_defaults(value, validator.schema)
    return value


def _check_plain(value, where: str) -> None:
    """DiagvibError unless a value is what JSON can say: finite numbers, keys of text, no value inside itself."""
    seen, rest = 0, [(value, ())]
    while rest:
        item, path = rest.pop()
        seen += 1
        place = ": ".join([where, ".".join(map(str, path))]) if path else where
        if seen > _MOST_VALUES or len(path) > _MOST_LEVELS:
            raise DiagvibError(f"{where}: {'.'.join(map(str, path[:3]))}...: nested too deeply or without end; "
                               "is there a YAML alias inside its own anchor?")
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise DiagvibError(f"{place}: the key {key!r} is no text; put it in quotes")
            rest += [(inner, (*path, key)) for key, inner in item.items()]
        elif isinstance(item, list):
            rest += [(inner, (*path, number)) for number, inner in enumerate(item)]
        elif isinstance(item, float) and not math.isfinite(item):
            raise DiagvibError(f"{place}: {item} is not a finite number")
        elif isinstance(item, int) and abs(item) > _LARGEST:
            raise DiagvibError(f"{place}: {one_line(item, 120)} is greater than the maximum of {_LARGEST}")
        elif not isinstance(item, str | int | float | None):
            raise DiagvibError(f"{place}: {one_line(repr(item))} is a {type(item).__name__}; put it in quotes if text "
                               "is meant")


def _fill_defaults(value, schema: dict) -> None:
    if isinstance(value, dict):
        for key, sub in schema.get("properties", {}).items():
            if key not in value and "default" in sub:
                value[key] = deepcopy(sub["default"])
            if key in value:
                _fill_defaults(value[key], sub)
        rest = [s for s in [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
                if isinstance(s, dict)]
        for key in value.keys() - schema.get("properties", {}).keys():
            for sub in rest:
                _fill_defaults(value[key], sub)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            _fill_defaults(item, schema["items"])


def _readable(error, where: str) -> DiagvibError:
    path = ".".join(str(p) for p in error.absolute_path)
    place, given = f"{where}: {path}" if path else where, error.instance
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = next(k for k in given if k not in known)
        return unknown_name("key", f"{path}.{unknown}" if path else unknown,
                            [f"{path}.{k}" if path else k for k in known], where)
    if error.validator == "enum":
        return unknown_name("value", given, map(_as_yaml, error.validator_value), place)
    if error.validator == "const" and isinstance(given, str):
        return DiagvibError(f"{place}: {error.validator_value} or a list expected; write [{one_line(given, 120)}]")
    if error.validator == "const":
        return DiagvibError(f"{place}: {one_line(_as_yaml(given))} given, {_as_yaml(error.validator_value)} expected")
    if error.validator == "pattern" and "description" in error.schema:
        return DiagvibError(f"{place}: {one_line(repr(given), 120)} cannot be used; {error.schema['description']}")
    hint = ""
    if error.validator == "type" and isinstance(given, str):
        # YAML 1.1 takes 2e-4 for text: it wants the dot.
        dotless = error.validator_value == "number" and re.fullmatch(r"\d+e-?\d+", given)
        hint = "; write it with a dot, like 2.0e-4" if dotless else \
            f"; write [{one_line(given, 120)}]" if error.validator_value == "array" else ""
    return DiagvibError(f"{place}: {one_line(error.message)}{hint}")


def _as_yaml(value) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_as_yaml, value))}]"
    return str(value)
