"""The digest of a program's text; edits to comments and docstrings do not change it."""

import ast
import hashlib
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from diagvib.foundation.code import syntax_tree

_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def program_digest(path: Path) -> str:
    """sha256, as hex, of a code file or of a file that code reads.

    In Python files, comments, docstrings and blank lines do not count, so that rewording them makes no result out of
    date. In other files, and in invalid Python, every byte counts.
    """
    content = path.read_bytes()
    tree, error = syntax_tree(path) if path.suffix == ".py" else (None, "no Python")
    if not error:
        with suppress(SyntaxError, ValueError, tokenize.TokenError):
            content = _program(path, tree).encode()
    return hashlib.sha256(content).hexdigest()


def _program(path: Path, tree: ast.Module) -> str:
    """The lines of the program, each up to its comment."""
    with tokenize.open(path) as file:
        lines = file.readlines()
    docstrings, rows, ends = set(_docstrings(tree)), set(), {}
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            ends[row] = column
        elif token.type not in _LAYOUT and (row, column) not in docstrings:
            rows.update(range(row, token.end[0] + 1))
    return "\n".join(lines[row - 1][:ends.get(row)].rstrip(" \n" if row in ends else "\n") for row in sorted(rows))


def _docstrings(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Where each docstring begins: line and column. One that shares its line with other code is read with that line."""
    if (isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node, clean=False) is not None):
        yield node.body[0].lineno, node.body[0].col_offset
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):  # most of a tree, and without any
            yield from _docstrings(child)
