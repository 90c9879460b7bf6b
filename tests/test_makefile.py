"""What `make clean` leaves in place."""

import shutil
import subprocess

import pytest

from conftest import REPOSITORY


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_clean_keeps_what_data_and_results_were_made_from(tmp_path):
    shutil.copy2(REPOSITORY / "Makefile", tmp_path)
    kept = [".snakemake/metadata/record", ".snakemake/incomplete/mark", "data/raw/file", "results/report.html"]
    gone = [".snakemake/log/said.log", ".venv/installed", "outputs/demo/data/file"]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert all((tmp_path / name).exists() for name in kept)
    assert not any((tmp_path / name).exists() for name in gone)
