"""An edit counts if and only if a run could depend on it; what is kept of a file is what the file
says."""

import ast
import json
from pathlib import Path

import pytest

from conftest import REPOSITORY
from diagvib.foundation import source
from diagvib.foundation.files import cache_folder
from diagvib.foundation.program_digest import program_digest

PROGRAM = '''"""What it does."""

import os  # for the folder


class Net:
    """Of two layers."""

    def forward(self, x):
        """x: images."""
        # Twice is enough.
        text = f"""{x}

        # no comment"""
        return (x +
                1), "#", text
'''


def digest(folder: Path, text: str, name: str = "net.py") -> str:
    (folder / name).write_text(text)
    return program_digest(folder / name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""What it does."""\n', ""),
        ("What it does.", "What it does,\nin two lines: é."),
        ("  # for the folder", ""),
        ("for the folder", "for its folder"),
        ("        # Twice is enough.\n", ""),
        ("\n\n\n", "\n"),
        ('    """Of two layers."""\n\n', ""),
        ("x: images.", "x: images, float32[B, 3, H, W]."),
        ("\n\n    def", "\n    def"),
    ],
)
def test_what_only_readers_see_does_not_count(tmp_path, old, new):
    assert old in PROGRAM
    assert digest(tmp_path, PROGRAM.replace(old, new)) == digest(tmp_path, PROGRAM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1)", "2)"),
        ('"#"', '"# "'),
        ("{x}\n\n", "{x}\n"),
        ("# no comment", "# a comment"),
        ("import os", "import re"),
        ("        return", "    return"),
        ("(x +\n                1)", "(x + 1)"),
    ],
)
def test_what_a_run_could_depend_on_counts(tmp_path, old, new):
    assert old in PROGRAM
    assert digest(tmp_path, PROGRAM.replace(old, new)) != digest(tmp_path, PROGRAM)


def test_comments_behind_formatted_strings_do_not_count_unless_a_brace_is_quoted(tmp_path):
    for text, counts in (('a = f"{x:>{n}} {{#}}"', False), ("""a = f"{'}'}#" """, True)):
        assert (
            digest(tmp_path, f"{text}  # one\n") != digest(tmp_path, f"{text}  # two\n")
        ) == counts
        assert digest(tmp_path, text) != digest(tmp_path, text.replace("#", "-"))


def test_a_string_beside_other_code_counts(tmp_path):
    assert digest(tmp_path, 'def f(): "one"; return 1\n') != digest(
        tmp_path, 'def f(): "one"; return 2\n'
    )


@pytest.mark.parametrize("name", ["net.py", "sources.yaml"])
def test_every_byte_counts_of_what_is_no_python(tmp_path, name):
    assert digest(tmp_path, "def (  # one\n", name) != digest(tmp_path, "def (  # two\n", name)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder, empty so far, in which is kept what files say."""
    monkeypatch.setenv("DIAGVIB_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept/code"


def new_process() -> None:
    source._source.cache_clear()
    source._parsed.cache_clear()
    source._content.cache_clear()


def test_what_is_kept_is_what_the_files_say(kept, monkeypatch):
    files = sorted(REPOSITORY.glob("src/**/*.py"))
    new_process()
    found = [source.read_source(path) for path in files]
    new_process()
    monkeypatch.setattr(ast, "parse", lambda *_: pytest.fail("analysed again"))
    assert [source.read_source(path) for path in files] == found
    assert len(list(kept.iterdir())) == len({path.read_bytes() for path in files})


@pytest.mark.parametrize("damaged", ["", '{"imports": [[0, "os"', "[]", "{}", "\0\0\0\0"])
def test_what_is_damaged_is_found_again(kept, tmp_path, damaged):
    before = digest(tmp_path, PROGRAM)
    (entry,) = kept.iterdir()
    whole = entry.read_text()
    entry.write_text(damaged)
    new_process()
    assert digest(tmp_path, PROGRAM) == before
    assert entry.read_text() == whole and json.loads(whole)["imports"] == [[0, "os"]]


def test_a_file_that_is_no_python_is_read_every_time(kept, tmp_path):
    for _ in range(2):
        digest(tmp_path, "def (\n")
        assert "invalid syntax" in source.read_source(tmp_path / "net.py").error
        new_process()
    assert not kept.exists()


def test_nothing_need_be_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "DIAGVIB_CACHE", str(tmp_path / "net.py")
    )  # a file, so that nothing can be written there
    before = digest(tmp_path, PROGRAM)
    new_process()
    assert digest(tmp_path, PROGRAM) == before


def test_where_it_is_kept(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    for variables, folder in (
        ({"DIAGVIB_CACHE": "~/mine"}, "/home/someone/mine"),
        ({"DIAGVIB_CACHE": "", "XDG_CACHE_HOME": "/scratch"}, "/scratch/diagvib"),
        ({"DIAGVIB_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/someone/.cache/diagvib"),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert str(cache_folder()) == folder
