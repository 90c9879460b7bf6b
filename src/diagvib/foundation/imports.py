"""The code that a result depends on: the modules that a job begins with, and all that they import.

Nothing is executed: imports are read from the source. Files of this package and of the user count
as a whole, by what they compute (`foundation.program`) and not by their names; installed packages
are only named. Models,
methods and scenes are named in a configuration, so they are entries: no registry leads to them. Not
seen are modules imported by a computed name or from folders that code adds to sys.path, and files
that a user's code reads; paths of such files can be entries, too.
"""

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    cache_folder,
    definition_path,
    file_sha256,
    parse_yaml,
    read_json,
    text_sha256,
    write_json,
)
from diagvib.foundation.program import OURS, named_by, program_of
from diagvib.foundation.versions import once_per_version

_PACKAGE = Path(__file__).parent.parent
_INSTALLED = {"site-packages", "dist-packages"}
# Left out, with what they import, since an edit there changes no content: `foundation` handles
# files, errors and processes (only its random generators and binary columns count), what `settings`
# makes stands in each job's own settings, `provenance` only compares, `workflow` and `commands`
# take no part in a job, `studies.metric_needs` only checks, and a function of `stages` only calls the
# modules that it imports (`imported_in`).
_LEFT_OUT = re.compile(
    rf"{OURS}\.(settings|provenance|workflow|commands|stages|studies\.metric_needs"
    r"|foundation(?!\.(seeding|columns)\b))\b"
)
# These of ours only say where things are: not counted, but their imports are followed.
_ONLY_NAMES = ("__init__.py", "registry.py")
# Files below are named as from a checkout.
_DEFINITIONS = definition_path("").parent
_QUOTED_FILE = re.compile(r'"([\w.-]+(?:/[\w.-]+)*\.(?!py")\w+)"')


class Definition(NamedTuple):
    """A YAML file as an entry. unused: keys on which nothing that is made depends."""

    path: Path
    unused: tuple[str, ...] = ()


Entry = str | Path | Definition


@dataclass(frozen=True)
class Code:
    """files: name of a module, or of another file -> path. packages: the installed packages that
    are imported. entries: the files of the user with which the code begins. uses: the modules and
    other files that each file names, in an order that no name decides. unused: keys of YAML files
    that do not count."""

    files: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    entries: list[str] = field(default_factory=list)
    uses: dict[str, list[str]] = field(default_factory=dict)
    unused: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """sha256, as hex, of what all files hold and which of them each uses, whatever their names
        are and wherever they are. OSError if one cannot be read."""
        sources = {name: _source(path) for name, path in self.files.items()}
        for name in filter(self.unused.get, sources):
            content = _content_digest(self.files[name], self.unused[name])
            sources[name] = sources[name]._replace(digest=content)
        words = {word for source in sources.values() for word in source.words}
        # A parameter's name counts if a keyword or a text may be meant for it.
        digests = {
            name: (source.digest, [word for word in source.parameters if word in words])
            for name, source in sources.items()
        }
        kinds = 0
        while True:  # until files with the same content are told apart by what they use
            finer = {
                name: text_sha256(
                    repr((digests[name], [*map(digests.get, self.uses.get(name, []))]))
                )
                for name in sources
            }
            if kinds == (kinds := len(set(finer.values()))):
                break
            digests = finer
        entries = [finer[name] for name in self.entries]
        return text_sha256(repr((sorted(finer.values()), entries)))


def code_of(entries: Iterable[Entry]) -> Code:
    """The code that begins with these modules, by name, and with these files.

    An installed package is followed only if one of its modules is an entry.
    """
    code, visited, waiting = Code(), set(), list(entries)
    followed = {OURS, *(str(entry).partition(".")[0] for entry in waiting)}
    modules = [
        name for name in waiting if isinstance(name, str) and not name.startswith(f"{OURS}.")
    ]
    while waiting:
        name = waiting.pop()
        if not isinstance(name, str):
            _add_file(code, name if isinstance(name, Definition) else Definition(name))
            continue
        top, _, below = name.partition(".")
        excluded = name in visited or top in code.packages or top in sys.stdlib_module_names
        if excluded or _LEFT_OUT.match(name):
            continue
        visited.add(name)
        waiting += [name.rpartition(".")[0]] if below else []
        path = find_source(name)
        if path and top not in followed and _is_installed(name, path):
            code.packages.add(top)
        elif path:
            source = _source(path)
            code.uses[name] = [*_resolved(source.imports, name, path)]
            waiting += code.uses[name]
            if top != OURS or path.name not in _ONLY_NAMES:
                code.files[name] = path
            if top == OURS:
                _add_data(code, name, path)
    code.entries.extend(name for name in modules if name in code.files)
    return code


