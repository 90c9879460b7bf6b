"""The site builds without warnings and loads nothing from elsewhere, and commands that pages name
exist."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import markdown
import pytest
import result_pages
import typer

from browser import in_chromium
from conftest import REPOSITORY, refused
from diagvib.cli import app
from diagvib.settings.keys import Configuration
from test_docs import PAGES

PLAYGROUND = REPOSITORY / "docs/playground.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=REPOSITORY,
        env={**os.environ, "EXECUTE_NOTEBOOK": "false", "REPOSITORY": "a/b"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr  # any warning, such as of a broken link, ends it
    return folder


@pytest.mark.integration
def test_nothing_is_loaded_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert {"index.html", "commands.html", "configuration.html", "api.html"} <= {
        page.name for page in pages
    }
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"""<(?:script|img)\b[^>]*?\bsrc=["']([^"']+)""", text)
        loaded += re.findall(r"""<link\b[^>]*?\brel="stylesheet"[^>]*?\bhref=["']([^"']+)""", text)
        loaded += re.findall(
            r"""<link\b[^>]*?\bhref=["']([^"']+)["'][^>]*?\brel="stylesheet\"""", text
        )
        assert not [target for target in loaded if target.startswith(("http", "//"))], page


@pytest.mark.integration
@in_chromium
def test_a_page_opened_from_disk_can_be_searched_and_is_dark_where_that_is_wanted(site, chromium):
    chromium.open(min((site / "files").rglob("*.yaml.html")), dark=True)
    chromium.run("""(() => { const input = document.querySelector(".md-search__input");
        input.focus(); input.value = "spectral decoupling";
        input.dispatchEvent(new Event("keyup")); })()""")
    links = "[...document.querySelectorAll('.md-search-result__link')]"
    until, result = time.monotonic() + 30, []
    while not result and time.monotonic() < until:
        result = chromium.run(f"{links}.map(link => link.pathname)")
    assert str(site / "methods.html") in result
    assert chromium.run("document.body.dataset.mdColorScheme") == "slate"
    assert all(url.startswith(("file:", "about:", "data:")) for url in chromium.requests)


@pytest.mark.integration
@in_chromium
def test_tables_sort_by_numbers_as_they_are_printed(chromium, tmp_path):
    cells = ["2,010", "170,365", "-", "2026-11-29", "2026-03-30", "≥ 87.5", "< 5 (1 to 9)", "-3.1"]
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in cells)
    table = f"<table><thead><tr><th>n</th></tr></thead><tbody>{rows}</tbody></table>"
    script = f"<script>{(REPOSITORY / 'docs/sort.js').read_text()}</script>"
    page = tmp_path / "page.html"
    page.write_text(f'<meta charset="utf-8"><article>{table}</article>{script}')
    chromium.open(page)
    columns = []
    for order in ("ascending", "descending"):
        chromium.run("document.querySelector('th button').click()")
        assert chromium.run("document.querySelector('th').ariaSort") == order
        texts = "[...document.querySelectorAll('td')].map(cell => cell.textContent)"
        columns.append(chromium.run(texts))
    numbers = ["-3.1", "< 5 (1 to 9)", "≥ 87.5", "2,010", "170,365"]
    dates = ["2026-03-30", "2026-11-29"]
    assert columns == [[*numbers, *dates, "-"], [*numbers[::-1], *dates[::-1], "-"]]


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *attrs))

    def handle_data(self, data):
        self.text += data


HOSTILE = [
    "<script>alert(1)</script>",
    "[me](javascript:alert(1))",
    "<javascript:alert(1)>",
    "![x](https://a.example/x.png)",
    "`<b>`",
    "`` `<i> ``",
    "\\`<u>\\`",
    "\\<s>",
    "&lt;img&#62;",
    "a | b\n\n## c\r\n<style>",
    "*d* _e_ __f__",
    "[g]: javascript:1",
]


def hooks() -> ModuleType:
    """docs/site_pages.py."""
    path = REPOSITORY / "docs/site_pages.py"
    spec = importlib.util.spec_from_file_location("site_pages", path)
    site_pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site_pages)
    return site_pages


@pytest.mark.integration
def test_the_first_page_shows_the_playground_and_a_page_the_notebook(site):
    assert '<iframe src="playground.html"' in (site / "index.html").read_text()
    assert (site / "playground.html").read_bytes() == PLAYGROUND.read_bytes()
    page = (site / "quickstart.html").read_text()
    assert "colab.research.google.com/github/a/b/blob/main/docs/quickstart.ipynb" in page
    assert "mybinder.org/v2/gh/a/b/main?labpath=docs/quickstart.ipynb" in page
    assert "def network():" in Tags(page).text


