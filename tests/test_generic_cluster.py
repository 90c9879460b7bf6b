"""The workflow on a cluster of which Snakemake knows only a command that submits a script."""

import sys

import pytest

from diagvib.foundation.files import read_json
from toy import CLUSTER_TOY, call, copy_of_the_repository, hashes, run_here

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


def test_jobs_are_submitted_by_a_sites_command(tmp_path, holder):
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
    # Another user's job, of which the cluster does not say that it has the first device.
    assert holder(100, "cpu").stdout.readline() == "cpu:0\n"
    call(repository, *command, "--", "tables")
    undisturbed = run_here(repository / "toy.yaml", root=tmp_path / "undisturbed").root
    assert hashes(repository / "toy") == hashes(undisturbed)
    requests = sorted((repository / "asked").read_text().splitlines())
    runs = repository.glob("toy/results/runs/**/run.json")
    assert {read_json(path)["slot"] for path in runs} == {"100 % of cpu:1"}
    # Two trainings take turns on one GPU, for the sum of their times.
    assert [line for line in requests if line.split()[0] == "5"] == ["5 32000 60 1"]
