"""The project's rules: rooms import one way, a stage has one name everywhere, only a scene knows
its factors."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

from diagvib import stages
from diagvib.cli import app
from diagvib.foundation.imports import code_of, imported_in
from diagvib.methods.registry import METHODS
from diagvib.models.registry import MODELS
from diagvib.scenes import known_scenes, load_scene
from diagvib.scenes.digits.factors import FACTORS
from diagvib.settings.jobs import JOBS
from diagvib.studies.metric_needs import metric_set_modules
from diagvib.studies.study import load_studies, study_files

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "diagvib"
# From top to bottom: a room imports only from rooms above it.
ROOMS = (
    "foundation",
    "scenes",
    "studies",
    "images",
    "models",
    "methods",
    "settings",
    "provenance",
    "training",
    "results",
    "papers",
    "report",
    "workflow",
    "commands",
    "stages",
    "library",
    "cli",
    "__main__",
)
# Public names for other programs: these modules only re-export names from rooms.
PUBLIC = ("__init__", "renderer", "digits", "textures", "metrics")
STAGES = tuple(JOBS)
SCENE_ENTRIES = [entry for name in known_scenes() for entry in load_scene(name).entries]
# Pronouns, participles and adverbs: what they name could be anything.
NO_NOUNS = re.findall(
    r"\w+",
    """its own one found given made known asked noted told seen there both each every other others more most least few
    absent drawn chosen taken wanted left about first second alone apart alike kept here at of whose such shown named
    whole usual further together wrong odd said beside judged spoken pointed followed meant got done held put gone rest
    same so thus those these this that them they it he she who what which where when why how much many any all some
    none""",
)
PLUG_INS = sorted(
    {location.partition(":")[0] for location in (*METHODS.values(), *MODELS.values())}
)


@cache
def trees() -> dict[Path, ast.Module]:
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def room(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imported(path: Path) -> list[str]:
    """Our modules that a module imports, such as `settings.layout`."""
    text = (PACKAGE / path).read_text()
    result = re.findall(r"^ *(?:from|import) diagvib(?:\.| import )([\w.]+)", text, re.M)
    return [name for name in result if not name.startswith("__")]


def test_every_module_stands_in_a_room():
    assert {room(path) for path in trees()} <= {*ROOMS, *PUBLIC}


def test_rooms_import_one_way():
    back_up = [
        f"{path} imports {name}"
        for path in trees()
        if room(path) in ROOMS
        for name in imported(path)
        if name.split(".")[0] not in ROOMS[: ROOMS.index(room(path)) + 1]
    ]
    assert not back_up


def test_no_module_imports_itself_through_others():
    modules = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): imported(path)
        for path in trees()
    }
    TopologicalSorter(modules).prepare()  # CycleError names them


def strings(tree: ast.AST) -> set[str]:
    """The text constants of a module, without docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }


def test_only_study_files_name_studies():
    studies = set(load_studies())
    naming = {
        str(path): sorted(strings(tree) & studies)
        for path, tree in trees().items()
        if strings(tree) & studies
    }
    assert not naming


def test_only_a_scene_names_its_factors():
    # `scale` and `position` are also words about figures, and an array has a `shape`.
    names = set(FACTORS) - {"scale", "position", "shape"}
    naming = {
        str(path): sorted(strings(tree) & names)
        for path, tree in trees().items()
        if path.parts[:2] != ("scenes", "digits") and strings(tree) & names
    }
    assert not naming
    importing = [
        str(path)
        for path in trees()
        if path.parts[0] not in ("scenes", *(f"{name}.py" for name in PUBLIC))
        and any(name.startswith("scenes.digits") for name in imported(path))
    ]
    assert not importing


# Papers and their benchmarks, by any of their names.
PAPER = re.compile(
    r"diagvib.?6|whac|urban.?cars|spawrious|imagenet.?w|watermark|carton|\bin-(1k|w|r)\b", re.I
)
# May name them besides papers/ and scenes/: the registry of sets of metrics and its documentation,
# the command of one benchmark, and methods that are one paper's alone.
NAMING = ("studies/metric_needs.py", "studies/study.py", "methods/views.py")
NAMING += ("commands/imagenet_w.py", "commands/imagenet_w_looks.py")


def names_in(tree: ast.AST) -> set[str]:
    """The identifiers of a module, but not the modules that it imports."""
    keys = ("id", "attr", "arg", "name")
    nodes = (node for node in ast.walk(tree) if not isinstance(node, ast.alias))
    return {
        name for node in nodes for key in keys if isinstance(name := getattr(node, key, 0), str)
    }


