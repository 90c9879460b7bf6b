"""What type checkers say of a user's script: nothing of the lines of docs/library.md, and of a wrong
line what is wrong."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BIN, REPOSITORY

BLOCKS = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/library.md").read_text(), re.S)
TYPED = """\
import diagvib, torch
pair = diagvib.load("zgo", "hue", dtype=torch.float32, root="outputs/demo")[0]
image: torch.Tensor = pair[0]
hue: int = pair[2]["hue"]
row: torch.Tensor = diagvib.load("zgo", "hue", "all", metadata="tensor")[0][2]
size: int = diagvib.load("zgo", "hue", transform=lambda image: image.numel())[0][0]
names: list[str] = [*diagvib.studies(), *diagvib.models(), *diagvib.methods()]
accuracy: float = diagvib.probe(torch.flatten, "zgo", "hue", counts={"train": 90})["accuracy"]
"""
WRONG_SCRIPT = """\
import diagvib, torch
diagvib.load("zgo", "hue", split="trian")
diagvib.load("zgo", "hue", sorces="embedded")
diagvib.load("zgo", "hue", sources="embeded")
text: str = diagvib.load("zgo", "hue")[0][0]
diagvib.load("zgo", "hue", metadata="tensor")[0][2].keys()
diagvib.studies().append("mine")
diagvib.probe(torch.flatten, "zgo", "hue", image_sise=64)
diagvib.loads("zgo", "hue")
"""
# Packages without types of theirs, such as wilds, say nothing.
PYRIGHT = {"useLibraryCodeForTypes": False, "reportMissingModuleSource": False}
PROGRAMS = {
    "mypy": [
        "--ignore-missing-imports",
        "--follow-imports=silent",
        f"--python-executable={sys.executable}",
    ],
    "pyright": [f"--pythonpath={sys.executable}"],
}


@pytest.mark.integration
@pytest.mark.parametrize("program", PROGRAMS)
def test_type_checkers_pass_what_the_page_shows_and_name_what_is_wrong(program, tmp_path):
    if not (path := shutil.which(program, path=f"{BIN}:{os.environ['PATH']}")):
        pytest.skip(f"{program} is not installed; `make .venv/installed` installs it")
    scripts = {"page.py": "".join(BLOCKS), "typed.py": TYPED, "wrong.py": WRONG_SCRIPT}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    sources = str(REPOSITORY / "src")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({**PYRIGHT, "extraPaths": [sources]}))
    output = subprocess.run(
        [path, *PROGRAMS[program], *scripts],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": sources, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    lines = re.findall(r"(\w+\.py):(\d+):.*\berror\b", output)
    assert set(lines) == {
        ("wrong.py", str(line)) for line in range(2, WRONG_SCRIPT.count("\n") + 1)
    }, output
