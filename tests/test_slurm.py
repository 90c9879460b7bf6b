"""The workflow on a real Slurm of two nodes: whatever goes wrong there, it ends as an undisturbed
local run does."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import slurm

from conftest import BIN, REPOSITORY
from diagvib.foundation.files import read_yaml
from toy import CLUSTER_TOY, copy_of_the_repository, environment, hashes, run_here

pytestmark = pytest.mark.integration

CONFIG = f"""{CLUSTER_TOY}training:
  max_epochs: 20
device: cpu
devices: [cpu]
"""
# The shipped profile, but asking Slurm more often than is polite on a cluster that others use.
ARGUMENTS = (
    "--configfile",
    "toy.yaml",
    "--profile",
    "profiles/slurm",
    "--seconds-between-status-checks",
    "1",
    "--slurm-init-seconds-before-status-checks",
    "1",
)
# Each training as a job of its own.
UNGROUPED = ("--group-components", "recipes=4", "training=1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Slurm]:
    reason = slurm.why_not()
    if not find_spec("snakemake_executor_plugin_slurm"):
        reason = "snakemake-executor-plugin-slurm is not installed (pip install -e '.[slurm]')"
    if reason:
        pytest.skip(f"Slurm cannot run here: {reason}")
    with slurm.Slurm() as running:
        yield running


@pytest.fixture
def undisturbed(tmp_path, repository) -> Path:
    """A root in which the toy configuration has been run on this machine, without Slurm."""
    return run_here(repository / "toy.yaml", root=tmp_path / "undisturbed").root


@pytest.fixture
def repository(tmp_path) -> Path:
    """A copy for the cluster, on a head node with a slot: the trainings must not wait for one
    another because of it."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    copy_of_the_repository(folder)
    (folder / "toy.yaml").write_text(CONFIG)
    return folder


def submit(
    cluster: slurm.Slurm,
    repository: Path,
    *arguments: str,
    output: int | None = None,
) -> subprocess.Popen:
    """Start Snakemake with the cluster's profile."""
    command = [BIN / "snakemake", *ARGUMENTS, *arguments, "--", "tables"]
    return subprocess.Popen(
        command,
        cwd=repository,
        start_new_session=True,
        env={**cluster.environment, **environment(repository), "PATH": cluster.environment["PATH"]},
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def submitted(
    cluster: slurm.Slurm, repository: Path, *arguments: str
) -> Iterator[subprocess.Popen]:
    """As `submit`; killed on leaving if it has not ended. What it says is in head.log."""
    with (repository / "head.log").open("w") as log:
        head = submit(cluster, repository, *arguments, output=log.fileno())
        try:
            yield head
        finally:
            head.kill()
            head.wait()


def training_jobs(cluster: slurm.Slurm) -> set[str]:
    """The Slurm ids of the train jobs that run."""
    lines = cluster.run("squeue", "-h", "-t", "running", "-O", "JobID,Comment:60").splitlines()
    return {line.split()[0] for line in lines if "rule_train" in line}


def node_of(cluster: slurm.Slurm, job: str) -> str:
    return cluster.run("squeue", "-h", "-j", job, "-o", "%N").strip()


def training_process(job: str) -> psutil.Process | None:
    """The process of `diagvib train` in a Slurm job, if it runs."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, variables = process.info["cmdline"] or [], process.info["environ"] or {}
        started = "train" in words and any(word.endswith("/diagvib") for word in words)
        if started and variables.get("SLURM_JOB_ID") == job:
            return process
    return None


def wait_for(head: subprocess.Popen, subject_text: Callable[[], object], seconds: float = 600):
    """The first true value of `what`; fails if the head process ends before, or nothing comes."""
    until = time.monotonic() + seconds
    while not (value := subject_text()):
        assert head.poll() is None, "snakemake ended early"
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)
    return value


def test_jobs_that_share_a_local_gpu_ask_slurm_for_one():
    """Else they would wait for one another on a head node with a GPU."""
    rules = {path.stem: path.read_text() for path in (REPOSITORY / "rules").glob("*.smk")}
    request = read_yaml(REPOSITORY / "profiles/slurm/config.yaml")["set-resources"]
    for rule in (name for name, text in rules.items() if "gpu_share=" in text):
        assert request[rule]["gpu_share"] == 0 and request[rule]["gpu"] == 1, rule


def test_trainings_are_submitted_together_and_take_turns_on_one_gpu(cluster, repository):
    with submitted(cluster, repository, "--config", "training={max_epochs: 1}") as head:
        (job,) = wait_for(head, lambda: training_jobs(cluster))
        request = cluster.run("squeue", "-h", "-j", job, "-O", "tres-per-job,MinMemory,TimeLimit")
        assert request.split() == ["gres:gpu:1", "32000M", "1:00:00"]
        assert head.wait(timeout=900) == 0, (repository / "head.log").read_text()
    assert len([*repository.glob("toy/results/runs/*/*/*/sha256.json")]) == 2


def test_whatever_goes_wrong_on_the_cluster_the_result_is_the_same(
    cluster, repository, undisturbed
):
    with submitted(cluster, repository, *UNGROUPED) as head:
        orphans = wait_for(head, lambda: len(jobs := training_jobs(cluster)) == 2 and jobs)
        request = cluster.run(
            "squeue", "-h", "-j", min(orphans), "-O", "tres-per-job,MinMemory,TimeLimit"
        )
        assert request.split() == ["gres:gpu:1", "32000M", "30:00"]
        right, _ = submit(cluster, repository, output=subprocess.PIPE).communicate(timeout=300)
        assert "Directory cannot be locked" in right
    cluster.run("scancel", *orphans)
    assert submit(cluster, repository, "--unlock").wait() == 0

    with submitted(cluster, repository, *UNGROUPED) as head:
        killed, cancelled = wait_for(
            head, lambda: len(jobs := training_jobs(cluster)) == 2 and jobs
        )
        cluster.run("scancel", cancelled)
        node = node_of(cluster, killed)
        wait_for(head, lambda: training_process(killed)).kill()
        cluster.kill_slurmd(node)
        cluster.start_node(node)
        retried = min(wait_for(head, lambda: training_jobs(cluster) - {killed, cancelled}))
        memory = cluster.run("squeue", "-h", "-j", retried, "-O", "MinMemory").strip()
        assert memory == "62.50G"  # 64,000 MB, as Slurm writes it
        wait_for(head, lambda: training_process(retried))
        cluster.run("scontrol", "requeue", retried)
        wait_for(
            head, lambda: "PENDING" in cluster.run("squeue", "-h", "-j", retried, "-O", "State")
        )
        cluster.run(
            "scontrol", "update", f"JobId={retried}", "StartTime=now"
        )  # Slurm would wait two minutes
        wait_for(head, lambda: training_process(retried))
        node = node_of(cluster, retried)
        cluster.lose_node(node)
        wait_for(head, lambda: node_of(cluster, retried) not in ("", node))  # on the other one
        cluster.start_node(node)
        assert head.wait(timeout=900) == 0, (repository / "head.log").read_text()
    assert hashes(repository / "toy") == hashes(undisturbed)
