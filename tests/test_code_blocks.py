"""Every code block on the pages for readers is checked: it runs, or it is valid, or what it types
exists.

A block of a kind that no check recognises fails. Pages mark as `text` what is neither typed nor
read by the program, such as output or a folder's layout.
"""

import ast
import importlib
import importlib.util
import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest
import typer
import yaml

from conftest import REPOSITORY
from diagvib.cli import app
from diagvib.commands.new_code import write_new
from diagvib.commands.run import shipped_configurations
from diagvib.foundation.validation import read_valid
from diagvib.scenes import load_scene
from diagvib.scenes.photos.generation import Generation
from diagvib.settings.baselines import baseline_names, load_settings
from diagvib.settings.keys import Configuration
from diagvib.settings.resolve import load_config
from diagvib.studies.study import read_study_file
from test_docs import PAGES

# Commands of the shell, or of any machine on which somebody would type these lines.
SYSTEM = {
    ".",
    "apptainer",
    "apt-get",
    "awk",
    "cat",
    "cd",
    "cp",
    "docker",
    "export",
    "find",
    "git",
    "hf",
    "mktemp",
    "pip",
    "rm",
    "sbatch",
    "squeue",
    "ssh",
    "tmux",
    "xargs",
    "zip",
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, line and language, its text, and the text of the page between it
    and the last one."""

    page: str
    line: int
    language: str
    text: str
    before: str

    @property
    def file(self) -> str | None:
        """The file that it shows: named by its first line, `# mine.yaml`, or last before it, in
        backticks."""
        with_names = re.match(r"# ([\w-]+\.(?:yaml|py))\b", self.text)
        names = (
            [with_names[1]] if with_names else re.findall(r"`([\w-]+\.(?:yaml|py))`", self.before)
        )
        return (
            names[-1]
            if names
            and names[-1].endswith({"yaml": ".yaml", "python": ".py"}.get(self.language, "-"))
            else None
        )

    @property
    def title(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    results, end = [], 0
    for match in re.finditer(r"^( *)```([^\n`]*)\n(.*?)^\1```$", text, re.M | re.S):
        results.append(
            Block(
                page,
                text.count("\n", 0, match.start()) + 1,
                match[2].strip(),
                dedent(match[3]),
                text[end : match.start()],
            )
        )
        end = match.end()
    return results


BLOCKS = [block for page in PAGES for block in blocks_of(page, (REPOSITORY / page).read_text())]
DISPLAY = {block.file for block in BLOCKS} - {None}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The reader's folder, empty; modules in it can be imported while the test runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.title)
def test_a_block_does_what_the_page_says(block, folder):
    check(block, folder)


def test_every_fence_is_the_edge_of_a_block():
    for page in PAGES:
        fences = len(re.findall(r"^ *```", (REPOSITORY / page).read_text(), re.M))
        assert fences == 2 * sum(block.page == page for block in BLOCKS), page


def test_the_example_of_every_command_is_one(folder):
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        examples = [item.epilog for item in getattr(command, "commands", {name: command}).values()]
        for words in (text.removeprefix("Example: ").split() for text in examples):
            assert words[:2] == ["diagvib", name]
            check_command(words, folder)


# ---------------------------------------------------------------------------------------------------------------------


def check(block: Block, folder: Path) -> None:
    _write_files(block.page, folder)
    if block.language != "text":
        checks = {"yaml": check_yaml, "python": check_python, "": check_lines, "bash": check_lines}
        checks[block.language](block, folder)


_COPIES = "shutil.copy("


def _write_files(page: str, folder: Path) -> None:
    """Every file that the page shows, or tells its reader to copy or to write."""
    for block in BLOCKS:
        if block.page == page and block.file:
            (folder / block.file).write_text(block.text)
        if block.page == page and _COPIES in block.text:
            _run(block.text)
        if block.page == page and block.language in ("", "bash"):
            for line in re.findall(r"^cp (.*) \.$", block.text, re.M):
                for name in line.split():
                    shutil.copy(REPOSITORY / name, folder)
            for source, copy in re.findall(r"^cp -r (\S+) (\S+)", block.text, re.M):
                shutil.copytree(REPOSITORY / source, folder / copy)
            for name in re.findall(r" > ([\w.]+)", block.text):
                (folder / name).touch()
            for kind, name in re.findall(r"^diagvib new (\w+) (my_\w+)", block.text, re.M):
                write_new(kind, name)


def check_yaml(block: Block, folder: Path) -> None:
    """A configuration, or a file of studies, of photos, of their generation or of baselines, read by
    what reads it."""
    value = yaml.safe_load(block.text)
    path = folder / (block.file or "shown.yaml")
    path.write_text(block.text)
    if value.keys() <= Configuration.model_fields.keys():
        load_config(path)
    elif {"title", "studies"} <= value.keys():
        assert read_study_file(path).studies.keys() == value["studies"].keys()
    elif "factors" in value:
        assert load_scene(path.name).factors.keys() == value["factors"].keys()
    elif "template" in value:
        assert read_valid(Generation, path).prompts(
            *(next(iter(value[key])) for key in ("classes", "backgrounds"))
        )
    else:
        assert all(entry.keys() & {"model", "method"} for entry in value.values()), (
            f"{block.title}: what kind of file is it?"
        )
        for name in value:
            load_settings(name, [path.name])


def check_python(block: Block, folder: Path) -> None:
    """Run the block if its words match a check below; otherwise check that what it names exists."""
    checks = [run for words, run in PYTHON.items() if words in block.text]
    if checks:
        checks[0](block.text)
        return
    _check_names(ast.parse(block.text))


def _check_names(tree: ast.Module) -> None:
    """Imported modules and names exist, and the attributes that are taken of them."""
    nodes, names = [*ast.walk(tree)], {}
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "block", "exec"), names)
    for node in nodes:
        source = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(source, ast.Name) and source.id in names:
            getattr(names[source.id], node.attr)


def _run(text: str) -> dict:
    names = {"__name__": "shown"}
    exec(compile(text, "block", "exec"), names)
    return names


PYTHON: dict[str, Callable[[str], None]] = {
    _COPIES: _run,
    "def tiny(": _run,  # test_workflow trains with ones like these
    "class Focal(Method)": _run,
    "class Lag(MetricSet)": _run,  # test_metric_sets uses it
}


# ---------------------------------------------------------------------------------------------------------------------


def check_lines(block: Block, folder: Path) -> None:
    """Lines for a shell."""
    for line in block.text.splitlines():
        for words in commands(line):
            check_command(words, folder)


def commands(line: str) -> list[list[str]]:
    """The words of each command of a line, without comments, assignments, redirections and the
    folder of a program."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    results: list[list[str]] = [[]]
    for word in lexer:
        if re.fullmatch(r"[<>]+", word):
            next(lexer)  # a file
        elif re.fullmatch(r"[();|&]+", word):
            results.append([])
        elif results[-1] or not re.match(r"[A-Z_]+=", word):
            results[-1].append(word.removeprefix(".venv/bin/"))
    return [words for words in results if words]


def check_command(words: list[str], folder: Path) -> None:
    program, *arguments = words
    if program in SYSTEM:
        return
    {
        "diagvib": check_diagvib,
        "snakemake": check_snakemake,
        "dvc": check_dvc,
        "make": check_make,
        "python": check_interpreter,
    }[program](arguments)


def _exists(path: str | Path) -> bool:
    """Whether a file is in the repository, in the reader's folder, one that some page shows, or
    written to a root or by `diagvib new photos`."""
    written = Path(path).name == "config.yaml" and str(Path(path).parent) in _roots()
    written = written or str(path) in ("NAME_config.yaml", "grounds_config.yaml")
    return written or Path(path).exists() or (REPOSITORY / path).exists() or str(path) in DISPLAY


@cache
def _roots() -> set[str]:
    """Those of the repository's configurations."""
    files = [
        *(REPOSITORY / "config").glob("*.yaml"),
        *(REPOSITORY / "config").glob("photos/*/*.yaml"),
    ]
    contents = [yaml.safe_load(path.read_text()) for path in files]
    return {content["root"] for content in contents if "root" in content}


def _parsed(program: typer.Typer, arguments: list[str]) -> dict:
    """The values of a program's options and arguments."""
    command = typer.main.get_command(program)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    return command.make_context(command.name, [*arguments]).params


def check_diagvib(arguments: list[str]) -> None:
    inputs = _parsed(app, arguments)
    configs = inputs.get("config") or []
    configs = configs if isinstance(configs, list | tuple) else [configs]
    assert all(_exists(name) or str(name) in shipped_configurations() for name in configs)
    if inputs.get("override"):
        load_config(None, list(inputs["override"]))
    assert set(inputs.get("baselines") or []) <= set(baseline_names())


@cache
def _snakemake():
    from snakemake.cli import get_argument_parser

    return get_argument_parser()


def check_snakemake(arguments: list[str]) -> None:
    inputs = _snakemake().parse_args(arguments)
    rules = [REPOSITORY / "Snakefile", *(REPOSITORY / "rules").glob("*.smk")]
    text = "".join(path.read_text() for path in rules)
    assert set(inputs.targets) <= set(re.findall(r"^rule (\w+):", text, re.M))
    assert all(map(_exists, [*(inputs.configfile or []), inputs.snakefile or "Snakefile"]))
    if not inputs.snakefile:  # a workflow of its own has its own keys
        keys = {pair.split("=")[0] for pair in inputs.config or []}
        assert keys <= Configuration.model_fields.keys()


def check_dvc(arguments: list[str]) -> None:
    from dvc.cli import parse_args

    parse_args(arguments)


def check_make(arguments: list[str]) -> None:
    targets = re.findall(r"^([\w./-]+):(?!=)", (REPOSITORY / "Makefile").read_text(), re.M)
    assert set(arguments) <= set(targets)


def check_interpreter(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1])
    elif arguments[0].startswith("benchmarks/"):
        check_script(*arguments)
    assert all(_exists(word) for word in arguments if re.fullmatch(r"[\w./]+\.py", word))


def check_script(path: str, *arguments: str) -> None:
    """The arguments of a program under benchmarks/ are those that it takes."""
    names = runpy.run_path(str(REPOSITORY / path))
    program = names.get("app", typer.Typer())
    if "app" not in names:
        program.command()(names["main"])
    _parsed(program, arguments)
