"""Repository paths on the pages for readers, in backticks or links, exist."""

import re
import runpy

import numpy as np
import pytest
import result_pages
from result_tables.intervals import interval_of

from conftest import REPOSITORY
from diagvib.results.uncertainty import estimate, sample_interval

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "profiles/README.md",
    *sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs").glob("*.md")),
]
FOLDERS = ("src", "config", "examples", "rules", "tests", "docs", "profiles", "benchmarks", ".ci")
# Paths that a page tells its reader to make.
OF_THE_READER = ("profiles/mysite",)
# Pages that only the site has.
OUTPUTS = ("commands.md", "configuration.md", "api.md")


def paths(text: str) -> list[str]:
    """The paths of the repository that a page's text names in backticks: src/..., config/... and
    the like."""
    spans = re.findall(r"```.*?```|`[^`\n]+`", text, re.S)
    result = [
        path.rstrip(".,:;")
        for span in spans
        for path in re.findall(
            rf"(?<![\w./:-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*", span
        )
    ]
    return [path for path in result if not path.startswith(OF_THE_READER)]


def links(text: str) -> list[str]:
    """The targets of a page's relative links and pictures, without anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r' src(?:set)?="([^"]+)"', text)
    return [target.partition("#")[0] for target in targets if not target.startswith(("http", "#"))]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page):
    text = (REPOSITORY / page).read_text()
    missing = [path for path in paths(text) if not any(REPOSITORY.glob(path.rstrip("/")))]
    missing += [
        target
        for target in links(text)
        if target not in OUTPUTS and not ((REPOSITORY / page).parent / target).exists()
    ]
    assert missing == []


def test_the_rooms_that_the_pages_name_are_those_of_the_package():
    rooms = {
        path.name
        for path in (REPOSITORY / "src/diagvib").iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    }
    of_contributing = re.findall(
        r"^\| `(\w+)/` \|", (REPOSITORY / "CONTRIBUTING.md").read_text(), re.M
    )
    assert set(of_contributing) == rooms and len(of_contributing) == len(rooms)


def test_the_tables_of_the_result_pages_are_made_from_their_files():
    for name in result_pages.PAGES:
        assert (REPOSITORY / f"docs/{name}.md").read_text() == result_pages.page(name)
    claims = (REPOSITORY / "docs/results/laptop/claims.csv").read_text()
    assert claims == result_pages.claims_csv()
    overall = (REPOSITORY / "docs/results/overall.csv").read_text()
    assert overall == result_pages.overall_csv()
    gains = (REPOSITORY / "docs/results/seeds/gains.csv").read_text()
    assert gains == result_pages.gains_csv()
    for folder in result_pages.MAPS:
        strength = (REPOSITORY / f"docs/results/{folder}/cue_strength.csv").read_text()
        assert strength == result_pages.strength_csv(folder)
    for path, text in result_pages.interval_files():
        assert path.read_text() == text, path


def test_intervals_of_means_are_those_of_their_samples():
    for samples in ([0.9, 1, 0.97], [0.5, 0.5, 0.5], [1, 1, 1], [0.2, 0.9, 0.4], [0, 0.01, 0]):
        mean, stderr, n = estimate(np.array(samples))
        ends = interval_of(mean, stderr, n)
        np.testing.assert_allclose(ends, sample_interval(samples), atol=1e-9)


def test_the_reference_of_hooks_is_that_of_the_source():
    written = runpy.run_path(str(REPOSITORY / "docs/hooks_page.py"))
    text = written["PAGE"].read_text()
    assert text == written["page"](text), "python docs/hooks_page.py"
    assert "def training_step(self, phase: str, batch: Batch, update: Update)" in text
