"""The methods: their names, their supervision, their options, and how a baseline is made.

Neither importing this nor asking what a method declares imports torch: declarations are read from
the source.
"""

import ast
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.hooks import hooks_of, overrides_hook
from diagvib.foundation.imports import find_source, syntax_tree
from diagvib.foundation.plug_ins import imported
from diagvib.foundation.validation import InvalidField, Strict, TextLike, validated
from diagvib.scenes import load_scene
from diagvib.scenes.scene import ABILITIES

if TYPE_CHECKING:
    from diagvib.images.datasets import Datasets
    from diagvib.methods.method import Method

# `method` in a baseline's settings -> class(settings, n_classes, image_size), a Method. Any other
# name must be package.module:Class, the user's own.
METHODS = {
    "erm": "diagvib.methods.erm:Erm",
    "asr": "diagvib.methods.asr:Asr",
    "vae": "diagvib.methods.vae:Vae",
    "factor_vae": "diagvib.methods.factor_vae:FactorVae",
    "group_dro": "diagvib.methods.group_dro:GroupDro",
    "jtt": "diagvib.methods.jtt:Jtt",
    "coral": "diagvib.methods.coral:Coral",
    "cf_f": "diagvib.methods.cf_f:CounterfactualAndFactual",
    "lle": "diagvib.methods.lle:Lle",
    "lff": "diagvib.methods.lff:Lff",
    "eiil": "diagvib.methods.eiil:Eiil",
    "debian": "diagvib.methods.debian:Debian",
    "mixup": "diagvib.methods.mixup:Mixup",
    "cutmix": "diagvib.methods.cutmix:CutMix",
    "cutout": "diagvib.methods.cutout:Cutout",
    "augmix": "diagvib.methods.augmix:AugMix",
    "sd": "diagvib.methods.sd:SpectralDecoupling",
    "di": "diagvib.methods.di:DomainIndependent",
    "subg": "diagvib.methods.balancing:SubG",
    "dfr": "diagvib.methods.dfr:Dfr",
    "irm": "diagvib.methods.irm:Irm",
    "vrex": "diagvib.methods.vrex:Vrex",
    "mmd": "diagvib.methods.mmd:Mmd",
    "causirl_coral": "diagvib.methods.causirl:CausirlCoral",
    "causirl_mmd": "diagvib.methods.causirl:CausirlMmd",
    "fish": "diagvib.methods.fish:Fish",
    "w2d": "diagvib.methods.w2d:W2d",
    "lisa": "diagvib.methods.lisa:Lisa",
    "env_mixup": "diagvib.methods.env_mixup:EnvMixup",
    "rwg": "diagvib.methods.balancing:Rwg",
    "rwy": "diagvib.methods.balancing:Rwy",
    "suby": "diagvib.methods.balancing:SubY",
    "llr": "diagvib.methods.retraining:Llr",
    "afr": "diagvib.methods.afr:Afr",
    "self": "diagvib.methods.self_disagreement:SelfDisagreement",
    "lc": "diagvib.methods.logit_correction:LogitCorrection",
    "ula": "diagvib.methods.logit_correction:UnsupervisedLogitAdjustment",
    "xrm": "diagvib.methods.xrm:Xrm",
    "dpe": "diagvib.methods.dpe:Dpe",
    "masktune": "diagvib.methods.masktune:MaskTune",
}


# The type of an option whose schema does not name it, by that of its default.
_TYPES = {float: "number", bool: "boolean", int: "integer"}
_Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]


class _Schema(Strict):
    model_config = ConfigDict(extra="allow")
    default: JsonValue
    type: _Type | Sequence[_Type] | None = None

    @model_validator(mode="after")
    def _keywords(self) -> "_Schema":
        from jsonschema import Draft202012Validator

        keywords = [*Draft202012Validator.VALIDATORS, "description", "title"]
        for key in self.model_extra:
            if key not in keywords:
                raise InvalidField(key, "unknown key", keywords)
        schema = {key: value for key, value in dict(self).items() if value is not None}
        for error in Draft202012Validator(schema).iter_errors(self.default):
            raise InvalidField("default", error.message)
        return self


