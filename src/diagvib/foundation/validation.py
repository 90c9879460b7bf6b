"""Strict validation with pydantic: unknown keys are errors, and messages name file and key on one
line."""

import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar
from unicodedata import normalize

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import core_schema

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import read_yaml

Kind = TypeVar("Kind")

# Values in messages are shortened: with YAML's aliases, a small file can have an endless value.
_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxdict, _short.maxstring, _short.maxother = 2, 4, 4, 60, 60


@dataclass(frozen=True)
class TextLike:
    """Of an annotated type: a text that fully matches a pattern. meaning: the pattern in words, for
    messages."""

    pattern: str
    meaning: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable) -> Any:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable) -> dict:
        pattern = f"^(?:{self.pattern})$"
        return {"type": "string", "pattern": pattern, "description": self.meaning}

    def check(self, value: str) -> str:
        if not re.fullmatch(self.pattern, value):
            raise ValueError(f"{_short.repr(value)} cannot be used; {self.meaning}")
        return value


# Texts, lists or mappings that are not empty.
Filled = Annotated[Kind, Field(min_length=1)]
Text = Filled[str]
# A text for readers, which stands in a table's cell or a heading.
Line = Annotated[str, AfterValidator(lambda value: " ".join(value.split()))]
# Names that become part of a path or a command: no separators, no dot or dash at the start.
Name = Annotated[
    str,
    TextLike(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
        "a name has at most 128 letters, digits, '_', '-' and '.', and begins with a letter or digit",
    ),
]


def no_item_twice(items: list) -> list:
    """Items, or the names of records. ValueError if two are equal, or differ only in case, which
    some disks ignore, in spaces, or in how their letters are encoded."""
    names_seen: dict[str, object] = {}
    for name in (getattr(item, "name", item) for item in items):
        folded = " ".join(normalize("NFKC", str(name)).split()).casefold()
        if names_seen.get(folded) == name:
            raise ValueError(f"{name} is listed twice; list it once")
        if folded in names_seen:
            raise ValueError(
                f"{names_seen[folded]!r} and {name!r} differ only in case or spaces, or in how letters "
                "are encoded; rename one"
            )
        names_seen[folded] = name
    return items


# Lists that name each item once; those of Unique have one or more.
Distinct = Annotated[
    list[Kind], Field(json_schema_extra={"uniqueItems": True}), AfterValidator(no_item_twice)
]
Unique = Annotated[Distinct[Kind], Field(min_length=1)]


class InvalidField(ValueError):
    """For validators of a whole record: the problem with the value at `path` inside it, such as
    `rows.0.cells`. names: the keys that there are, if the path is an unknown one."""

    def __init__(self, path: str, problem: str, names: Iterable[str] = ()):
        super().__init__(problem)
        self.path, self.names = path, list(names)


class Strict(BaseModel):
    """A record that accepts no unknown keys, no text for numbers and no NaN, and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        keys = value if isinstance(value, dict) and cls.model_config["extra"] == "forbid" else ()
        for key in keys:
            if key not in cls.model_fields:
                raise InvalidField(_key(key), "unknown key", cls.model_fields)
        return value


class Sparse(Strict):
    """A record that, as plain data, lacks the keys that have no value, except those of `nullable`."""

    nullable: ClassVar[Sequence[str]] = ()

    @model_serializer(mode="wrap")
    def _present(self, dump: Callable) -> dict:
        return {
            key: value
            for key, value in dump(self).items()
            if value is not None or key in self.nullable
        }


@contextmanager
def misplaced(path: str) -> Iterator[None]:
    """For validators: a DiagvibError raised inside is the problem with the value at `path`."""
    try:
        yield
    except DiagvibError as error:
        raise InvalidField(path, str(error)) from None


def repeated(values: list[str]) -> str | None:
    """The first value that is there twice, or None."""
    return next((value for value in values if values.count(value) > 1), None)


def validated(kind: type[Kind], value: object, location: str) -> Kind:
    """`value` (as read from YAML or JSON) as a `kind`: a record, or any type that pydantic knows.

    location: the file named in messages. DiagvibError for the first violation, naming its key.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise _readable(error.errors(include_url=False), value, location) from None


def read_valid(kind: type[Kind], path: str | Path) -> Kind:
    """The content of a YAML file, `validated`."""
    return validated(kind, read_yaml(path), str(path))


_adapter = cache(TypeAdapter)


def checked(function: Callable[..., Kind]) -> Callable[..., Kind]:
    """A function of the library whose arguments are validated, and converted, as annotated.
    DiagvibError for the first violation, naming the argument."""
    name, signature = function.__name__, inspect.signature(function, eval_str=True)
    arguments = create_model(
        name,
        __config__=ConfigDict(**Strict.model_config, arbitrary_types_allowed=True),
        **{key: (parameter.annotation, ...) for key, parameter in signature.parameters.items()},
    )

    @wraps(function)
    def call(*args: object, **kwargs: object) -> Kind:
        for key in kwargs:
            if key not in signature.parameters:
                raise unknown_name("argument", key, signature.parameters, f"diagvib.{name}")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return function(**dict(validated(arguments, bound.arguments, f"diagvib.{name}")))

    return call


