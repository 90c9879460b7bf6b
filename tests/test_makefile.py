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
    retained = [
        ".snakemake/metadata/record",
        ".snakemake/incomplete/mark",
        "data/raw/file",
        "results/report.html",
        "outputs/laptop/results/report.html",
    ]
    deleted = [
        ".snakemake/log/said.log",
        ".venv/installed",
        "outputs/demo/data/file",
        "outputs/spawrious_demo/data/file",
    ]
    for name in retained + deleted:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert all((tmp_path / name).exists() for name in retained)
    assert not any((tmp_path / name).exists() for name in deleted)


LOCKS = ("requirements.lock", "requirements-workflow.lock")


def pinned(lock: str = LOCKS[0]) -> dict[Requirement, list[str]]:
    """A lock: each requirement with the options that follow it."""
    text = (REPOSITORY / lock).read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    results = {}
    for words in lines:
        options = [word for word in words if word.startswith("--")]
        results[Requirement(" ".join(words[: len(words) - len(options)]))] = options
    return results


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


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pinned_version_has_hashes_and_no_address(lock):
    for requirement, options in pinned(lock).items():
        assert [item.operator for item in requirement.specifier] == ["=="]
        assert options and all(item.startswith("--hash=sha256:") for item in options), requirement
    assert "://" not in (REPOSITORY / lock).read_text()


def test_the_locks_have_what_the_project_needs():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for lock, names in zip(LOCKS, (extras, ["workflow"]), strict=True):
        locked = {canonicalize_name(requirement.name) for requirement in pinned(lock)}
        rows = project["dependencies"] + [item for name in names for item in extras[name]]
        assert {canonicalize_name(Requirement(row).name) for row in rows} - {"diagvib"} <= locked


def test_the_demo_installs_the_tests_versions():
    everything, workflow = map(pinned, LOCKS)
    assert workflow.items() <= everything.items() and len(workflow) < len(everything) - 100
