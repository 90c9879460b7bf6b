"""What a reader of the artefact meets first: containers, metadata, the paper, the catalogue's layout,
scripts."""

import json
import re
import runpy

import pytest
import typer
import yaml
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

import diagvib
from conftest import BIN, REPOSITORY
from test_code_blocks import check_make
from toy import call

# Pages for one task each; others explain, list or report.
HOW_TOS = (
    "data",
    "extend",
    "first_run",
    "generate",
    "library",
    "new_metrics",
    "paper_photos",
    "remotes",
    "reproduce",
    "your_network",
    "your_photos",
)


@pytest.mark.parametrize(
    ("file", "copies"), [("Dockerfile", "^COPY (.*) "), ("apptainer.def", "^ +(.*) /diagvib/")]
)
def test_a_container_is_made_from_what_exists(file, copies):
    text = (REPOSITORY / file).read_text()
    copied = " ".join(re.findall(copies, text, re.M)).split()
    locks = {"requirements.lock", "requirements-workflow.lock"}
    needed = {"Makefile", "pyproject.toml", *locks, "README.md", "src", "config"}
    assert needed <= set(copied) and all((REPOSITORY / path).exists() for path in copied)
    targets = re.findall(r"\bmake (?!&)([\w./-]+)$", text, re.M) + re.findall(
        r'"make", "(.+)"', text
    )
    assert ".venv/installed" in targets
    check_make(targets)
    (python,) = re.findall(r"python:([\d.]+)-", text)
    project = (REPOSITORY / "pyproject.toml").read_text()
    assert python in SpecifierSet(re.search('requires-python = "(.*)"', project)[1])


def test_all_metadata_say_the_same():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    codemeta = json.loads((REPOSITORY / "codemeta.json").read_text())
    zenodo = json.loads((REPOSITORY / ".zenodo.json").read_text())
    assert citation["version"] == codemeta["version"] == diagvib.__version__
    assert citation["title"] == zenodo["title"]
    assert citation["date-released"] == codemeta["dateModified"] == zenodo["publication_date"]
    people = (citation["authors"], codemeta["author"], zenodo["creators"])
    authors, *alternatives = ([author["name"] for author in item] for item in people)
    assert alternatives == [authors, authors]
    assert citation["keywords"] == codemeta["keywords"] == zenodo["keywords"]
    assert codemeta["license"].endswith(f"/{citation['license']}")
    assert zenodo["license"] == citation["license"] == "Apache-2.0"


def test_the_papers_head_can_be_read_and_its_references_are_those_it_cites():
    text = (REPOSITORY / "docs/paper.md").read_text()
    nothing, head, _ = text.split("---\n", 2)
    keys = sorted(yaml.safe_load(head))
    assert not nothing and keys == ["authors", "bibliography", "date", "tags", "title"]
    entries = re.findall(r"^@\w+{(\w+),", (REPOSITORY / "docs/paper.bib").read_text(), re.M)
    assert set(re.findall(r"@(\w+)\]", text)) == set(entries)


# In words: what has a letter or a digit.
LENGTHS = {
    "README": 800,
    "docs/agreement": 1100,
    "docs/average": 660,
    "docs/baselines": 1500,
    "docs/data": 865,
    "docs/differences": 900,
    "docs/extend": 1100,
    "docs/first_run": 400,
    "docs/library": 500,
    "docs/methods": 3000,
    "docs/metrics": 1900,
    "docs/paper_photos": 1300,
    "docs/remotes": 500,
    "docs/reproduce": 400,
    "docs/your_network": 550,
    "docs/your_photos": 700,
    "profiles/README": 875,
}


# In words, of pages of results without their generated tables and pictures.
RESULTS = {
    "findings": 580,
    "which_factor_wins": 1550,
    "counter_examples": 750,
    "comparison": 1000,
    "watermark": 300,
    "chance": 500,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_page_of_results_is_short(name):
    text = (REPOSITORY / f"docs/{name}.md").read_text()
    generated = r"<!-- (table|detect).*?<!-- end -->|<picture>.*?</picture>|^\|.*?$"
    assert len(re.sub(generated, "", text, flags=re.S | re.M).split()) <= RESULTS[name]


@pytest.mark.parametrize("name", HOW_TOS)
def test_a_how_to_begins_with_a_command(name):
    text = (REPOSITORY / f"docs/{name}.md").read_text()
    assert text.split("\n\n")[1].startswith("```\n")


@pytest.mark.parametrize(
    "page", [*LENGTHS, *sorted({f"docs/{name}" for name in HOW_TOS} - {*LENGTHS})]
)
def test_a_page_is_short(page):
    text = (REPOSITORY / f"{page}.md").read_text()
    assert len(re.findall(r"\S*\w\S*", text)) <= LENGTHS.get(page, 600)


def test_the_catalogues_snakefile_runs_the_same_jobs(tmp_path):
    def jobs(*options: str) -> list[str]:
        command = ["snakemake", "--dry-run", *options, "--configfile", "config/ci.yaml"]
        message = call(REPOSITORY, BIN / command[0], *command[1:], "--config", f"root={tmp_path}")
        return sorted(re.findall(r"^Job \d+: (.*)", message, re.M))

    assert len(jobs()) > 30 and jobs() == jobs("--snakefile", "workflow/Snakefile")


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "benchmarks").glob("*.py")), ids=lambda p: p.name
)
def test_a_script_says_how_it_is_used(path, monkeypatch):
    if "__main__" not in path.read_text():
        return  # what scripts share
    monkeypatch.syspath_prepend(path.parent)
    program = typer.Typer()
    program.command()(runpy.run_path(str(path))["main"])
    assert CliRunner().invoke(program, ["--help"]).exit_code == 0