@pytest.mark.integration
@pytest.mark.skipif(not find_spec("nbclient"), reason="nbclient is not installed")
def test_the_notebook_runs_and_shows_that_group_dro_helps_against_the_shortcut():
    files = hooks().notebook("", execute=True)
    page = files.pop("quickstart.md")
    assert [*files] == ["quickstart-0.png", "quickstart-1.png"]
    rows = re.findall(r"^(ERM|group DRO) .*'ood_accuracy': '([\d.]+)%'", page, re.M)
    accuracy = {name: float(value) for name, value in rows}
    assert accuracy["ERM"] + 15 < accuracy["group DRO"]


@pytest.mark.integration
@pytest.mark.parametrize("page", result_pages.FOLDED)
def test_the_long_tables_of_a_page_of_results_are_folded(site, page):
    text = (site / f"{page}.html").read_text()
    parts = re.findall(r"<details.*?<summary>(.*?)</summary>.*?<table>.*?</details>", text, re.S)
    assert parts == [*result_pages.FOLDED[page]]


def test_an_entry_of_the_leaderboard_is_shown_as_text(tmp_path, monkeypatch):
    site_pages = hooks()
    monkeypatch.setattr(site_pages, "REPOSITORY", tmp_path)
    entry = json.loads((REPOSITORY / "leaderboard/whac-95/lite0_erm.json").read_text())
    entry |= {"doubts": HOSTILE, "by": " ".join(HOSTILE), "link": "https://a.example/b_(c)?d=*e*&f"}
    entry["metrics"][0].update(metric=HOSTILE[0], binding=HOSTILE[1])
    entry["metrics"][1].update(mean=-0.0002, low=-0.004, high=0.002)
    subject = tmp_path / "leaderboard/whac-95/lite0_erm.json"
    subject.parent.mkdir(parents=True)
    subject.write_text(json.dumps(entry))
    page = Tags(markdown.markdown(site_pages.leaderboard(), extensions=["tables"]))
    links = [
        tag
        for tag in page.tags
        if tag[0] not in ["h2", "table", "thead", "tbody", "tr", "th", "td"]
    ]
    assert links == [("a", ("href", entry["link"]))]
    text = " ".join(page.text.split())
    assert all(" ".join(message.split()) in text for message in HOSTILE), text
    assert "0.0 (0 to 0)" in text and "-0.0" not in text
    for link in ("javascript:alert(1)", "data:text/html,x", 'https://a" onclick="b', "//a.example"):
        subject.write_text(json.dumps(entry | {"link": link}))
        with refused("link: .*begins with http:// or https://"):
            site_pages.leaderboard()


def test_entries_on_other_images_have_a_table_of_their_own(tmp_path, monkeypatch):
    site_pages = hooks()
    monkeypatch.setattr(site_pages, "REPOSITORY", tmp_path)
    folder = tmp_path / "leaderboard/whac-95"
    folder.mkdir(parents=True)
    for name in ("lite0_erm", "lite0_dfr", "lite0_jtt"):
        entry = json.loads((REPOSITORY / f"leaderboard/whac-95/{name}.json").read_text())
        if name == "lite0_dfr":
            entry["protocol"]["counts"]["train"] = 900
        (folder / f"{name}.json").write_text(json.dumps(entry))
    *_, both, alone = site_pages.leaderboard().split("official sources; ")
    assert "train 12,000, val 1,080 images of 128 pixels; max_epochs 30" in both
    assert "lite0_erm" in both and "lite0_jtt" in both and "lite0_dfr" not in both
    assert "train 900" in alone and "lite0_dfr" in alone and "lite0_erm" not in alone


def commands() -> dict:
    group = typer.main.get_command(app)
    return group.commands


@pytest.mark.integration
def test_the_reference_has_every_command_option_and_key(site):
    text = (site / "commands.html").read_text()
    for name, command in commands().items():
        for item in getattr(command, "commands", {name: command}).values():
            assert all(
                option in text
                for parameter in item.params
                for option in parameter.opts
                if option.startswith("--")
            ), name
        assert f"diagvib {name}" in text
    text = (site / "configuration.html").read_text()
    assert all(f"<code>{key}</code>" in text for key in Configuration.model_fields)
    assert "<code>training.track_test</code>" in text
    assert "diagvib.load" in (site / "api.html").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_a_command_named_in_a_sentence_exists(page):
    """Those in blocks: test_code_blocks.py."""
    code = "\n".join(re.findall(r"`[^`\n]+`", (REPOSITORY / page).read_text()))
    assert set(re.findall(r"`diagvib ([a-z][\w-]*)", code)) <= {*commands(), "COMMAND"}
    targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.M)
    assert set(re.findall(r"`make ([\w-]+)", code)) <= set(targets)
