"""The methods: their names, what each is told, their options, and how a baseline is made.

Neither importing this nor asking what a method declares imports torch: declarations are read from
the source.
"""

import ast
import importlib
import importlib.util
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from diagvib.foundation.code import syntax_tree
from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.plug_ins import imported, look_here, own_code
from diagvib.scenes import load_scene
from diagvib.scenes.scene import ABILITIES

if TYPE_CHECKING:
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
    "subg": "diagvib.methods.subg:SubG",
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
}
_SUPERVISION = ("none", "cues", "cue", "cue_types", "environments")


@dataclass(frozen=True)
class Declaration:
    """What a method declares, as in `Method`. files: the sources of its class and of those it
    extends."""

    supervision: tuple[str, ...] = ()
    options: dict = field(default_factory=dict)
    own_network: bool = False
    needs: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


def declaration(name: str, where: str = "method") -> Declaration:
    """The declaration of the method of that name. DiagvibError, beginning with `where`, if there is
    no such method."""
    if name not in METHODS and ":" not in name:
        raise unknown_name("method", name, [*METHODS, "package.module:Class"], where)
    found = _shipped(name) if name in METHODS else _read(*name.split(":", 1), f"{where}: {name}")
    if not found.supervision:
        raise DiagvibError(
            f"{where}: {name} is not a subclass of diagvib.methods.method.Method, imported with `from "
            "diagvib.methods.method import Method`"
        )
    return found


@cache
def _shipped(name: str) -> Declaration:
    return _read(*METHODS[name].split(":"), f"method: {name}")


def check_scene(method: dict, scene: str) -> None:
    """DiagvibError if a scene, by its name, cannot do what a method (its settings) needs."""
    for ability in declaration(method["name"]).needs:
        if not hasattr(load_scene(scene), ability):
            raise DiagvibError(
                f"method: {method['name']} needs a scene that can {ABILITIES[ability]}, but {scene} "
                f"cannot; choose another method, or a scene that has `{ability}`"
            )


def _read(module: str, class_name: str, where: str) -> Declaration:
    path = _source(module, where)
    try:
        tree, wrong = syntax_tree(path)
    except OSError as error:
        tree, wrong = ast.Module([], []), str(error)
    if wrong:
        raise DiagvibError(
            f"{where} cannot be read: {path} is not valid Python ({one_line(wrong)})"
        )
    found = next(
        (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name),
        None,
    )
    if found is None:
        raise DiagvibError(f"{where} cannot be found: {path} has no class {class_name}")
    given = {
        target.id: node.value
        for node in found.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
        and target.id in ("supervision", "options", "own_network", "needs")
    }
    try:
        values = {key: ast.literal_eval(value) for key, value in given.items()}
    except (TypeError, ValueError):
        raise DiagvibError(
            f"{where}: supervision, options, own_network and needs of {class_name} in {path} must be "
            "literals, because they are read without running the code"
        ) from None
    _check_declared(values, f"{where}: {path}: {class_name}")
    base = next((_read(*known, where) for known in _bases(found, tree, module)), Declaration())
    return Declaration(
        tuple(values.get("supervision", base.supervision)),
        {**base.options, **values.get("options", {})},
        values.get("own_network", base.own_network),
        tuple(values.get("needs", base.needs)),
        (path, *base.files),
    )


def _check_declared(values: dict, where: str) -> None:
    supervision, options = values.get("supervision", _SUPERVISION), values.get("options", {})
    if (
        not isinstance(supervision, tuple | list)
        or not supervision
        or any(word not in _SUPERVISION for word in supervision)
    ):
        raise DiagvibError(
            f"{where}.supervision must be a tuple of one or more of {', '.join(_SUPERVISION)}"
        )
    needs = values.get("needs", ())
    if not isinstance(needs, tuple | list) or any(word not in ABILITIES for word in needs):
        raise DiagvibError(f"{where}.needs must be a tuple of some of {', '.join(ABILITIES)}")
    if not isinstance(options, dict):
        raise DiagvibError(f"{where}.options must be a mapping of names to JSON schemas")
    for name, schema in options.items():
        if (
            name in ("name", "supervision")
            or not isinstance(schema, dict)
            or "default" not in schema
        ):
            raise DiagvibError(
                f"{where}.options: {name} must be a JSON schema with a default, and must not be called "
                "name or supervision"
            )


def _bases(found: ast.ClassDef, tree: ast.Module, module: str) -> list[tuple[str, str]]:
    """(module, class) of each base of a class, defined above it or imported by `from module import
    name`."""
    names = [base.id for base in found.bases if isinstance(base, ast.Name)]
    beside = {
        node.name: (module, node.name)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.lineno < found.lineno
    }
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    known = {**imported, **beside}
    return [known[name] for name in names if name in known and known[name][0] != "torch"]


def _source(module: str, where: str) -> Path:
    look_here()
    try:
        spec = importlib.util.find_spec(module)
    except (Exception, SystemExit):  # finding a module runs its package, which is not ours
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise DiagvibError(
            f"{where} cannot be found: there is no module {module}, neither installed nor in the "
            "current folder"
        )
    return Path(spec.origin)


def make_baseline(settings: dict, n_classes: int, image_size: int, seed: int) -> "Method":
    """A method with its network on the CPU. Initial weights depend only on `seed` (paper, A.2:
    fixed across runs) and, where `n_classes` is in their shape, on that: the rest is the same for
    every target factor.

    settings: as `load_settings` gives them. n_classes: all classes of the target factor.
    image_size: pixels per side. DiagvibError if the settings do not fit.
    """
    from diagvib.methods.method import initialised

    name = settings["method"]["name"]
    declaration(name)  # refuses anything that is not a method
    maker = imported(METHODS.get(name, name), "method")
    where = f"method: {name} cannot be built with the settings {settings['method']}"
    with own_code(where, maker.__init__):
        method = initialised(lambda: maker(settings, n_classes, image_size), seed)
    if "memory" not in vars(method):
        raise DiagvibError(
            f"method: {name}: its __init__ must call super().__init__(settings, n_classes, image_size)"
        )
    return method
