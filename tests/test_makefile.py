"""`make` installs the environment, and `make clean` leaves results in place."""

import shutil
import subprocess
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from conftest import REPOSITORY


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_clean_keeps_what_data_and_results_were_made_from(tmp_path):
    shutil.copy2(REPOSITORY / "Makefile", tmp_path)
    kept = [
        ".snakemake/metadata/record",
        ".snakemake/incomplete/mark",
        "data/raw/file",
        "results/report.html",
        "outputs/laptop/results/report.html",
    ]
    gone = [
        ".snakemake/log/said.log",
        ".venv/installed",
        "outputs/demo/data/file",
        "outputs/spawrious_demo/data/file",
    ]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert all((tmp_path / name).exists() for name in kept)
    assert not any((tmp_path / name).exists() for name in gone)


def pinned() -> dict[Requirement, list[str]]:
    """The lock: each requirement with the options that follow it."""
    text = (REPOSITORY / "requirements.lock").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    found = {}
    for words in lines:
        options = [word for word in words if word.startswith("--")]
        found[Requirement(" ".join(words[: len(words) - len(options)]))] = options
    return found


def test_every_pinned_version_installs_on_the_oldest_python():
    """A system's Python 3.11 may be 3.11.2, as Debian's is."""
    oldest = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
        "requires-python"
    ].removeprefix(">=")
    assert len(pinned()) > 100
    for requirement in pinned():
        with suppress(PackageNotFoundError):  # one for another platform
            needed = metadata(requirement.name)["Requires-Python"] or ""
            assert SpecifierSet(needed).contains(f"{oldest}.2"), (
                f"{requirement} needs Python {needed}"
            )


def test_every_pinned_version_has_hashes_and_no_address():
    for requirement, options in pinned().items():
        assert [one.operator for one in requirement.specifier] == ["=="]
        assert options and all(one.startswith("--hash=sha256:") for one in options), requirement
    assert "://" not in (REPOSITORY / "requirements.lock").read_text()


def test_the_lock_has_what_the_project_needs():
    names = {canonicalize_name(requirement.name) for requirement in pinned()}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = [one for lines in project["optional-dependencies"].values() for one in lines]
    asked = {canonicalize_name(Requirement(one).name) for one in project["dependencies"] + extras}
    assert asked - {"diagvib"} <= names