class Declaration(Strict):
    """The declarations of a method, which are literals in the body of its class; see `Method`."""

    supervision: list[Literal["none", "cues", "cue", "cue_types", "environments"]] = Field(
        [], min_length=1
    )
    options: dict[
        Annotated[str, TextLike(r"(?!(name|supervision)$)\w+", "any other word is needed")], _Schema
    ] = Field({})
    own_network: bool = False
    trains: bool = True
    needs: list[Literal[tuple(ABILITIES)]] = Field([])
    pixels: bool = False
    uses_features: bool = False
    every_group: bool = False
    groups_validation: bool = False
    pairs_if: dict[str, JsonValue] = Field({})
    # Option -> the values of others with which it has no effect.
    unused_if: dict[str, dict[str, list[JsonValue]]] = Field({})
    # The views of training images that it reads: their names, the options that name them, or `cue`,
    # one for each cue of the study.
    reads_views: list[str] = Field([])
    environment_images: int = 0
    halvings: str = ""

    @property
    def schemas(self) -> dict[str, dict]:
        """The JSON schema of each option, and of the supervision. Single cues are named by their
        number in the study."""
        cues = [f"cue-{number}" for number in range(1, 10)]
        words = [
            word for level in self.supervision for word in (cues if level == "cue" else [level])
        ]
        supervision = {
            "description": "Which labels besides the target the method uses.",
            "enum": words,
            "default": words[0],
        }
        return {"supervision": supervision, **self.options}

    @property
    def defaults(self) -> dict[str, JsonValue]:
        """A baseline's `method` without its name, if nothing is chosen."""
        return {key: schema["default"] for key, schema in self.schemas.items()}


def declaration(name: str) -> Declaration:
    """The declaration of the method of that name. DiagvibError if there is no such method."""
    if name not in METHODS and ":" not in name:
        raise unknown_name("method", name, [*METHODS, "package.module:Class"], "method")
    declared = _shipped(name) if name in METHODS else _read(*name.split(":", 1))
    if not declared.supervision:
        raise DiagvibError(
            f"method: {name} is no subclass of diagvib.methods.method.Method or of a method, as far "
            "as its file says; import the base class, and name it in the class statement"
        )
    return declared


def views_read(method: dict, cues: int) -> list[str]:
    """The views that a method (its settings) reads, if a study has that many cues."""
    of_cues = {"cue": [f"cue.{number + 1}" for number in range(cues)]}
    values = [
        (of_cues | method).get(name, name) for name in declaration(method["name"]).reads_views
    ]
    return [view for value in values for view in (value if isinstance(value, list) else [value])]


@cache
def _shipped(name: str) -> Declaration:
    return _read(*METHODS[name].split(":"))


def check_scene(method: dict, scene: str) -> None:
    """DiagvibError if a scene, by its name, cannot do what a method (its settings) needs."""
    for ability in declaration(method["name"]).needs:
        if not load_scene(scene).can(ability):
            raise DiagvibError(
                f"method: {method['name']} needs a scene that can {ABILITIES[ability]}, but {scene} "
                f"cannot; choose another method"
            )


def _read(module: str, class_name: str) -> Declaration:
    mirror, values, options = _mirror(module, class_name, {}), {}, {}
    for kind in reversed(mirror.__mro__[:-1]):
        values |= kind.values
        # Unlike what is validated, this keeps the schemas as they were written.
        options |= {key: _typed(schema) for key, schema in kind.values.get("options", {}).items()}
    as_lists = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
    return Declaration().model_copy(update={**as_lists, "options": options})


def _mirror(module: str, class_name: str, mirrors: dict[str, type | None]) -> type:
    """A class without any code that has the bases, and as `values` the declarations, of a method's
    class or a mixin; Python puts the bases in order. mirrors: those so far; None is unfinished."""
    path, location = find_source(module), f"method: {module}:{class_name}"
    if mirrors.get(location):
        return mirrors[location]
    if path is None:
        raise DiagvibError(
            f"{location} cannot be found: there is no module {module}, neither installed nor in the "
            "current folder"
        )
    tree, syntax_error = syntax_tree(path)
    if syntax_error:
        raise DiagvibError(
            f"{location} cannot be read: {path} is not valid Python ({one_line(syntax_error)})"
        )
    names = _bindings(tree, module, path)
    node = next((n for n in tree.body if getattr(n, "name", "") == class_name), None)
    if not isinstance(node, ast.ClassDef):
        if class_name not in names or location in mirrors:
            raise DiagvibError(f"{location} cannot be found: {path} has no class {class_name}")
        mirrors[location] = None
        return _mirror(*_split(names[class_name]), mirrors)
    values, bases = _literals(node, path, location), []
    for base in node.bases if location != _BASE and location not in mirrors else ():
        mirrors[location] = None
        root, _, attribute = ast.unparse(base).partition(".")
        dotted = ".".join(filter(None, [names.get(root, f"{module}.{root}"), attribute]))
        # What cannot be read is no method, such as a mixin of a compiled package.
        with suppress(_Unreadable):
            bases.append(_base(dotted, mirrors))
    try:
        mirrors[location] = type(class_name, tuple(bases), {"values": values})
        return mirrors[location]
    except TypeError as error:
        raise DiagvibError(f"{location}: {path}: {one_line(error)}") from None


