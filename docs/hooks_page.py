"""The reference at the end of docs/hooks.md, from src/diagvib/methods/method.py.

python docs/hooks_page.py writes it; a test holds it equal to the source.
"""

import ast
import re
from pathlib import Path
from textwrap import fill

from diagvib.foundation.hooks import hooks_of
from diagvib.methods import method

PAGE = Path(__file__).with_name("hooks.md")
BEGINNING = "<!-- From here on written by docs/hooks_page.py. -->\n"
TYPES = ("Unlabelled", "Batch", "TrainingData", "Update", "StepOutput", "Optimiser", "Phase")
TYPES += ("Visualisation", "Counterfactuals")


def page(text: str) -> str:
    """The page, with its reference as the source has it now."""
    return text.partition(BEGINNING)[0] + BEGINNING + reference()


def reference() -> str:
    classes = {
        node.name: node
        for node in ast.parse(Path(method.__file__).read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    functions = {node.name: node for node in classes["Method"].body if _is_function(node)}
    parts = ["\n## Every hook\n", *(_function(functions[name]) for name in hooks_of(method.Method))]
    parts += ["## What hooks get and return\n", *(_class(classes[name]) for name in TYPES)]
    return "\n".join(parts)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)


def _function(node: ast.FunctionDef) -> str:
    return _section(node.name, _signature(node), _words(node))


def _section(name: str, code: str, text: str) -> str:
    """Code, and below it paragraphs in lines of the pages' width."""
    paragraphs = (re.sub(r"\s+", " ", paragraph) for paragraph in text.split("\n\n"))
    wrapped = "\n\n".join(fill(p, 120, break_on_hyphens=False) for p in paragraphs)
    return f"### {name}\n\n```python\n{code}\n```\n\n{wrapped}\n"


def _signature(node: ast.FunctionDef) -> str:
    line = ast.unparse(ast.FunctionDef(**{**vars(node), "body": [], "decorator_list": []}))
    return re.sub(r"(?<=\w)=(?=\w)", " = ", f"{line} ...")


def _class(node: ast.ClassDef) -> str:
    functions = [part for part in node.body if _is_function(part) and _words(part)]
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    lines = [*map(ast.unparse, fields), *map(_signature, functions)]
    code = "\n    ".join([f"class {node.name}{bases}:", *lines])
    words = [_words(node), *(f"`{part.name}`: {_words(part)}" for part in functions)]
    return _section(node.name, code, "\n\n".join(words))


def _words(node: ast.AST) -> str:
    return ast.get_docstring(node) or ""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
