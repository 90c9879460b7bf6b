"""The workflow on a cluster of which Snakemake knows only a command that submits a script."""

import subprocess
import sys

import pytest

from diagvib.foundation.files import read_json
from diagvib.foundation.slots import FOLDER
from toy import CLUSTER_TOY, copy_of_the_repository, environment, hashes, run_here

pytestmark = pytest.mark.integration
CONFIG = f"""{CLUSTER_TOY}training:
  max_epochs: 2
devices: [cpu, cpu]
"""
# Notes what a job asks for, and starts its script as a cluster would: later, elsewhere, alone.
SUBMIT = """#!/bin/sh
echo "$1 $2 $3 $4" >>asked
setsid sh "$5" >>cluster.log 2>&1 </dev/null &
echo $!
"""


# Another user's job, of which the cluster does not say that it has the first device.
OTHER_JOB = """
from diagvib.foundation.slots import Device, take_slot
take_slot(100, [Device("cpu:0")])
print(input())
"""


def test_jobs_are_submitted_by_a_sites_command(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "slots"))
    (repository := tmp_path / "cluster").mkdir()
    copy_of_the_repository(repository)
    (repository / "toy.yaml").write_text(CONFIG)
    (repository / "submit").write_text(SUBMIT)
    request = "{threads} {resources.mem_mb} {resources.runtime} {resources.gpu}"
    options = {
        "--profile": "profiles/generic",
        "--configfile": "toy.yaml",
        "--cluster-generic-submit-cmd": f"sh submit {request}",
        "--latency-wait": "10",
        "--seconds-between-status-checks": "1",
    }
    command = [
        sys.executable,
        "-m",
        "snakemake",
        *(word for pair in options.items() for word in pair),
    ]
    streams = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", OTHER_JOB], **streams, text=True) as other:
        assert "takes 100 % of cpu:0" in other.stderr.readline()
        result = subprocess.run(
            [*command, "--", "tables"],
            cwd=repository,
            env=environment(repository),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        other.communicate("\n")
    assert result.returncode == 0, result.stdout + (repository / "cluster.log").read_text()
    undisturbed = run_here(repository / "toy.yaml", root=tmp_path / "undisturbed").root
    assert hashes(repository / "toy") == hashes(undisturbed)
    requests = sorted((repository / "asked").read_text().splitlines())
    runs = repository.glob("toy/results/runs/**/run.json")
    assert {read_json(path)["slot"] for path in runs} == {"100 % of cpu:1"}
    # Two trainings take turns on one GPU, for the sum of their times.
    assert [line for line in requests if line.split()[0] == "5"] == ["5 32000 60 1"]
