"""The digest of a program's text; edits to comments and docstrings do not change it."""

import ast
import hashlib
import re
import tokenize
from bisect import bisect
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from diagvib.foundation.code import syntax_tree

# A comment or a string literal, with its prefix. Python's own tokenizer takes four times as long.
_LITERAL = re.compile(r"""
    \#[^\n]*
    | (?:\b[a-zA-Z]{1,2})? (?: \"{3} [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* \"{3}
                             | '{3} [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* '{3}
                             | " (?: [^"\\\n] | \\. )* " | ' (?: [^'\\\n] | \\. )* ' )""", re.DOTALL | re.VERBOSE)


def program_digest(path: Path) -> str:
    """sha256, as hex, of a code file or of a file that code reads.

    In Python files, comments, docstrings and blank lines do not count, so that rewording them makes no result out of
    date. In other files, and in invalid Python, every byte counts, as it does where a formatted string contains its own
    quotes or a quoted brace.
    """
    content = path.read_bytes()
    tree, error = syntax_tree(path) if path.suffix == ".py" else (None, "no Python")
    if not error:
        with suppress(SyntaxError, ValueError):
            content = _program(path, tree).encode()
    return hashlib.sha256(content).hexdigest()


def _program(path: Path, tree: ast.Module) -> str:
    """The lines of the program, each up to its comment. ValueError if they cannot be determined for certain."""
    with tokenize.open(path) as file:
        text = file.read()
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
        return "\n" * literal.count("\n") if place in docstrings else "x" + "\nx" * literal.count("\n")

    covering = _LITERAL.sub(covered, text).split("\n")
    rows = [row for row, line in enumerate(covering, 1) if line.strip() not in ("", "\\")]
    return "\n".join(lines[row - 1][:comments.get(row)].rstrip(" " if row in comments else "\n") for row in rows)


def _closes_its_braces(literal: str) -> bool:
    """Whether each replacement field of a formatted string is complete. Outside of one, two braces stand for one."""
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
    """Where each docstring begins: line and column. One that shares its line with other code is read with that line."""
    if (isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node, clean=False) is not None):
        yield node.body[0].lineno, node.body[0].col_offset
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):  # expressions are most of a tree and contain no docstrings
            yield from _docstrings(child)
