"""`diagvib new method`, `model`, `study` and `scene`: files that work, with the choices as comments."""

import re
from collections.abc import Callable
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from pathlib import Path

import jinja2

from diagvib.commands.new_files import check_free, write_configured
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.hooks import hooks_of

_TEMPLATE = Path(__file__).with_suffix(".j2")
# Kind -> what is written.
KINDS = {
    "method": "a method in NAME.py, a baseline with it in NAME.yaml",
    "model": "a model in NAME.py, a baseline with it in NAME.yaml",
    "study": "a study in NAME.yaml",
    "scene": "a scene in NAME.py, a study of it in NAME.yaml",
}


def write_new(kind: str, name: str) -> list[Path]:
    """Write the files of one of KINDS to the current folder; returns their paths. DiagvibError if one
    is there, or if the name is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or iskeyword(name):
        raise DiagvibError(
            f"{name}: a name for a file, such as my_{kind}, is needed: small letters, digits and '_', "
            "no keyword of Python"
        )
    files = new_files(kind, name)
    check_free(files, "name")
    module = find_spec(name)
    if module and (module.origin is None or Path(module.origin) != Path(f"{name}.py").resolve()):
        raise DiagvibError(f"{name}: Python has a module of this name; choose another one")
    write_configured(files, Path(f"{name}_config.yaml"))
    return [*files]


def new_files(kind: str, name: str) -> dict[Path, str]:
    """Path -> text."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        kind=kind,
        name=name,
        title=name.replace("_", " ").capitalize(),
        class_name="".join(word.capitalize() for word in name.split("_")),
        hooks=hook_signatures(kind),
    )
    _, *parts = re.split(r"^=== (\S+)\n", text, flags=re.M)
    return {Path(path): part for path, part in zip(parts[::2], parts[1::2], strict=True)}


def hook_signatures(kind: str) -> list[str]:
    """`combine(self, losses, batch)`, of all hooks of a method or a scene."""
    if kind == "method":
        from diagvib.methods.method import Method as base

        names = [name for name in hooks_of(base) if name != "optimiser"]  # which makes one
    elif kind == "scene":
        from diagvib.scenes.scene import Scene as base

        names = hooks_of(base)
        names = names[: names.index("examples")]  # from there on, functions that call the hooks
    else:
        return []
    return [f"{name}{_untyped(getattr(base, name))}: ..." for name in names]


def _untyped(function: Callable) -> Signature:
    parameters = [
        parameter.replace(annotation=Parameter.empty)
        for parameter in signature(function).parameters.values()
    ]
    return Signature(parameters)
