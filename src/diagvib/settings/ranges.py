"""The space of a random search: which settings are drawn, from which ranges, and what each trial
gets.

Does not import torch. As in DomainBed (Gulrajani and Lopez-Paz, 2021), a drawn setting depends only
on the seed, the number of the trial and its own name: trial 7 is the same among 8 trials and among
100, whatever else is drawn, and for all methods.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from functools import cache
from itertools import islice, product
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import definition_path
from diagvib.foundation.seeding import named_generator
from diagvib.foundation.validation import (
    Filled,
    InvalidField,
    Name,
    Sparse,
    Strict,
    TextLike,
    Unique,
    read_valid,
)
from diagvib.methods.registry import METHODS, declaration
from diagvib.settings.baselines import complete
from diagvib.settings.frozen_networks import is_frozen
from diagvib.settings.method_settings import as_declared

# The section of the ranges for all methods.
ALL_BASELINES = "all"
# Drawn and written with this many significant digits, so that what is read is what was trained.
DIGITS = 4
# How often a trial is drawn anew if earlier ones have the same values.
_ATTEMPTS = 1000

Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Trials = Annotated[int, Field(ge=1, le=10_000)]


_PAIR = Field(min_length=2, max_length=2)
Bounds = Annotated[list[Annotated[float, Field(ge=-1e6, le=1e6)]], _PAIR]
Exponents = Annotated[list[Annotated[float, Field(ge=-30, le=30)]], _PAIR]
Setting = Annotated[
    str,
    TextLike(
        r"batch_size|(optimiser|method|model\.options)\.\w+",
        "batch_size, optimiser.KEY, method.OPTION or model.options.KEY is needed",
    ),
]


class Range(Sparse):
    """The range or list that a setting is drawn from."""

    log10: Exponents | None = None
    """10 to the power of a number drawn uniformly between these two"""
    log2: Exponents | None = None
    """2 to the power of a number drawn uniformly between these two"""
    uniform: Bounds | None = None
    """a number drawn uniformly between these two"""
    choice: Filled[list[JsonValue]] | None = None
    """one of these"""

    @model_validator(mode="after")
    def _one_of_them(self) -> "Range":
        kinds = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"exactly one of {', '.join(type(self).model_fields)} is needed, not {len(kinds)}"
            )
        bounds = getattr(self, kinds[0])
        if kinds[0] != "choice" and bounds[0] > bounds[1]:
            raise InvalidField(
                kinds[0], f"{bounds} is in descending order; write the lower bound first"
            )
        return self

    def at(self, position: float) -> JsonValue:
        """The value at a position from 0 to 1."""
        if self.choice is not None:
            return self.choice[min(int(position * len(self.choice)), len(self.choice) - 1)]
        low, high = self.log10 or self.log2 or self.uniform
        number = low + position * (high - low)
        return 10.0**number if self.log10 else 2.0**number if self.log2 else number


Ranges = dict[str, dict[Setting, Range]]


class RandomSearch(Strict):
    """Trials: the first has the baseline's own settings, and every other draws some of them."""

    bindings: Unique[str]
    """which factor plays which role in the study"""
    trials: Trials | Filled[dict[str, Trials]]
    """a number; or several, under the same names as ranges. No two trials are the same; lists (`choice`)
    alone are a grid, all of which is tried if the trials suffice"""
    seed: Seed = 0
    """another seed draws other trials"""
    ranges: Name | Ranges = "domainbed"
    """what settings are drawn from: a set of config/search_ranges.yaml, or your own in the same
    form: under `all` for every baseline, under the name of a method or baseline for it alone"""

    def trials_of(self, baseline: str, method: str) -> int:
        """The number of trials of a baseline with this method."""
        if isinstance(self.trials, int):
            return self.trials
        names = [name for name in (baseline, method, ALL_BASELINES) if name in self.trials]
        if not names:
            raise DiagvibError(
                f"tuning.random_search.trials: no number for {baseline}; add one under its name, or under "
                f"{ALL_BASELINES}"
            )
        return self.trials[names[0]]


def read_ranges(ranges: str | Ranges, baselines: Collection[str] = ()) -> Ranges:
    """Ranges by method or baseline. DiagvibError for an unknown set or name."""
    if isinstance(ranges, str):
        shipped = _shipped()
        if ranges not in shipped:
            raise unknown_name("set of ranges", ranges, shipped, "config/search_ranges.yaml")
        return shipped[ranges]
    check_names(ranges, baselines)
    return ranges


def check_names(names: Collection[str], baselines: Collection[str]) -> None:
    """DiagvibError for one that is neither `all` nor a method nor a baseline."""
    for name in names:
        if ":" in name:
            declaration(name)
        elif name not in (ALL_BASELINES, *METHODS, *baselines):
            raise unknown_name("method or baseline", name, [ALL_BASELINES, *METHODS, *baselines])


@cache
def _shipped() -> dict[str, Ranges]:
    return read_valid(dict[Name, Ranges], definition_path("search_ranges.yaml"))


