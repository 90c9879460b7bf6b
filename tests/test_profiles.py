"""What results depend on holds under any profile of a user's, since a profile replaces ours; what is
named on the command line wins, and is explained."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import REPOSITORY
from diagvib.commands import plan_times
from diagvib.foundation.files import read_yaml
from diagvib.settings.resolve import load_config
from stand_in import command, repository_with_stand_in, snakemake
from toy import call, count

CONFIG = """
root: toy
sources: embedded
studies: [zgo]
bindings: [hue-shape, shape-hue, hue-position]
samples: 5
device: cuda
baselines: [small_cnn]
"""
# Trainings that would see each other, and one of which fails if the repository contains `broken`.
TRAINING = (
    "mkdir busy || touch together; sleep 1; rmdir busy; "
    "if [ -e broken ] && mkdir failed; then echo error: broken; exit 1; fi"
)
ALTERNATIVE = ("--config", "training={max_epochs: 2}")
# Prints the settings with which Snakemake plans.
SETTINGS = """
import sys
from snakemake.cli import main
from snakemake.dag import DAG
plan = DAG.__init__
def planned(self, workflow, *arguments, **options):
    settings = workflow.dag_settings
    print("planned:", settings.force_incomplete, settings.max_checksum_file_size >= 10**12)
    plan(self, workflow, *arguments, **options)
DAG.__init__ = planned
main(sys.argv[1:])
"""


@pytest.mark.parametrize("cluster", ["slurm", "generic"])
def test_trainings_ask_for_more_time_than_was_measured_and_a_group_for_a_day(cluster, monkeypatch):
    profile = read_yaml(REPOSITORY / f"profiles/{cluster}/config.yaml")
    runtime = profile["set-resources"]["train"]["runtime"]

    def minutes(baseline: str, attempt: int = 1) -> int:  # as Snakemake evaluates it
        names = {"wildcards": SimpleNamespace(baseline=baseline), "attempt": attempt}
        return eval(runtime, names)

    monkeypatch.setattr(plan_times, "likely_gpu", lambda name: True)
    measured = plan_times.job_seconds(load_config(None, ["baselines=[small_cnn, resnet18]"]))
    assert len(measured) == 2
    for baseline, seconds in measured.items():
        assert 60 * minutes(baseline) > 2 * seconds
    paper = [baseline.name for baseline in load_config().baselines]
    assert minutes("another") not in map(minutes, paper)
    longest = max(minutes(baseline, 3) for baseline in [*paper, "another"])
    assert longest * profile["group-components"]["training"] <= 24 * 60


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A repository in which everything has been made, with options that leave no profile of ours."""
    folder = repository_with_stand_in(tmp_path_factory.mktemp("profiles"), CONFIG, TRAINING)
    (folder / "site").mkdir()
    (folder / "site/config.yaml").write_text("rerun-triggers: [mtime]\nresources: [mem_mb=8000]\n")
    message = snakemake(folder, "runs", "--resources", "mem_mb=8000", cores=4)
    assert "Nothing to be done" not in message
    return folder


@pytest.fixture
def lab(checkout, monkeypatch) -> Path:
    monkeypatch.setenv("SNAKEMAKE_PROFILE", str(checkout / "site"))
    return checkout


def test_trainings_take_turns_on_a_gpu_whatever_other_resources_are_named(checkout, lab):
    assert not (checkout / "together").exists()
    message = snakemake(lab, "runs", "-n", "--resources", "gpu_share=200", cores=4)
    assert "Nothing to be done" in message


@pytest.mark.parametrize("options", [(), ("--workflow-profile", "site"), ("--profile", "site")])
def test_a_profile_does_not_make_results_of_other_settings_count(lab, options):
    assert count(snakemake(lab, "runs", "-n", *options, *ALTERNATIVE)) == {"train": 3, "runs": 1}
    assert "Nothing to be done" in snakemake(lab, "runs", "-n", *options)


@pytest.mark.parametrize("flag", [("--rerun-triggers", "mtime"), ("--rerun-triggers=mtime",)])
def test_on_the_command_line_it_wins_and_is_explained(checkout, flag):
    message = snakemake(checkout, "runs", "-n", *ALTERNATIVE, *flag)
    assert "Nothing to be done" in message
    (line,) = (line for line in message.splitlines() if "--rerun-triggers" in line)
    assert "results of other settings, code or images are taken for those asked for" in line


def test_without_our_profile_unfinished_files_are_made_again_and_inputs_compared(checkout):
    arguments = command(checkout, "runs", "-n", "--workflow-profile", "none", code=SETTINGS)
    assert "planned: True True" in call(checkout, *arguments)


def test_without_our_profile_one_failed_job_does_not_stop_the_others(checkout):
    (checkout / "broken").touch()
    arguments = command(checkout, "runs", "--workflow-profile", "none", *ALTERNATIVE)
    message = call(checkout, *arguments, fails=True)
    assert "error: broken" in message
    after = count(snakemake(checkout, "runs", "-n", *ALTERNATIVE))
    assert after == {"train": 1, "runs": 1}, os.listdir(checkout)
