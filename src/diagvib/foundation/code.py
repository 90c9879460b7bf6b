"""Finds, from imports, the code files that a result depends on: nothing is executed, nothing is
listed by hand.

Imports are followed into our modules and the user's; installed packages are only named. What does
not affect content is left out: `foundation` except its random generators and binary columns,
`settings`, `operations`, `stages`, which only calls the others, what packages and registries say
about where things are (their imports are followed), and imports for type checkers. A module
imported by a computed name is not seen, so modules named in a configuration are given as entries.
"""

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path
from diagvib.foundation.source import definitions, named_by, outermost, read_source, syntax_tree

OURS = "diagvib"
_PACKAGE = Path(__file__).parent.parent
_INSTALLED = {"site-packages", "dist-packages"}
_NO_CONTENT = (f"{OURS}.foundation.", f"{OURS}.settings.", f"{OURS}.operations.", f"{OURS}.stages")
_CONTENT_ALL_THE_SAME = (f"{OURS}.foundation.seeding", f"{OURS}.foundation.columns")


@dataclass
class Code:
    """modules: name -> file. packages: names of installed packages. data: our files that the
    modules read."""

    modules: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    data: set[Path] = field(default_factory=set)

    def files(self) -> list[str]:
        """Modules and data, in the form of `from_here`."""
        return from_here([*self.modules.values(), *self.data])


def from_here(paths: Iterable[Path]) -> list[str]:
    """Each path once, sorted; relative to the current folder if it is inside."""
    here = Path.cwd()
    return sorted(
        {str(path.relative_to(here) if path.is_relative_to(here) else path) for path in paths}
    )


def code_of(
    entries: Iterable[str],
    scenes: Iterable[str] = (),
    functions: Iterable[str] = (),
    strict: bool = False,
) -> Code:
    """The code of modules (`entries`) and of functions of ours, `module:function`, without the rest
    of their module.

    scenes: `package.module:Class` of the scenes that this code uses through their interface; of
    these, only the methods that the code may call count, with what they use. strict: DiagvibError
    for a file that is not Python; otherwise it counts as having no imports.
    """
    code, waiting, called = Code(), list(entries), set()
    followed = {OURS, *(name.partition(".")[0] for name in (*waiting, *scenes))}
    for function in functions:
        module, _, name = function.partition(":")
        waiting += _take_part(code, module, [name], called)
    _follow(code, waiting, followed, strict)
    for path in code.modules.values() if scenes else ():
        called.update(read_source(path).attributes)
    for scene in scenes:
        module, _, name = scene.partition(":")
        _follow(code, _take_part(code, module, sorted(called), set(), name), followed, strict)
    return code


def _follow(code: Code, waiting: list[str], followed: set[str], strict: bool) -> None:
    """Add modules and what they import."""
    seen = set(code.modules)
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in seen or top in sys.stdlib_module_names or _decides_nothing(name):
            continue
        seen.add(name)
        if top not in followed and top in code.packages:
            continue
        waiting += _parents(name)
        path = find_source(name)
        if path is None:
            continue
        if top not in followed and _INSTALLED & set(path.parts):
            code.packages.add(top)
            continue
        source = read_source(path)
        if strict and source.error:
            raise DiagvibError(f"{path}: not valid Python: {source.error}")
        waiting += _resolved(source.imports, _package(name, path))
        if not _only_finds(name, path):
            code.modules[name] = path
            code.data |= _data(name, path)


def _decides_nothing(name: str) -> bool:
    return f"{name}.".startswith(_NO_CONTENT) and name not in _CONTENT_ALL_THE_SAME


def _only_finds(name: str, path: Path) -> bool:
    return name.partition(".")[0] == OURS and (
        path.name == "__init__.py" or path.name == "registry.py"
    )