def _add_file(code: Code, definition: Definition) -> None:
    path, unused = definition
    around = [base for base in (Path.cwd(), _DEFINITIONS) if path.is_relative_to(base)]
    label = str(path.relative_to(around[0]) if around else path)
    code.files[label] = path
    code.entries.append(label)
    # A key counts if it does for one of those that depend on the file.
    code.unused[label] = tuple(key for key in unused if key in code.unused.get(label, unused))
    if not path.is_file():
        raise DiagvibError(f"{path}: no such file, but a scene or a baseline depends on it")


def imported_in(module: str, function: str) -> list[str]:
    """The modules of ours that a function imports, itself or in functions and classes beside it
    that it names."""
    tree, _ = syntax_tree(find_source(module))
    functions = {node.name: node for node in tree.body if hasattr(node, "name")}
    waiting, matches = [function], []
    while waiting:
        node = functions.pop(waiting.pop(), None)
        for part in ast.walk(node) if node else ():
            waiting += [part.id] if isinstance(part, ast.Name) else []
            if isinstance(part, ast.Import | ast.ImportFrom):
                matches += [name for name in named_by(part) if name.startswith(f"{OURS}.")]
    return matches


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
    matches = (finder.find_spec(name, None) for finder in sys.meta_path)
    return next(filter(None, matches), None) or PathFinder.find_spec(name, [os.getcwd()])


def program_digest(path: Path) -> str:
    """sha256, as hex, of what a file holds; of a Python file, of what it computes, and of a YAML
    file, of its keys, if it is valid."""
    return _source(path).digest


@once_per_version
def syntax_tree(path: Path) -> tuple[ast.Module, str]:
    """A file's syntax tree; an empty tree, and the reason, if it is not Python."""
    try:
        return ast.parse(path.read_bytes(), str(path)), ""
    except (SyntaxError, ValueError) as error:
        return ast.Module([], []), str(error)


class _Source(NamedTuple):
    """What is read of a file. digest: see `program_digest`. quoted: strings that may name files. The
    others, of Python: see `Program`."""

    digest: str
    quoted: Sequence[str]
    imports: Sequence[str] = ()
    parameters: Sequence[str] = ()
    words: Sequence[str] = ()


@once_per_version
def _source(path: Path) -> _Source:
    ours = path.is_relative_to(_PACKAGE)
    if path.suffix != ".py":
        shipped = ours or path.is_relative_to(definition_path(""))
        text = path.read_text(errors="replace") if shipped else ""
        return _Source(_content_digest(path), _QUOTED_FILE.findall(text))
    content = path.read_bytes()
    # Reading Python takes long; what is read of a file is kept under what decides it.
    key = text_sha256(repr((content, ours, _version_of_reader())))
    with suppress(DiagvibError, TypeError):  # not there, or damaged
        return _Source(**read_json(cache_folder() / "programs" / f"{key}.json"))
    tree, reason = syntax_tree.__wrapped__(path)  # not kept: trees of all files are large
    if reason:
        return _Source(file_sha256(path), ())
    text, imports, parameters, words = program_of(tree, ours)
    quoted = _QUOTED_FILE.findall(importlib.util.decode_source(content))
    source = _Source(text_sha256(text), quoted, imports, parameters, sorted(words))
    with suppress(DiagvibError, OSError):  # nothing can be kept
        write_json(cache_folder() / "programs" / f"{key}.json", source._asdict())
    return source


@cache
def _version_of_reader() -> tuple:
    """What decides what is read of a file, beside its content."""
    ours = (Path(__file__), Path(__file__).with_name("program.py"))
    return sys.version_info[:2], *map(file_sha256, ours)


def _content_digest(path: Path, unused: Iterable[str] = ()) -> str:
    """sha256, as hex, of a file; of YAML, of its keys other than those that are unused, without
    comments."""
    content = None
    if path.suffix in (".yaml", ".yml"):
        with suppress(DiagvibError, ValueError):
            content = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(content, dict):
        return file_sha256(path)
    return text_sha256(repr({key: value for key, value in content.items() if key not in unused}))


def _resolved(imports: Iterable[str], module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for name in imports:
        with suppress(ImportError):  # above the topmost package
            yield importlib.util.resolve_name(name, package)


def _add_data(code: Code, name: str, path: Path) -> None:
    """Add the files that a module of ours names in quotation marks, in config/ or beside it, and
    those that they name."""
    waiting = [(name, path)]
    for user, file in waiting:
        for quoted in _source(file).quoted:
            places = (definition_path(quoted), file.parent / quoted)
            for data in [place for place in places if place.is_file()][:1]:
                code.uses.setdefault(user, []).append(str(data))
                if str(data) not in code.files:
                    code.files[str(data)] = data
                    waiting.append((str(data), data))