def search_space(settings: dict, ranges: Ranges, location: str, baseline: str) -> dict[str, Range]:
    """The range for each setting drawn for a baseline: those of all, of its method and of itself;
    later ones take precedence.

    settings: the baseline's complete settings; ranges: from `read_ranges`. DiagvibError, beginning
    with `location`, if the baseline lacks a setting or cannot have a value in its range.
    """
    sections = (ALL_BASELINES, settings["method"]["name"], baseline)
    space = {
        key: value_range for name in sections for key, value_range in ranges.get(name, {}).items()
    }
    of_model = {key: value_range for key, value_range in space.items() if key.startswith("model.")}
    for key, value_range in of_model.items():
        if is_frozen(settings):
            raise DiagvibError(
                f"{location}: {key}: the network of {baseline} is frozen, and all trials have the same "
                "features; leave out this key"
            )
        if value_range.choice is None and present(settings, key) is None:
            raise DiagvibError(
                f"{location}: {key}: {baseline} does not say whether it is an integer; give {baseline} "
                "a value for it, or write `choice`"
            )
    extremes = {key: range_.choice or [range_.at(0), range_.at(1)] for key, range_ in space.items()}
    for number in range(max(map(len, extremes.values()), default=0)):
        values = {
            key: _fitting(settings, key, space[key], ends[min(number, len(ends) - 1)])
            for key, ends in extremes.items()
        }
        # `complete` asks for an origin, which a job's settings lack.
        complete(
            {"origin": location, **with_values(settings, values, location)}, baseline, location
        )
    return space


def with_values(settings: dict, values: Mapping[str, JsonValue], location: str = "ranges") -> dict:
    """A baseline's settings with some replaced; a dot in a key reaches inside."""
    changed_settings = deepcopy(settings)
    for key, value in values.items():
        *parents, last = key.split(".")
        inside = changed_settings
        for parent in parents:
            inside = inside[parent]
            if inside is None:
                raise DiagvibError(
                    f"{location}: {key}: the baseline has no {parent}; leave out this key"
                )
        inside[last] = value
    return changed_settings


def trial_values(
    settings: dict, space: Mapping[str, Range], seed: int, trial: int, attempt: int = 0
) -> dict[str, JsonValue]:
    """A trial's values for the settings in a space; trial 0 has the baseline's own. attempt: from 1
    on, other values of the same trial."""
    if trial == 0:
        return {key: present(settings, key) for key in space}
    names = ["random search", seed, trial]
    draws = {
        key: named_generator(*names, key, *[attempt] * bool(attempt)).random() for key in space
    }
    return {
        key: _fitting(settings, key, range_, range_.at(draws[key])) for key, range_ in space.items()
    }


def distinct_trials(
    settings: dict, space: Mapping[str, Range], seed: int, trials: int
) -> list[dict[str, JsonValue]]:
    """The values of this many trials, or of fewer if a space has no others; no two are the same.
    Choices alone are a grid, all of which is tried if the trials suffice."""
    distinct: dict[str, dict] = {}
    for trial in range(trials):
        for attempt in range(_ATTEMPTS):
            values = trial_values(settings, space, seed, trial, attempt)
            text = json.dumps(values, sort_keys=True)
            if text not in distinct:
                distinct[text] = values
                break
        else:
            distinct |= _grid(settings, space)
            break
    return [*islice(distinct.values(), trials)]


def _grid(settings: dict, space: Mapping[str, Range]) -> dict[str, dict[str, JsonValue]]:
    """All combinations of a space of choices alone, by their text; none of another space."""
    if not all(range_.choice for range_ in space.values()):
        return {}
    choices = [
        [_fitting(settings, key, range_, value) for value in range_.choice]
        for key, range_ in space.items()
    ]
    combinations = [dict(zip(space, values, strict=True)) for values in product(*choices)]
    return {json.dumps(values, sort_keys=True): values for values in combinations}


def described(space: Mapping[str, Range]) -> Iterator[str]:
    """`optimiser.lr 10^U(-5, -3.5)`"""
    for key, range_ in space.items():
        ((kind, parameters),) = range_.model_dump().items()
        listed = ", ".join(
            f"{value:g}" if isinstance(value, float) else str(value) for value in parameters
        )
        form = {"log10": "10^U({})", "log2": "2^U({})", "uniform": "U({})", "choice": "of {}"}[kind]
        yield f"{key} {form.format(listed)}"


def present(settings: dict, key: str) -> JsonValue:
    value = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _fitting(settings: dict, key: str, range_: Range, value: JsonValue) -> JsonValue:
    """A drawn value in the form of the setting: rounded down for integers, otherwise rounded to
    DIGITS."""
    kind, _, option = key.partition(".")
    schemas = declaration(settings["method"]["name"]).schemas if kind == "method" else {}
    schema = schemas.get(option, {})
    if range_.choice is not None:
        return as_declared(value, schema)
    is_integer = key == "batch_size" or "integer" in schema.get("type", ())
    is_integer |= key.startswith("model.options.") and type(present(settings, key)) is int
    return int(value) if is_integer else float(f"{value:.{DIGITS}g}")
