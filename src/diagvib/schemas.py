"""Strict validation: unknown keys are errors, defaults are filled in, and the message names file and key."""

import re
from copy import deepcopy
from functools import cache

from diagvib.errors import DiagvibError, unknown_name
from diagvib.files import definition_path, read_yaml


@cache
def _validator(schema_name: str):
    from jsonschema import Draft202012Validator  # here, so that a job that is given its settings runs without it
    schema = read_yaml(definition_path(f"schema/{schema_name}.schema.yaml"))
    return Draft202012Validator(schema)


def validate(value, schema_name: str, where: str):
    """A copy of `value` with the schema's defaults filled in.

    schema_name: `config/schema/{schema_name}.schema.yaml`; where: the file named in messages. Raises DiagvibError for
    the first violation.
    """
    from jsonschema.exceptions import best_match
    validator = _validator(schema_name)
    value = deepcopy(value)
    error = best_match(validator.iter_errors(value))
    if error is not None:
        raise _readable(error, where)
    _fill_defaults(value, validator.schema)
    return value


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
    place = f"{where}: {path}" if path else where
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = next(k for k in error.instance if k not in known)
        return unknown_name("key", f"{path}.{unknown}" if path else unknown,
                            [f"{path}.{k}" if path else k for k in known], where)
    if error.validator == "enum":
        return unknown_name("value", error.instance, error.validator_value, place)
    # YAML 1.1 takes 2e-4 for text: it wants the dot.
    number_as_text = error.validator == "type" and re.fullmatch(r"\d+e-?\d+", str(error.instance))
    return DiagvibError(f"{place}: {error.message}" + ("; write it with a dot, like 2.0e-4" if number_as_text else ""))
