"""What a Python file computes, as text: its syntax tree without what cannot change a number.

Left out are comments, docstrings, formatting, the texts of messages and progress bars, where
modules of ours are, annotations of ours outside classes, and the names of variables that only their
function can see. Two files with the same text compute the same, but for messages. Changes beyond
this need a line in `provenance`'s table of equal code.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

OURS = "diagvib"
# Functions that show their texts to a reader: builtins, those of ours, and methods of a module or
# logger.
_SHOW = {"print"}
_SHOW_OURS = {"say", "counting", "progress_bar", "unknown_name", "DiagvibError", "InvalidField"}
_LOGGERS = {"warnings", "logging", "logger", "log", "_log", "_logger"}
_LEVELS = {"warn", "debug", "info", "warning", "error", "exception", "critical"}
# With these, a text or another function may name a local variable; so may a text that others get.
_DYNAMIC = {"locals", "_getframe", "currentframe", "f_locals", "duckdb"}
_EVALUATE = {"eval", "exec", "evaluate", "query"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_IMPORTS = ast.Import | ast.ImportFrom
_ACTIVE = ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom


class Program(NamedTuple):
    """text: what a file computes. imports: the names of modules in its import statements, relative
    ones with their dots, in an order that no module's name decides; what is imported from a module
    counts as one. parameters: the names of parameters that have another name in the text, in order.
    words: keywords of calls and texts, by which a parameter may be named from elsewhere."""

    text: str
    imports: list[str]
    parameters: list[str]
    words: frozenset[str]


def program_of(tree: ast.Module, of_ours: bool) -> Program:
    """of_ours: whether the file is one of this package, whose parameters' names may change, and
    whose annotations nothing reads. In other files both count."""
    nodes = list(ast.walk(tree))
    texts = [node.value for node in nodes if _is_text(node)]
    writer = _Writer(
        of_ours,
        renames=not any(map(_is_dynamic, nodes)),
        messages=_SHOW
        | {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and _is_ours(node)
            for alias in node.names
            if alias.name in _SHOW_OURS
        },
    )
    writer.body(tree.body)
    keywords = [node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg]
    words = frozenset([*keywords, *(text for text in texts if text.isidentifier())])
    return Program("\n".join(writer.parts), writer.imports, writer.parameters, words)


def named_by(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules in an import statement, and what is imported from them."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = "." * node.level + (node.module or "")
    inner = base if base.endswith(".") else f"{base}."
    return [base, *(inner + alias.name for alias in node.names)]


@dataclass
class _Scope:
    """variables: the names that are bound here and may change, with their names in the text as far
    as they have appeared. fixed: bound here, but kept. A class has only these."""

    depth: int
    variables: dict[str, str | None] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    of_class: bool = False


@dataclass
class _Writer(ast.NodeVisitor):
    """Writes a syntax tree to `parts`."""

    of_ours: bool
    renames: bool
    messages: set[str]
    parts: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)

    def generic_visit(self, node: ast.AST, *left_out: str) -> None:
        """A node as it is, without these fields. What is empty does not count, since some versions
        of Python have more fields than others."""
        self.parts.append(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in left_out or name in ("ctx", "kind"):
                continue
            self.parts.append(f"{name}=")
            self.value(value)
        self.parts.append(")")

    def value(self, value: object) -> None:
        if isinstance(value, ast.AST):
            self.visit(value)
        elif isinstance(value, list) and isinstance(value[0], ast.stmt):
            self.body(value)
        elif isinstance(value, list):
            self.parts.append("[")
            for item in value:
                self.value(item)
            self.parts.append("]")
        else:
            self.parts.append(repr(value))

    def body(self, statements: list[ast.stmt]) -> None:
        """Statements without texts that stand alone. Imports from modules of ours come first among
        the imports beside them, sorted by the names that they bind: those of modules do not count."""
        self.parts.append("[")
        neighbours: list[ast.stmt] = []
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            if isinstance(statement, _IMPORTS):
                neighbours.append(statement)
                continue
            self._imports(neighbours)
            neighbours = []
            self.visit(statement)
        self._imports(neighbours)
        self.parts.append("]")

    def _imports(self, statements: list[ast.stmt]) -> None:
        ours = sorted(
            (alias.asname or alias.name, alias.name, node.module)
            for node in statements
            if isinstance(node, ast.ImportFrom) and _is_ours(node)
            for alias in node.names
        )
        for bound, name, module in ours:
            self.parts.append(f"import {name} as {bound}")
            self.imports += [module, f"{module}.{name}"]
        for node in statements:
            if not (isinstance(node, ast.ImportFrom) and _is_ours(node)):
                self.generic_visit(node)
                self.imports += named_by(node)

    def name(self, name: str) -> str:
        """A variable's name in the text."""
        for scope in reversed(self.scopes):
            if scope.of_class and scope is not self.scopes[-1]:
                continue  # functions do not see the names in a class around them
            if name in scope.fixed:
                return name
            if name in scope.variables:
                if scope.variables[name] is None:
                    number = sum(new is not None for new in scope.variables.values())
                    scope.variables[name] = f"${scope.depth}.{number}"
                return scope.variables[name]
        return name

    @contextmanager
    def scope(self, names: set[str], fixed: set[str], of_class: bool = False) -> Iterator[None]:
        if not self.renames or of_class:
            names, fixed = set(), names | fixed
        variables = dict.fromkeys(names - fixed)
        self.scopes.append(_Scope(len(self.scopes), variables, fixed, of_class))
        yield
        self.scopes.pop()

    def visit_Name(self, node: ast.Name) -> None:
        self.parts.append(f"Name {self.name(node.id)}")

    def visit_ExceptHandler(self, node: ast.AST) -> None:
        """Nodes that bind a name that is no node itself."""
        key = "rest" if isinstance(node, ast.MatchMapping) else "name"
        bound = getattr(node, key)
        self.parts.append(f"binds {self.name(bound) if bound else None}")
        self.generic_visit(node, key)

    visit_MatchAs = visit_MatchStar = visit_MatchMapping = visit_ExceptHandler

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.parts.append(f"nonlocal {[self.name(name) for name in node.names]}")

    def visit_FunctionDef(self, node: _FUNCTIONS) -> None:
        arguments = node.args
        self.parts.append(f"{type(node).__name__} {getattr(node, 'name', '')}")
        for outer in (getattr(node, "decorator_list", []), arguments.defaults):
            self.body_of(outer)
        self.body_of(arguments.kw_defaults)
        plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        starred = [arg for arg in (arguments.vararg, arguments.kwarg) if arg]
        if not self.of_ours:
            self.body_of([arg.annotation for arg in [*plain, *starred]])
            self.body_of([getattr(node, "returns", None)])
        body = node.body if isinstance(node.body, list) else [node.body]
        names, fixed = _bound(body)
        free = [*starred, *self._free(arguments)]
        fixed |= {arg.arg for arg in plain if arg not in free}
        with self.scope(names | {arg.arg for arg in free}, fixed):
            self.body_of(getattr(node, "type_params", []))
            for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
                group = getattr(arguments, kind)
                group = group if isinstance(group, list) else [group] if group else []
                self.parts.append(f"{kind} {[self.name(arg.arg) for arg in group]}")
            if self.renames:
                self.parameters += [arg.arg for arg in free if arg not in starred]
            self.value(node.body)

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def _free(self, arguments: ast.arguments) -> list[ast.arg]:
        """The parameters of a function of ours that may have other names, unless a keyword or a
        text says one (`Program.parameters`): those that a setting may name have a default."""
        count = len(arguments.defaults)
        placed = [*arguments.posonlyargs, *arguments.args]
        return placed[: len(placed) - count] if self.of_ours else []

    def body_of(self, nodes: list[ast.AST | None]) -> None:
        """Nodes of another scope than the rest of their parent."""
        self.parts.append("[")
        for node in nodes:
            if node is None:
                self.parts.append("-")
            else:
                self.visit(node)
        self.parts.append("]")

    def visit_ListComp(self, node: _COMPREHENSIONS) -> None:
        self.parts.append(type(node).__name__)
        outermost, *inner = node.generators
        self.visit(outermost.iter)  # of the scope around
        names = {
            part.id
            for generator in node.generators
            for part in ast.walk(generator.target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        with self.scope(names, set()):
            self.generic_visit(outermost, "iter")
            for generator in inner:
                self.generic_visit(generator)
            self.generic_visit(node, "generators")

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.parts.append(f"class {node.name}")
        for outer in (node.decorator_list, node.bases, node.keywords):
            self.body_of(outer)
        names, fixed = _bound(node.body)
        with self.scope(names, fixed, of_class=True):
            self.body_of(getattr(node, "type_params", []))
            self.body(node.body)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A method's options have descriptions for readers."""
        options = isinstance(node.targets[0], ast.Name) and node.targets[0].id == "options"
        if not (options and self.scopes and self.scopes[-1].of_class):
            return self.generic_visit(node)
        described = ast.walk(node.value)
        for part in described:
            if isinstance(part, ast.Dict):
                part.values = [
                    ast.Constant("") if _is_description(key) and _is_text(value) else value
                    for key, value in zip(part.keys, part.values, strict=True)
                ]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Annotations of variables are not evaluated in functions; those in classes may say what a
        class is made of."""
        inside = self.scopes and not self.scopes[-1].of_class
        if inside or (self.of_ours and not self.scopes):
            if node.value is not None:
                self.generic_visit(ast.Assign([node.target], node.value))
            else:
                self.generic_visit(node, "annotation")
        else:
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.generic_visit(node, "msg")

    def visit_Raise(self, node: ast.Raise) -> None:
        if not isinstance(node.exc, ast.Call):
            return self.generic_visit(node)
        self._call(node.exc, calls=False)
        return self.generic_visit(node, "exc")

    def visit_Call(self, node: ast.Call) -> None:
        if _called(node) in ("track", "add_task"):
            self._call(node, keyword="description")
        elif self._shows(node):
            self._call(node)
        else:
            self.generic_visit(node)

    def _shows(self, node: ast.Call) -> bool:
        """Whether a call shows its texts to a reader."""
        name, function = _called(node), node.func
        if isinstance(function, ast.Attribute):
            logs = isinstance(function.value, ast.Name) and function.value.id in _LOGGERS
            return logs and name in _LEVELS
        to = next((word.value for word in node.keywords if word.arg == "file"), None)
        elsewhere = to is not None and ast.unparse(to) not in ("sys.stderr", "sys.stdout")
        return name in self.messages and not elsewhere

    def _call(self, node: ast.Call, keyword: str | None = None, calls: bool = True) -> None:
        """A call without its texts, or that of one keyword. calls: whether what they call counts."""
        self.parts.append("Call")
        self.visit(node.func)
        for name, value in [
            *(("", value) for value in node.args),
            *((word.arg or "**", word.value) for word in node.keywords),
        ]:
            self.parts.append(f"{name}=")
            if keyword in (None, name) and _makes_text(value):
                self.parts.append("text")
                if calls:
                    self._calls_in(value)
            else:
                self.visit(value)
        self.parts.append(")")

    def _calls_in(self, value: ast.AST) -> None:
        for part in ast.iter_child_nodes(value):
            if isinstance(part, _ACTIVE):
                self.visit(part)
            else:
                self._calls_in(part)


def _bound(body: list[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that statements of one scope bind: variables, and those whose names count, such as
    functions and what is imported."""
    names, fixed, free, waiting = set(), set(), set(), list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                names.add(node.id)
        elif isinstance(node, _IMPORTS):
            fixed |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Global):
            fixed |= set(node.names)
        elif isinstance(node, ast.Nonlocal):
            free |= set(node.names)
        elif isinstance(node, _COMPREHENSIONS):
            # Assignments by := are those of the scope around.
            parts = (part for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
            fixed |= {part.target.id for part in parts}
        elif isinstance(node, ast.Lambda):
            waiting += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            fixed.add(node.name)
            waiting += [*node.decorator_list, *node.args.defaults]
            waiting += filter(None, node.args.kw_defaults)
        elif isinstance(node, ast.ClassDef):
            fixed.add(node.name)
            waiting += [*node.decorator_list, *node.bases, *node.keywords]
        else:
            bound = getattr(node, "rest", None) or getattr(node, "name", None)
            if isinstance(bound, str):
                names.add(bound)
            waiting += ast.iter_child_nodes(node)
    return names - free, fixed - free


def _is_ours(node: ast.ImportFrom) -> bool:
    return not node.level and node.module.partition(".")[0] == OURS


def _called(node: ast.Call) -> str | None:
    """The last part of the name of what is called."""
    return getattr(node.func, "id", getattr(node.func, "attr", None))


def _is_dynamic(node: ast.AST) -> bool:
    """Whether code may find a local variable by its name."""
    if isinstance(node, ast.Call):
        called, texts = _called(node), [_makes_text(value) for value in node.args[:1]]
        return (called in ("vars", "dir") and not texts) or (
            called in _EVALUATE and (isinstance(node.func, ast.Name) or any(texts))
        )
    name = getattr(node, "id", getattr(node, "attr", getattr(node, "name", None)))
    return name in _DYNAMIC


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_description(key: ast.AST | None) -> bool:
    return _is_text(key) and key.value == "description"


def _makes_text(node: ast.AST) -> bool:
    """Whether an expression is a text: a constant, an f-string, or a sum of or choice between
    such."""
    if isinstance(node, ast.BinOp):
        return _makes_text(node.left) or _makes_text(node.right)
    if isinstance(node, ast.IfExp):
        return _makes_text(node.body) and _makes_text(node.orelse)
    return isinstance(node, ast.JoinedStr) or _is_text(node)
