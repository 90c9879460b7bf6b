"""The code that a result depends on: the modules that a job begins with, and all that they import.

Nothing is executed: imports are read from the source. Files of this package and of the user count
as a whole, but for comments, docstrings and blank lines; installed packages are only named. Models,
methods and scenes are named in a configuration, so they are entries: no registry leads to them. Not
seen are modules imported by a computed name or from folders that code adds to sys.path, and files
that a user's code reads; paths of such files can be entries, too.
"""

import ast
import importlib.util
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, file_sha256, text_sha256
from diagvib.foundation.versions import once_per_version

OURS = "diagvib"
_PACKAGE = Path(__file__).parent.parent
_INSTALLED = {"site-packages", "dist-packages"}
# Left out, with what they import, since an edit there changes no content: `foundation` handles
# files, errors and processes (only its random generators and binary columns count), what `settings`
# makes stands in each job's own settings, `operations`, `sharing` and `commands` take no part in a
# job, `studies.needs` only checks, and a function of `stages` only calls the modules that it
# imports (`imported_in`).
_LEFT_OUT = re.compile(
    rf"{OURS}\.(settings|operations|sharing|commands|stages|studies\.needs"
    r"|foundation(?!\.(seeding|columns)\b))\b"
)
# These of ours only say where things are: not counted, but their imports are followed.
_ONLY_NAMES = ("__init__.py", "registry.py")
_LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# Files below are named as from a checkout.
_DEFINITIONS = definition_path("").parent
_QUOTED_FILE = re.compile(r'"([\w.-]+(?:/[\w.-]+)*\.(?!py")\w+)"')


@dataclass(frozen=True)
class Code:
    """files: name of a module, or of another file -> path. packages: the installed packages that
    are imported."""

    files: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)

    @cached_property
    def digest(self) -> str:
        """sha256, as hex, of all files, wherever they are. OSError if one cannot be read."""
        programs = sorted((name, program_digest(path)) for name, path in self.files.items())
        return text_sha256(repr(programs))


def code_of(entries: Iterable[str | Path]) -> Code:
    """The code that begins with these modules, by name, and with these files.

    An installed package is followed only if one of its modules is an entry.
    """
    code, seen, waiting = Code(), set(), list(entries)
    followed = {OURS, *(str(entry).partition(".")[0] for entry in waiting)}
    while waiting:
        name = waiting.pop()
        if isinstance(name, Path):
            around = [base for base in (Path.cwd(), _DEFINITIONS) if name.is_relative_to(base)]
            code.files[str(name.relative_to(around[0]) if around else name)] = name
            if not name.is_file():
                raise DiagvibError(f"{name}: no such file, but a scene or a baseline depends on it")
            continue
        top, _, below = name.partition(".")
        known = name in seen or top in code.packages or top in sys.stdlib_module_names
        if known or _LEFT_OUT.match(name):
            continue
        seen.add(name)
        waiting += [name.rpartition(".")[0]] if below else []
        path = find_source(name)
        if path and top not in followed and _is_installed(name, path):
            code.packages.add(top)
        elif path:
            source = _source(path)
            waiting += _resolved(source.imports, name, path)
            if top != OURS or path.name not in _ONLY_NAMES:
                code.files[name] = path
            if top == OURS:
                code.files.update(_data(path))
    return code


def imported_in(module: str, function: str) -> list[str]:
    """The modules of ours that a function imports, itself or in functions and classes beside it
    that it names."""
    tree, _ = syntax_tree(find_source(module))
    functions = {node.name: node for node in tree.body if hasattr(node, "name")}
    waiting, found = [function], []
    while waiting:
        node = functions.pop(waiting.pop(), None)
        for part in ast.walk(node) if node else ():
            waiting += [part.id] if isinstance(part, ast.Name) else []
            found += [name for name in _named_by(part) if name.startswith(f"{OURS}.")]
    return found


def find_source(name: str) -> Path | None:
    """The Python file of a module, found as `import` does and in the current folder, but without
    importing its parent packages; None if there is none."""
    top, *inner = name.split(".")
    spec = None if top == OURS else _spec(top)
    if spec and spec.has_location and not inner:
        files = [Path(spec.origin)]
    else:
        folders = [_PACKAGE] if top == OURS else (spec and spec.submodule_search_locations) or ()
        paths = [Path(folder, *inner) for folder in folders]
        files = [file for path in paths for file in (path / "__init__.py", path.with_suffix(".py"))]
    return next((file.resolve() for file in files if file.suffix == ".py" and file.is_file()), None)


def _is_installed(name: str, path: Path) -> bool:
    """Whether pip has put a module here: in an environment, or by `--target` in a folder other than
    the current one, where the user's own code may be."""
    if _INSTALLED & set(path.parts):
        return True
    folder = path.parents[name.count(".") + (path.name == "__init__.py")]
    return folder != Path.cwd() and any(folder.glob("*.dist-info"))


def _spec(name: str) -> ModuleSpec | None:
    found = (finder.find_spec(name, None) for finder in sys.meta_path)
    return next(filter(None, found), None) or PathFinder.find_spec(name, [os.getcwd()])


def program_digest(path: Path) -> str:
    """sha256, as hex, of a file; of a Python file, without comments, docstrings and blank lines,
    if it is valid."""
    return _source(path).program if path.suffix == ".py" else file_sha256(path)


@once_per_version
def syntax_tree(path: Path) -> tuple[ast.Module, str]:
    """A file's syntax tree; an empty tree, and the reason, if it is not Python."""
    try:
        return ast.parse(path.read_bytes(), str(path)), ""
    except (SyntaxError, ValueError) as error:
        return ast.Module([], []), str(error)


class _Source(NamedTuple):
    """imports: as in import statements, relative ones with their dots; what is imported from a
    module counts as one. quoted: strings that may name files. program: see `program_digest`."""

    imports: list[str]
    quoted: list[str]
    program: str


@once_per_version
def _source(path: Path) -> _Source:
    tree, wrong = syntax_tree.__wrapped__(path)  # not kept: trees of all files are large
    if wrong:
        return _Source([], [], file_sha256(path))
    text = importlib.util.decode_source(path.read_bytes())
    imports = [name for node in ast.walk(tree) for name in _named_by(node)]
    program = text_sha256(_program(text, tree))
    return _Source(imports, _QUOTED_FILE.findall(text), program)


def _program(text: str, tree: ast.Module) -> str:
    """The lines of a program that hold more than comments and docstrings, up to their comments."""
    docstrings = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    lines, rows = text.split("\n"), set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column].rstrip()
        elif token.type not in _LAYOUT and (token.type != tokenize.STRING or row not in docstrings):
            rows.update(range(row, token.end[0] + 1))
    return "\n".join(lines[row - 1] for row in sorted(rows))


def _named_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        inner = base if base.endswith(".") else f"{base}."
        return [base, *(inner + alias.name for alias in node.names)]
    return []


def _resolved(imports: Iterable[str], module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for name in imports:
        with suppress(ImportError):  # above the topmost package
            yield importlib.util.resolve_name(name, package)


def _data(path: Path) -> dict[str, Path]:
    """The files that a module of ours names in quotation marks, in config/ or beside it, and those
    that they name."""
    found, waiting = {}, [path]
    for file in waiting:
        quoted = (
            _source(file).quoted
            if file.suffix == ".py"
            else _QUOTED_FILE.findall(file.read_text(errors="replace"))
        )
        for name in quoted:
            for named in (definition_path(name), file.parent / name):
                if name not in found and named.is_file():
                    found[name] = named
                    waiting.append(named)
    return found
