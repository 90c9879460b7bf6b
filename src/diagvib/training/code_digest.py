"""The code that decides a run, as a digest: what an older code has left unfinished, or tuned, does not count for it.

That code is every module that the module of a stage (`diagvib.training.run`, `diagvib.training.tuning`) and those of the baseline's
model and method import, directly or not, as far as it is ours or the user's own: files are hashed byte by byte, so that a comment counts
too. Other packages count by the version of those that the baseline's modules import. Imports are read from the source,
also those within functions; nothing is executed. What a module imports by a name that it computes is not seen.
"""

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import checkout_path, file_sha256
from diagvib.methods.registry import METHODS
from diagvib.models.registry import MODELS, family

_INSTALLED = {"site-packages", "dist-packages"}


def code_digest(settings: dict, stage: str) -> str:
    """sha256, as hex, of the code by which the module `stage` trains a baseline of these settings.

    DiagvibError if an own `package.module:function` is not to be found.
    """
    method, model = settings["method"]["name"], (settings["model"] or {}).get("name")
    entries = [METHODS[method].partition(":")[0]] if method in METHODS else [_own_module(method)]
    if model:
        entries.append(MODELS[family(model)].partition(":")[0])
        entries += [_own_module(model)] if family(model) == "own" else []
    files, others = _closure(entries)
    files |= _closure([stage])[0]
    return hashlib.sha256(repr([
        sorted((name, file_sha256(path)) for name, path in files.items()),
        sorted((name, _version(name)) for name in others)]).encode()).hexdigest()


def own_module_files(kind: str) -> list[Path]:
    """The source files that `kind: package.module:function` is made of: its module and the local ones that this
    imports, directly or not; [] for a kind of ours.

    DiagvibError if the module is not to be found.
    """
    return [] if ":" not in kind else sorted(_closure([_own_module(kind)])[0].values())


def git_state() -> dict | None:
    """The commit of the checkout that the package stands in, and whether code or definitions were changed since (as
    `git status` has it, in src and config); None outside of one."""
    if not checkout_path(".git").exists():
        return None
    git = ["git", "-C", str(checkout_path("")), "--no-optional-locks"]
    try:
        commit, changed = (subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.strip()
                           for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "src", "config"]))
    except (OSError, subprocess.CalledProcessError):  # no git, or a checkout that it does not trust
        return None
    return {"commit": commit, "changed": bool(changed)}


def _own_module(kind: str) -> str:
    module = kind.partition(":")[0]
    if _source(module) is None:
        raise DiagvibError(f"kind: {kind}: there is no module {module}; it must read package.module:function, from an "
                           "installed package or from the current folder")
    return module


def _closure(entries: Iterable[str]) -> tuple[dict[str, Path], set[str]]:
    """Modules that `entries` import, by name, with their files, these included; and the other packages they name."""
    followed = {"diagvib", *(name.partition(".")[0] for name in entries)}
    files: dict[str, Path] = {}
    others: set[str] = set()
    waiting, seen = list(entries), set()
    while waiting:
        name = waiting.pop()
        package = name.partition(".")[0]
        if name in seen or package in sys.stdlib_module_names:
            continue
        seen.add(name)
        path = _source(name)
        if path is None:
            continue
        if _INSTALLED & set(path.parts) and package not in followed:
            others.add(package)
            continue
        files[name] = path
        waiting += _imports(name, path)
    return files, others


def _imports(name: str, path: Path) -> list[str]:
    """The modules, and possibly things in them, that a source file imports, and the packages around it."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise DiagvibError(f"{path}: not valid Python: {error}") from None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = [package]
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[:len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return [module for module in found if module]


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node. Much quicker than ast.walk, which also looks into expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def _source(name: str) -> Path | None:
    """The Python file of a module, found as `import` finds it and in the current folder, but without importing the
    packages around it; None if there is none."""
    place, parts, spec = None, name.split("."), None
    for depth in range(len(parts)):
        spec = _spec(".".join(parts[:depth + 1]), place)
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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # its distribution has another name
        return ""
