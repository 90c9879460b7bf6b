"""The house's rules: rooms import one way, stages bear one name everywhere, what belongs to a scene or a study stays there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from diagvib import stages
from diagvib.cli import app
from diagvib.scenes.digits.factors import FACTORS
from diagvib.settings.config import STAGE_KEYS
from diagvib.studies.study import load_studies

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "diagvib"
# From top to bottom: a room imports only from rooms above it.
ROOMS = ("foundation", "scenes", "studies", "images", "models", "methods", "settings", "training", "results", "report",
         "operations", "bench", "stages", "cli", "__main__")
# Public names that other programs import: each only hands on what stands in a room.
PUBLIC = ("__init__", "renderer", "digits", "metrics")
STAGES = tuple(STAGE_KEYS)
LONGEST_FUNCTION, LONGEST_MODULE = 60, 300


@cache
def trees() -> dict[Path, ast.Module]:
    return {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def room(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> list[str]:
    """The modules of ours that a tree imports, as `settings.grid`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diagvib"):
            base = node.module.removeprefix("diagvib").lstrip(".")
            found += [base] if base else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name.removeprefix("diagvib.") for alias in node.names if alias.name.startswith("diagvib.")]
    return [name for name in found if not name.startswith("__")]


def test_every_module_stands_in_a_room():
    assert {room(path) for path in trees()} <= {*ROOMS, *PUBLIC}


def test_rooms_import_one_way():
    back_up = [f"{path} imports {name}" for path, tree in trees().items() if room(path) in ROOMS
               for name in imported(tree)
               if name.split(".")[0] not in ROOMS[:ROOMS.index(room(path)) + 1]]
    assert not back_up


def test_no_module_imports_itself_through_others():
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): imported(tree)
               for path, tree in trees().items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"{' -> '.join([*trail[trail.index(name):], name])}"
        if name not in done:
            for other in modules.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in modules:
        visit(name, ())


def test_functions_and_modules_are_of_readable_length():
    long = [f"{path}: {node.name}" for path, tree in trees().items() for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST_FUNCTION]
    long += [str(path) for path in trees() if len((PACKAGE / path).read_text().splitlines()) > LONGEST_MODULE]
    assert not long


def strings(tree: ast.AST) -> set[str]:
    """The text constants of a module, docstrings left out."""
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(
        node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body and isinstance(node.body[0], ast.Expr)}
    return {node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs}


def test_only_study_files_name_studies():
    known = set(load_studies())
    naming = {str(path): sorted(strings(tree) & known) for path, tree in trees().items() if strings(tree) & known}
    assert not naming


def test_only_a_scene_names_its_factors():
    # `scale` and `position` are words of figures too.
    known = set(FACTORS) - {"scale", "position"}
    naming = {str(path): sorted(strings(tree) & known) for path, tree in trees().items()
              if path.parts[:2] != ("scenes", "digits") and room(path) != "bench" and strings(tree) & known}
    assert not naming
    importing = [str(path) for path, tree in trees().items()
                 if path.parts[0] not in ("scenes", "bench", *(f"{name}.py" for name in PUBLIC))
                 and any(name.startswith("scenes.digits") for name in imported(tree))]
    assert not importing


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_bears_one_name(stage):
    assert callable(getattr(stages, stage))
    assert stage in {command.name or command.callback.__name__ for command in app.registered_commands}
    rule = (REPOSITORY / "rules" / f"{stage}.smk").read_text()
    assert re.findall(r"^rule (\w+):", rule, re.M)[0] == stage
    assert f"diagvib {stage} " in rule and f"/{stage}" in rule.split("log:")[1].split("benchmark:")[0]
    if stage != "tune":  # asked for by its own target, and no part of what is recorded
        assert stage in yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
