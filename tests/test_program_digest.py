"""An edit counts if and only if a run could depend on it."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("old", "new"), [
    ('"""What it does."""\n', ""), ("What it does.", "What it does,\nin two lines: é."), ("  # for the folder", ""),
    ("for the folder", "for its folder"), ("        # Twice is enough.\n", ""), ("\n\n\n", "\n"),
    ('    """Of two layers."""\n\n', ""), ("x: images.", "x: images, float32[B, 3, H, W]."),
    ("\n\n    def", "\n    def")])
def test_what_only_readers_see_does_not_count(tmp_path, old, new):
    assert old in PROGRAM
    assert digest(tmp_path, PROGRAM.replace(old, new)) == digest(tmp_path, PROGRAM)


@pytest.mark.parametrize(("old", "new"), [
    ("1)", "2)"), ('"#"', '"# "'), ("{x}\n\n", "{x}\n"), ("# no comment", "# a comment"),
    ("import os", "import re"),
    ("        return", "    return"), ("(x +\n                1)", "(x + 1)")])
def test_what_a_run_could_depend_on_counts(tmp_path, old, new):
    assert old in PROGRAM
    assert digest(tmp_path, PROGRAM.replace(old, new)) != digest(tmp_path, PROGRAM)


def test_comments_behind_formatted_strings_do_not_count_unless_a_brace_is_quoted(tmp_path):
    for text, counts in (('a = f"{x:>{n}} {{#}}"', False), ("""a = f"{'}'}#" """, True)):
        assert (digest(tmp_path, f"{text}  # one\n") != digest(tmp_path, f"{text}  # two\n")) == counts
        assert digest(tmp_path, text) != digest(tmp_path, text.replace("#", "-"))


def test_a_string_beside_other_code_counts(tmp_path):
    assert digest(tmp_path, 'def f(): "one"; return 1\n') != digest(tmp_path, 'def f(): "one"; return 2\n')


@pytest.mark.parametrize("name", ["net.py", "sources.yaml"])
def test_every_byte_counts_of_what_is_no_python(tmp_path, name):
    assert digest(tmp_path, "def (  # one\n", name) != digest(tmp_path, "def (  # two\n", name)

