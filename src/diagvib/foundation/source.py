"""What a Python file says. Nothing is executed, and each text is analysed once: what was found is
kept in the `cache_folder`, since a command asks for a hundred files, which would take longer than
the rest of its start."""

import ast
import hashlib
import json
import os
import re
import sys
import tokenize
from bisect import bisect
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from io import BytesIO, TextIOWrapper
from itertools import accumulate
from pathlib import Path

from diagvib.foundation.files import cache_folder, definition_path
from diagvib.foundation.versions import file_version

# A comment or a string literal, with its prefix. Python's own tokenizer takes four times as long.
_LITERAL = re.compile(
    r"""
    \#[^\n]*
    | (?:\b[a-zA-Z]{1,2})? (?: \"{3} [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* \"{3}
                             | '{3} [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* '{3}
                             | " (?: [^"\\\n] | \\. )* " | ' (?: [^'\\\n] | \\. )* ' )""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Source:
    """imports: what its import statements name, except those for type checkers, as `named_by` gives
    it. attributes: the names after a dot. definitions: the files in config/ that it reads. program:
    sha256, as hex, of its text without comments, docstrings and blank lines; of every byte where a
    formatted string contains its own quotes or a quoted brace. error: why it is not Python; every
    byte then counts, and nothing else is known.
    """

    imports: list[list]
    attributes: list[str]
    definitions: list[str]
    program: str
    error: str = ""


def read_source(path: Path) -> Source:
    """OSError if the file cannot be read."""
    return _source(*file_version(path))


def syntax_tree(path: Path) -> tuple[ast.Module, str]:
    """A file's syntax tree, parsed once per version of the file; an empty tree, and the reason, if
    it is not Python."""
    return _parsed(*file_version(path))


@cache
def _content(path: Path, changed: int, size: int) -> bytes:
    """Read once, so that what is kept under the hash of a text was found in that text."""
    return path.read_bytes()


@cache
def _parsed(path: Path, changed: int, size: int) -> tuple[ast.Module, str]:
    try:
        return ast.parse(_content(path, changed, size), str(path)), ""
    except (SyntaxError, ValueError) as error:
        return ast.Module([], []), str(error)


@cache
def _source(path: Path, changed: int, size: int) -> Source:
    content = _content(path, changed, size)
    kept = cache_folder() / "code" / f"{hashlib.sha256(_analysis() + content).hexdigest()}.json"
    with suppress(OSError, ValueError, TypeError):
        return Source(**json.loads(kept.read_bytes()))
    source = _analysed(content, *_parsed(path, changed, size))
    if not source.error:
        with suppress(OSError):  # a folder that cannot be written to
            _keep(kept, json.dumps(asdict(source)))
    return source


def _keep(path: Path, text: str) -> None:
    """Unlike other files, not forced to disk: half a text is not valid JSON, and what is lost is
    found again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


@cache
def _analysis() -> bytes:
    """What the analysis of a text depends on besides the text: this module and Python's grammar."""
    return hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).digest()


def _analysed(content: bytes, tree: ast.Module, error: str) -> Source:
    if error:
        return Source([], [], [], hashlib.sha256(content).hexdigest(), error)
    program = content
    with suppress(SyntaxError, ValueError):
        program = _program(content, tree).encode()
    imports = [named for node in _statements(tree) for named in named_by(node)]
    attributes = sorted({node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)})
    return Source(imports, attributes, definitions([tree]), hashlib.sha256(program).hexdigest())


def named_by(node: ast.AST) -> list[list]:
    """What an import statement names: `[level, name]` of each module, and of each object imported
    from one, which may be a module. level: the number of dots that the name begins with."""
    if isinstance(node, ast.Import):
        return [[0, alias.name] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        return [
            [node.level, base],
            *([node.level, f"{base}.{alias.name}".strip(".")] for alias in node.names),
        ]
    return []


def definitions(nodes: Iterable[ast.AST]) -> list[str]:
    """The files in config/ named in calls of `definition_path`."""
    return sorted(
        {
            node.args[0].value
            for part in nodes
            for node in ast.walk(part)
            if isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == definition_path.__name__
            and node.args
            and isinstance(node.args[0], ast.Constant)
        }
    )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node, except those for type checkers. Much faster than ast.walk,
    which also visits expressions."""
    for child in _children(node):
        yield child
        yield from _statements(child)


def _children(node: ast.AST) -> list[ast.AST]:
    inner = node.orelse if _is_for_type_checkers(node) else ast.iter_child_nodes(node)
    return [
        child for child in inner if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)
    ]


def _is_for_type_checkers(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`, whose `else` is what runs."""
    return (
        isinstance(node, ast.If)
        and getattr(node.test, "attr", getattr(node.test, "id", "")) == "TYPE_CHECKING"
    )


def outermost(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module outside functions and classes."""
    for child in _children(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from outermost(child)


def _program(content: bytes, tree: ast.Module) -> str:
    """The lines of the program, each up to its comment. ValueError if they cannot be determined for
    certain."""
    text = TextIOWrapper(
        BytesIO(content), tokenize.detect_encoding(BytesIO(content).readline)[0]
    ).read()
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    docstrings, comments = {starts[row - 1] + column for row, column in _docstrings(tree)}, {}

    def covered(found: re.Match) -> str:
        literal, place = found[0], found.start()
        if literal[0] == "#":
            row = bisect(starts, place)
            comments[row] = place - starts[row - 1]
            return ""
        if "f" in literal.partition(literal[-1])[0].lower() and not _closes_its_braces(literal):
            raise ValueError("this string may end later")
        return (
            "\n" * literal.count("\n") if place in docstrings else "x" + "\nx" * literal.count("\n")
        )

    covering = _LITERAL.sub(covered, text).split("\n")
    rows = [row for row, line in enumerate(covering, 1) if line.strip() not in ("", "\\")]
    return "\n".join(
        lines[row - 1][: comments.get(row)].rstrip(" " if row in comments else "\n") for row in rows
    )


def _closes_its_braces(literal: str) -> bool:
    """Whether each replacement field of a formatted string is complete. Outside of one, two braces
    stand for one."""
    depth = 0
    for braces in re.findall(r"\{+|\}+", literal):
        if braces[0] == "{":
            depth += len(braces) if depth else len(braces) % 2
            continue
        outside = max(0, len(braces) - depth)
        depth = max(0, depth - len(braces))
        if outside % 2:
            return False
    return depth == 0


def _docstrings(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Where each docstring begins: line and column. One that shares its line with other code is
    read with that line."""
    if (
        isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and ast.get_docstring(node, clean=False) is not None
    ):
        yield node.body[0].lineno, node.body[0].col_offset
    for child in ast.iter_child_nodes(node):
        if not isinstance(
            child, ast.expr
        ):  # expressions are most of a tree and contain no docstrings
            yield from _docstrings(child)