def _take_part(
    code: Code, module: str, wanted: Iterable[str], called: set[str], within: str = ""
) -> list[str]:
    """Add the `wanted` definitions of a module and what they use of it; returns the modules that
    they import.

    called: collects the names used as attributes, and so every method that may be called. within:
    the class whose methods and attributes are meant. If the module has no such class, all of it
    counts.
    """
    path = find_source(module)
    if path is None:
        return [module]
    tree, _ = syntax_tree(path)
    parts, waiting = _by_name(outermost(tree))
    imported: dict[str, list[str]] = {}
    for node in outermost(tree):
        for alias, names in _bound(node, _package(module, path)):
            imported.setdefault(alias, []).extend(names)
    modules, taken = [*imported.get("*", [])], []
    if within:
        found = parts.get(within, [None])[-1]
        if not isinstance(found, ast.ClassDef):
            return [module]
        own, always = _by_name(found.body)
        parts |= own
        waiting += [
            *always,
            *found.decorator_list,
            *(part for part in found.body if named_by(part)),
        ]
        for base in found.bases:  # only the wanted parts of a base class count, too
            where = imported.get(getattr(base, "id", ""), [])
            if len(where) == 2 and find_source(where[0]):
                modules += _take_part(
                    code, where[0], wanted, called, where[1].removeprefix(f"{where[0]}.")
                )
            else:
                waiting.append(base)
    waiting += [node for name in wanted for node in parts.get(name, [])]
    while waiting:
        node = waiting.pop()
        if node in taken:
            continue
        taken.append(node)
        for part in _without_annotations(node):
            name = (
                part.id
                if isinstance(part, ast.Name)
                else part.attr
                if isinstance(part, ast.Attribute)
                else ""
            )
            modules += imported.get(name, []) if isinstance(part, ast.Name) else []
            modules += _resolved(named_by(part), _package(module, path))
            waiting += parts.get(name, [])
            if isinstance(part, ast.Attribute):
                called.add(name)
    if not _decides_nothing(module):
        code.modules[module] = path
        code.data |= _data(module, path, taken)
    return [*_parents(module), *modules]


def _by_name(statements: Iterable[ast.stmt]) -> tuple[dict[str, list[ast.AST]], list[ast.AST]]:
    """What defines or changes each name, and what runs whatever is wanted: calls, and the heads of
    loops and the like."""
    parts: dict[str, list[ast.AST]] = {}
    always: list[ast.AST] = []
    for node in statements:
        for name in _defined(node):
            parts.setdefault(name, []).append(node)
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            always.append(node)
        always += [
            part
            for head in ("test", "iter", "items", "subject")
            for part in _listed(getattr(node, head, []))
        ]
    return parts, always


def _listed(value: object) -> list:
    return value if isinstance(value, list) else [value]


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = _listed(getattr(node, "targets", getattr(node, "target", [])))
    return [
        part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
    ]


def _bound(node: ast.stmt, package: str) -> Iterator[tuple[str, list[str]]]:
    """The names that an import binds, each with the modules that it may refer to."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            one = {**vars(node), "names": [alias]}
            yield (
                alias.asname or alias.name.partition(".")[0],
                _resolved(named_by(type(node)(**one)), package),
            )


def _without_annotations(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    inner = (
        [*node.body, *node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
        if isinstance(node, ast.FunctionDef)
        else ast.iter_child_nodes(node)
    )
    for child in inner:
        if child is not None:
            yield from _without_annotations(child)


def _resolved(named: Iterable[Sequence], package: str) -> list[str]:
    """The full names behind `[level, name]`, as `named_by` gives them, in a module of this
    package."""
    parts = package.split(".")
    return [
        ".".join([*(parts[: len(parts) - level + 1] if level else []), *filter(None, [name])])
        for level, name in named
    ]


def _data(name: str, path: Path, nodes: list[ast.AST] | None = None) -> set[Path]:
    """Files in config/ named in calls of `definition_path` by our code, or by these parts of it,
    and files next to a module with the same name."""
    if name.partition(".")[0] != OURS:
        return set()
    named = read_source(path).definitions
    if named and nodes is not None:
        named = definitions(nodes)
    beside = [
        path.with_name(other)
        for other in _listing(path.parent)
        if other.startswith(f"{path.stem}.") and not other.endswith((".py", ".pyc"))
    ]
    return {file for file in (*map(definition_path, named), *beside) if file.is_file()}


@cache
def _listing(folder: Path) -> list[str]:
    return os.listdir(folder)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def _package(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def find_source(name: str) -> Path | None:
    """The Python file of a module, found as `import` does and in the current folder, but without
    importing its parent packages; None if there is none."""
    if name.partition(".")[0] == OURS:
        path = _PACKAGE.joinpath(*name.split(".")[1:])
        return next(
            (file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()),
            None,
        )
    place, spec, parts = None, None, name.split(".")
    for depth in range(len(parts)):
        spec = _spec(".".join(parts[: depth + 1]), place)
        if spec is None:
            return None
        place = spec.submodule_search_locations
        if place is None and depth + 1 < len(parts):
            return None
    origin = Path(spec.origin) if spec.origin and spec.has_location else None
    return origin.resolve() if origin and origin.suffix == ".py" else None


def _spec(name: str, place: Iterable[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, place)
        if spec is not None:
            return spec
    return PathFinder.find_spec(name, [os.getcwd()]) if place is None else None