def _readable(errors: list[dict], value: object, location: str) -> DiagvibError:
    """The error of the value that is wrong: an unknown or missing key, or what the value must be."""
    path, errors = _deepest(errors, value)
    dotted, kinds = ".".join(path), {error["type"]: error for error in errors}
    place = f"{location}: {dotted}" if path else location
    for error in errors:
        if names := getattr(_cause(error), "names", ()):
            siblings = [".".join([*path[:-1], name]) for name in names]
            return unknown_name("key", dotted, siblings, location)
    if unnamed := kinds.get("union_tag_invalid"):
        expected = re.findall(r"'(\w+)'", unnamed["ctx"]["expected_tags"])
        return unknown_name("value", unnamed["ctx"]["tag"], expected, f"{place}.name")
    if "union_tag_not_found" in kinds:
        return DiagvibError(f"{location}: the key {dotted}.name is missing")
    if "missing" in kinds:
        return DiagvibError(f"{location}: the key {dotted} is missing")
    return _wrong_value(errors, place)


def _deepest(errors: list[dict], value: object) -> tuple[list[str], list[dict]]:
    """Of a union's branches, the errors of the one that the value matches furthest, and where that
    is; if several are equal, those of its type, or all of them."""
    paths = [_path(error, value) for error in errors]
    longest = max(paths, key=len)
    deepest = [error for error, path in zip(errors, paths, strict=True) if path == longest]
    return longest, [e for e in deepest if not _OTHER_TYPE.search(e["type"])] or deepest


def _wrong_value(errors: list[dict], place: str) -> DiagvibError:
    """What a value must be instead: one of several names, or all that its type asks for."""
    value, kinds = errors[0]["input"], {error["type"]: error for error in errors}
    is_text = isinstance(value, str)
    as_list = f"; write [{value}]" if "list_type" in kinds and is_text else ""
    if "literal_error" in kinds and (len(errors) == 1 or is_text):
        names = re.split(r", | or ", kinds["literal_error"]["ctx"]["expected"])
        text = value if is_text else _short.repr(value)
        unknown = unknown_name("value", text, [name.strip("'") for name in names], place)
        number = "; an integer is possible, too" if "int_type" in kinds else ""
        likely = "" if "did you mean" in str(unknown) else as_list
        return DiagvibError(f"{unknown}{number}{likely}")
    hint = exponent_hint(value, "int_type" in kinds) or as_list
    ending = f", not {_short.repr(value)}"
    *problems, last = dict.fromkeys(map(_problem, errors))
    problem = ", or ".join([*(text.removesuffix(ending) for text in problems), last])
    return DiagvibError(f"{place}: {problem}{hint}")


_OTHER_TYPE = re.compile(r"_type$|^literal_error$|^sequence_str$")


def exponent_hint(value: object, whole: bool) -> str:
    """The end of a message about a value like 2e-4: YAML 1.1, which requires a dot and a sign,
    reads it as text. whole: whether an integer is needed, which 1.0e+5 is not."""
    if not isinstance(value, str) or not re.fullmatch(r"\d+(\.\d*)?[eE][-+]?\d+", value):
        return ""
    if whole:
        return "; write it without an exponent, like 100000"
    return "; write it with a dot, like 2.0e-4, and a sign, like 1.0e+5"


def _cause(error: dict) -> object:
    return error.get("ctx", {}).get("error")


def _path(error: dict, value: object) -> list[str]:
    """Where in `value` an error is. pydantic puts the names of a union's branches in between."""
    path = []
    for part in error["loc"]:
        inside = range(len(value)) if isinstance(value, list | tuple) else value
        if isinstance(value, dict | list | tuple) and part in inside:
            path, value = [*path, _key(part)], value[part]
    if error["type"] == "missing":
        path.append(_key(error["loc"][-1]))
    cause = _cause(error)
    return [*path, *cause.path.split(".")] if isinstance(cause, InvalidField) else path


def _key(part: object) -> str:
    text = str(part)
    return text if text.isprintable() and len(text) <= 64 else _short.repr(text)


def _problem(error: dict) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    text = error["msg"].replace("Input should", "must").replace("Keys should", "keys must")
    text = re.sub(r"^(List|String|Dictionary|Value|Tuple) should", "must", text)
    text = re.sub(
        r"a valid dictionary( or instance of \w+| or object to extract fields from)?",
        "a mapping of keys to values",
        re.sub(r"( after validation)?(, not \d+)?$", "", text),
    )
    return f"{text}, not {_short.repr(error['input'])}"