def test_only_the_rooms_of_papers_and_scenes_name_a_paper():
    naming = {
        str(path): sorted(filter(PAPER.search, strings(tree) | names_in(tree)))
        for path, tree in trees().items()
        if room(path) not in ("papers", "scenes", "cli") and str(path) not in NAMING
    }
    assert not {path: names for path, names in naming.items() if names}
    # Those that tabulate, draw and measure may ask a paper; results are of any.
    asking = {room(path) for path in trees() if any("papers" in name for name in imported(path))}
    assert asking <= {"papers", "report", "commands", "stages"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_bears_one_name(stage):
    assert callable(getattr(stages, stage))
    assert stage in {
        command.name or command.callback.__name__ for command in app.registered_commands
    }
    rule = (REPOSITORY / "rules" / f"{stage}.smk").read_text()
    assert re.findall(r"^rule (\w+):", rule, re.M) == [stage]
    assert (
        f"diagvib {stage} " in rule and f"/{stage}/" in rule.split("log:")[1].split("benchmark:")[0]
    )
    assert f"rules/{stage}.smk" in dependencies(stage)


# The order of a rule's keys; keys that do not apply are left out.
KEYS = ("input", "output", "log", "benchmark", "threads", "resources", "params", "message", "shell")


@pytest.mark.parametrize("stage", STAGES)
def test_rules_are_alike(stage):
    rule = (REPOSITORY / "rules" / f"{stage}.smk").read_text()
    keys = re.findall(r"^    (\w+):", rule, re.M)
    assert keys == [key for key in KEYS if key in keys]
    assert set(KEYS) - set(keys) <= {"resources"} | (
        {"input"} if stage in ("fetch", "weights") else set()
    )
    assert f'code=code("{stage}"),' in rule and f'settings=stage("{stage}"),' in rule
    assert "src/" not in rule and not re.search(r"^(if|for|run)\b", rule, re.M)


def dependencies(stage: str) -> list[str]:
    """A stage's dependencies in dvc.yaml; weights are part of its stage fetch, plotting of
    tabulate."""
    names = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    return names[{"weights": "fetch", "plot": "tabulate"}.get(stage, stage)]["deps"]


def derived(stage: str) -> set[str]:
    """The files of code and definitions that a stage's jobs depend on, with all scenes, models and
    methods."""
    entries = [*SCENE_ENTRIES, *imported_in("diagvib.stages", stage)]
    if stage in ("encode", "train", "tune"):
        entries += PLUG_INS
    if stage in ("tabulate", "plot"):
        entries += [*metric_set_modules().values(), *study_files()]
    code = code_of(entries)
    return {str(path.relative_to(REPOSITORY)) for path in code.files.values()}


@pytest.mark.parametrize("stage", STAGES)
def test_dvc_yaml_names_the_folders_that_the_imports_say(stage):
    joint = [name for name in STAGES if dependencies(name) == dependencies(stage)]
    files = set().union(*(derived(name) for name in joint))
    declared = [dep for dep in dependencies(stage) if dep.startswith(("src/", "config/"))]
    assert declared == sorted(declared)
    outside = [
        file for file in files if not any(Path(file).is_relative_to(dep) for dep in declared)
    ]
    assert not outside, "files that no folder of dvc.yaml holds"
    idle = [dep for dep in declared if not any(Path(file).is_relative_to(dep) for file in files)]
    assert not idle, "folders in dvc.yaml that nothing depends on"


def test_what_decides_no_content_is_no_dependency():
    for file in set().union(*map(derived, STAGES)):
        module = Path(file).relative_to("src/diagvib" if file.startswith("src/") else ".")
        assert room(module) not in ("settings", "provenance", "workflow", "commands", "stages"), (
            file
        )
        assert room(module) != "foundation" or module.name in ("seeding.py", "columns.py"), file


@pytest.mark.parametrize(("folder", "limit"), [("src", 0.005), ("tests", 0.01)])
def test_names_are_nouns(folder, limit):
    nodes = [
        node
        for path in (REPOSITORY / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    names = [node.arg for node in nodes if isinstance(node, ast.arg)]
    names += [
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    empty = Counter(name for name in names if name.lower().strip("_") in NO_NOUNS)
    assert empty.total() <= limit * len(names), empty.most_common()


def test_tests_use_no_private_names_of_ours():
    for path in Path(__file__).parent.glob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        names = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diagvib")
            for alias in node.names
        }
        names |= {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in names
        }
        assert not [name for name in names if re.match("_[^_]", name)], path.name


# `name: what it is`, at the start of a sentence or a clause.
DESCRIBED = re.compile(r"(?:^|[.;] )((?:[a-z_]\w*, )*[a-z_]\w*): ")
NO_PARAMETERS = {"acc_ij", "default", "dotted", "x_j"}


def test_docstrings_describe_parameters_by_their_names():
    for path, tree in trees().items():
        words = names_in(tree) | {*re.findall(r"\w+", " ".join(strings(tree)))} | NO_PARAMETERS
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        for function in functions:
            text = " ".join((ast.get_docstring(function) or "").split())
            described = {name for names in DESCRIBED.findall(text) for name in names.split(", ")}
            assert described <= words, f"{path}: {function.name}"
