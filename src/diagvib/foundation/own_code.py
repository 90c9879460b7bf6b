"""The files of a user's own model, found without running any of them."""

import ast
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path


def own_files(kind: str) -> list[str]:
    """The files behind `kind: package.module:function`: the module, and what it imports from beside it, and so on.

    Beside it is its own package and, unless it is installed in site-packages, the folder in which that lies. Paths are
    relative to the current folder where they lie in it. Empty for a kind of the program's own, and for a module that is
    not there: the job that needs it says so.
    """
    module, colon, _ = kind.partition(":")
    top = module.partition(".")[0]
    # As a training looks for it: installed first, then in the current folder.
    places = [path for path in sys.path if path not in ("", os.getcwd())] + [os.getcwd()]
    home = next((path for path in places if PathFinder.find_spec(top, [path])), None) if colon else None
    if home is None:
        return []
    installed = "site-packages" in Path(home).parts
    found: set[Path] = set()
    names = [module]
    while names:
        name = names.pop()
        if installed and name.partition(".")[0] != top:
            continue
        for path in set(_files(name, home)) - found:
            found.add(path)
            names += _imported(path, home)
    return sorted(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path) for path in found)


def _files(name: str, home: str) -> Iterator[Path]:
    """The files that Python reads to import a module from a folder: those of its packages, and its own."""
    places = [home]
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places)
        if spec is None:
            return
        if spec.has_location:
            yield Path(os.path.abspath(spec.origin))
        places = list(spec.submodule_search_locations or [])


def _imported(path: Path, home: str) -> Iterator[str]:
    """Every name that a source file imports, whether a module or something in one."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = path.relative_to(os.path.abspath(home)).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[:len(package) - node.level + 1]] if node.level else []
            module = [*base, *filter(None, [node.module])]
            yield from (".".join([*module, alias.name]) for alias in node.names)