# Its bases declare nothing.
_BASE = "method: diagvib.methods.method:Method"


class _Unreadable(Exception):
    """A base class whose source is not there."""


def _base(dotted: str, mirrors: dict[str, type | None]) -> type:
    module, class_name = _split(dotted)
    source = find_source(module) if re.fullmatch(r"\w+(\.\w+)+", dotted) else None
    if source is None or not re.search(rf"\b{class_name}\b", source.read_text(errors="replace")):
        raise _Unreadable
    return _mirror(module, class_name, mirrors)


def _split(dotted: str) -> tuple[str, str]:
    module, _, name = dotted.rpartition(".")
    return module, name


def _bindings(tree: ast.Module, module: str, path: Path) -> dict[str, str]:
    """The dotted path of what each name of a module stands for, of those that are imported or
    other names."""
    package, names = module if path.name == "__init__.py" else _split(module)[0], {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            with suppress(ImportError):  # above the topmost package
                source = resolve_name(source, package)
            names |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            root, _, attribute = ast.unparse(node.value).partition(".")
            dotted = ".".join(filter(None, [names.get(root, f"{module}.{root}"), attribute]))
            names |= {target.id: dotted for target in node.targets if isinstance(target, ast.Name)}
    return names


def _literals(node: ast.ClassDef, path: Path, location: str) -> dict:
    """The declarations in the body of a class."""
    written = {
        target.id: statement.value
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        if isinstance(target, ast.Name) and target.id in Declaration.model_fields
    }
    try:
        values = {key: ast.literal_eval(value) for key, value in written.items()}
    except (TypeError, ValueError):
        raise DiagvibError(
            f"{location}: {', '.join(written)} of {node.name} in {path} must be literals, because they "
            "are read without running the code"
        ) from None
    as_lists = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
    validated(Declaration, as_lists, f"{location}: {path}: {node.name}")
    return values


def _typed(schema: dict) -> dict:
    kind = _TYPES.get(type(schema["default"]))
    return {"type": kind, **schema} if kind else schema


# The method whose images are predictions.
PREDICTIONS = "diagvib.methods.predictions:Predictions"


def as_read(settings: dict, datasets: "Datasets") -> "Datasets":
    """Datasets as a baseline's method reads them."""
    if settings["method"]["name"] != PREDICTIONS:
        return datasets
    module, _, _ = PREDICTIONS.partition(":")
    return imported(f"{module}:PredictedDatasets", "method")(datasets, settings["method"])


def make_baseline(settings: dict, n_classes: int, image_size: int, seed: int) -> "Method":
    """A method with its network on the CPU. Initial weights depend only on `seed` (paper, A.2:
    fixed across runs) and, where `n_classes` is in their shape, on that: the rest is the same for
    every target factor.

    settings: as `load_settings` gives them. n_classes: all classes of the target factor.
    image_size: pixels per side. DiagvibError if the settings do not fit.
    """
    from diagvib.methods.method import Method, initialised

    name = settings["method"]["name"]
    method_settings = {"name": name, **declaration(name).defaults, **settings["method"]}
    maker = imported(METHODS.get(name, name), "method")
    if name not in METHODS and not overrides_hook(maker, Method):
        raise DiagvibError(
            f"method: {name} overrides none of {', '.join(hooks_of(Method))}, so it would train as "
            "erm under another name"
        )
    settings = {**settings, "method": method_settings}
    return initialised(lambda: maker(settings, n_classes, image_size), seed)
