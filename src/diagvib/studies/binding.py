"""Bindings: which factor of a scene plays which role of a study, written `shape-hue` or
`shape-hue-texture`."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations

from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.scenes.scene import Scene
from diagvib.studies.study import Study

Factors = Mapping[str, tuple[str, ...]]  # factor -> its classes, as in a scene


@dataclass(frozen=True)
class Binding:
    """The factors of a study's bound roles, in order: the target, then the cues."""

    factors: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join(self.factors)

    @property
    def target(self) -> str:
        return self.factors[0]

    @property
    def cues(self) -> tuple[str, ...]:
        return self.factors[1:]


def read_binding(name: str, factors: Factors) -> Binding:
    """A binding by its name, for any study. DiagvibError, suggesting similar names, for unknown or
    equal factors."""
    parts = tuple(name.split("-"))
    for part in parts:
        if part not in factors:
            raise unknown_name("factor", part, factors, f"binding '{name}'")
    if len(set(parts)) < len(parts):
        raise DiagvibError(
            f"binding '{name}' names a factor twice; give each role a factor of its own"
        )
    return Binding(parts)


def bind(study: Study, name: str, factors: Factors) -> Binding:
    """The binding of this name for a study: one factor for each of its bound roles.

    DiagvibError if the number of factors is wrong, or a factor has fewer classes than its role.
    """
    return _fitting(study, read_binding(name, factors), factors)


def bind_its_own(study: Study, name: str, factors: Factors) -> Binding:
    """As `bind`; a study that binds only the target takes it from the binding of another study,
    too."""
    factor_names = read_binding(name, factors)
    return _fitting(
        study, factor_names if study.cues else Binding(factor_names.factors[:1]), factors
    )


def _fitting(study: Study, binding: Binding, factors: Factors) -> Binding:
    if len(binding.factors) != len(study.bound):
        example = "-".join([*factors][: len(study.bound)])
        raise DiagvibError(
            f"study {study.name}: '{binding.name}' names {len(binding.factors)} factors for "
            f"{len(study.bound)} roles ({', '.join(study.bound)}); write e.g. {example}"
        )
    for role, factor in zip(study.bound, binding.factors, strict=True):
        if len(factors[factor]) < study.roles[role]:
            raise DiagvibError(
                f"study {study.name}: {role} has {study.roles[role]} classes, but {factor} has only "
                f"{len(factors[factor])}; bind another factor to it"
            )
    return binding


def spreads(study: Study, binding: Binding) -> dict[str, float]:
    """Factor -> how much its classes differ, for the roles of which a study says so."""
    roles = dict(zip(study.bound, binding.factors, strict=True))
    return {roles[role]: spread for role, spread in (study.spread or {}).items()}


def all_bindings(study: Study, factors: Factors) -> list[Binding]:
    """Every binding that a study can have: each target with each set of cues, of factors with
    enough classes.

    Cue roles with equal numbers of classes and equal spreads are taken to be interchangeable, so
    that the order of their factors makes no new binding.
    """
    exchangeable = (
        len({(study.roles[cue], (study.spread or {}).get(cue, 1)) for cue in study.cues}) < 2
    )
    arrange = combinations if exchangeable else permutations
    return [
        Binding((target, *cues))
        for target in factors
        for cues in arrange([f for f in factors if f != target], len(study.cues))
        if all(
            len(factors[factor]) >= study.roles[role]
            for role, factor in zip(study.bound, (target, *cues), strict=True)
        )
    ]


def chosen_bindings(study: Study, names: list[str] | str, factors: Factors) -> list[Binding]:
    """Those of a configuration's bindings that a study has: all, or those with a factor of its
    scene for each role.

    A study that binds only the target uses the targets of all of them, in the scene's order.
    DiagvibError for a factor with fewer classes than its role.
    """
    if names == "all":
        return all_bindings(study, factors)
    of_scene = [name for name in names if all(part in factors for part in name.split("-"))]
    read = [read_binding(name, factors) for name in of_scene]
    if not study.cues:
        targets = {binding.target for binding in read}
        return [bind(study, factor, factors) for factor in factors if factor in targets]
    return [_fitting(study, b, factors) for b in read if len(b.factors) == len(study.bound)]


def possible_bindings(study: Study, names: list[str] | str, scene: Scene) -> list[Binding]:
    """Those of `chosen_bindings` whose classes can differ as much or little as the study says."""
    bindings = chosen_bindings(study, names, scene.factors)
    return [binding for binding in bindings if {*spreads(study, binding)} <= {*scene.spreads}]
