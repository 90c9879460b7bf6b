"""The site builds without warnings and loads nothing from elsewhere, and commands that pages name
exist."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from browser import Browser, find_browser
from conftest import REPOSITORY
from diagvib.cli import app
from diagvib.settings.configuration import Configuration
from test_docs import PAGES


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=REPOSITORY,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # any warning, such as of a broken link, ends it
    return folder


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


@pytest.mark.skipif(find_browser() is None, reason="no Chromium here")
def test_a_page_opened_from_disk_can_be_searched_and_is_dark_where_that_is_wanted(site, tmp_path):
    with Browser(find_browser(), tmp_path) as browser:
        browser.open(site / "files/config/spawrious.yaml.html", dark=True)
        browser.run("""(() => { const input = document.querySelector(".md-search__input");
            input.focus(); input.value = "spectral decoupling";
            input.dispatchEvent(new Event("keyup")); })()""")
        links = "[...document.querySelectorAll('.md-search-result__link')]"
        until, found = time.monotonic() + 30, []
        while not found and time.monotonic() < until:
            found = browser.run(f"{links}.map(link => link.pathname)")
        assert str(site / "methods.html") in found
        assert browser.run("document.body.dataset.mdColorScheme") == "slate"
        assert all(url.startswith(("file:", "about:", "data:")) for url in browser.requests)


def commands() -> dict:
    group = typer.main.get_command(app)
    return group.commands


def test_the_reference_has_every_command_option_and_key(site):
    text = (site / "commands.html").read_text()
    for name, command in commands().items():
        for one in getattr(command, "commands", {name: command}).values():
            assert all(
                option in text
                for parameter in one.params
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
