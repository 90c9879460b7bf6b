"""The ledger in real git and DVC repositories at toy size, tested by what Snakemake plans and DVC
reports."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from conftest import REPOSITORY
from diagvib.foundation.files import file_sha256
from diagvib.operations import ledger, records
from diagvib.settings.configuration import Configuration
from diagvib.settings.jobs import JOBS
from test_prune import touch
from toy import command, count, diagvib, dvc, dvc_repository, environment, git, snakemake

pytest.importorskip("dvc", reason="dvc is not installed; it is in the extra `workflow`")

TOY = """
root: .
sources: embedded
mirror: null
studies: [zgo]
studies_from: []
bindings: [hue-shape]
samples: 1
counts: {train: 64, val: 18, id: 18, ood: 18}
image_size: 128
images: parquet
baselines: [small_cnn, other]
baselines_from: []
training: {max_epochs: 1, patience: null, seed: 1332, precision: bf16, threads: 1, track_test: false}
tuning: {study: zso, batch_sizes: [32], learning_rates: [1.0e-3], factors: [hue], samples: [0], max_epochs: null,
         random_search: null}
device: cpu
keep_weights: false
tensorboard: false
"""
OTHER = """
other: {model: small_cnn, method: erm, batch_size: 16, origin: test, optimiser: {name: adam, lr: 5.0e-4}}
"""
RUN = "results/runs/small_cnn/zgo/hue-shape/0/predictions.parquet"
# Which configuration keys decide what jobs there are, beside those that each job is given.
GRID_KEYS = {
    "fetch": {"studies"},
    "prepare": {"studies"},
    "draw": {"studies", "bindings", "samples"},
    "render": {"studies", "bindings", "images"},
    "train": {"studies", "bindings", "baselines", "keep_weights"},
}
RULES = {stage: [stage] for stage in ("fetch", "prepare", "draw", "render", "train")} | {
    "tabulate": ["tabulate", "plot"]
}


def plan(folder: Path) -> dict[str, int]:
    said = snakemake(folder, "-n", "--quiet", "rules", "reason", "host")
    jobs = count(said)
    assert jobs or "Nothing to be done" in said, said
    return jobs


def is_clean(folder: Path) -> bool:
    return "up to date" in dvc(folder, "status")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def flip_a_bit(path: Path, keep_time: bool = False) -> None:
    content, status = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A repository with the toy configuration as its default, run once, committed, pushed. Not to
    be changed."""
    baselines = "config/baselines/diagvib6.yaml"
    files = {"config/config.yaml": TOY, baselines: (REPOSITORY / baselines).read_text() + OTHER}
    folder, store = (tmp_path_factory.mktemp(name) for name in ("recorded", "remote"))
    dvc_repository(folder, store, files)
    (folder / "said.txt").write_text(snakemake(folder))
    git(folder, "add", "dvc.lock", "results/metrics")
    git(folder, "commit", "-m", "results")
    dvc(folder, "push")
    return folder


@pytest.fixture(scope="module")
def pulled(recorded, tmp_path_factory) -> Path:
    """A clone with the data pulled. Tests that change it restore it."""
    folder = tmp_path_factory.mktemp("clones") / "clone"
    git(recorded, "clone", str(recorded), str(folder))
    dvc(folder, "pull")
    return folder


@pytest.fixture
def worked_in(recorded, tmp_path) -> Path:
    """A copy of `recorded`, with its times and Snakemake's records, which tests may change."""
    return shutil.copytree(recorded, tmp_path / "copy")


def test_a_complete_run_is_recorded_by_itself(recorded):
    assert "ledger: recorded" in (recorded / "said.txt").read_text()
    assert is_clean(recorded)
    assert git(recorded, "status", "--short").strip() == "?? said.txt"


def test_a_clone_with_pulled_data_has_nothing_to_do(pulled):
    assert plan(pulled) == {} and is_clean(pulled)
    assert git(pulled, "status", "--short") == ""
    shown = dvc(pulled, "metrics", "show")
    assert "results/metrics/other/zgo.json" in shown and "famin" in shown


def test_what_is_damaged_or_deleted_is_named_and_can_be_restored(pulled):
    flip_a_bit(pulled / RUN)
    said = snakemake(pulled, fails=True)
    assert f"{RUN}: recorded in dvc.lock, but changed" in said and "dvc checkout -f" in said
    assert "Traceback" not in said
    os.truncate(pulled / RUN, 100)
    assert f"{RUN}: recorded in dvc.lock, but changed" in dvc(pulled, "repro", fails=True)
    shutil.rmtree((pulled / RUN).parent)
    assert plan(pulled) == {"train": 1, "tabulate": 1, "plot": 1, "all": 1}
    said = diagvib(pulled, "verify")
    assert f"absent   {Path(RUN).parent}" in said and "0 recorded files are changed" in said
    dvc(pulled, "checkout", RUN, str(Path(RUN).parent))
    assert plan(pulled) == {} and is_clean(pulled)


def test_what_is_not_a_complete_run_is_not_recorded(worked_in):
    before = (worked_in / "dvc.lock").read_bytes()
    replace(worked_in / "src/diagvib/report/page.py", "import", "WHY = 1\nimport")
    said = snakemake(worked_in, "--forcerun", "tabulate", "--", "tables")
    assert (
        "ledger: not recorded: config/config.yaml is not complete; `snakemake -n` lists 2 jobs"
        in said
    )
    said = diagvib(worked_in, "verify")  # the tables are as they were, their records new
    assert "0 recorded files are changed, 0 absent" in said and "absent, 0 made again" not in said
    assert "ledger: not recorded: `--touch` vouches" in snakemake(worked_in, "--touch")
    assert (worked_in / "dvc.lock").read_bytes() == before


def test_a_run_started_by_dvc_is_recorded_by_dvc(worked_in):
    replace(worked_in / "src/diagvib/report/page.py", "import", "WHY = 1\nimport")
    said = dvc(worked_in, "repro")
    assert "Running stage 'tabulate'" in said and "Running stage 'train'" not in said
    assert "ledger: not recorded: `dvc repro` runs this stage and records it itself" in said
    assert is_clean(worked_in) and plan(worked_in) == {}


def test_a_ledger_behind_is_brought_up_to_date(worked_in):
    replace(worked_in / "rules/train.smk", "    params:", "    # why\n    params:")
    assert "Nothing to be done" in snakemake(worked_in)
    assert not is_clean(worked_in)
    assert "recorded" in diagvib(worked_in, "record")
    assert is_clean(worked_in)
    before = (worked_in / "dvc.lock").read_bytes()
    replace(worked_in / "rules/train.smk", "# why", "# whyever")
    replace(
        worked_in / "dvc.yaml",
        "stages:",
        "stages:\n  absent: {cmd: 'true', outs: [no_such_out.csv]}",
    )
    assert "no_such_out.csv" in diagvib(worked_in, "record", fails=True)
    assert (worked_in / "dvc.lock").read_bytes() == before  # all of it or nothing


def test_what_a_killed_workflow_left_is_no_damage(worked_in, recorded):
    replace(worked_in / "config/baselines/diagvib6.yaml", "lr: 5.0e-4", "lr: 6.0e-4")
    run = RUN.replace("small_cnn", "other")
    running = subprocess.Popen(
        command(cores=1),
        cwd=worked_in,
        env=environment(worked_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while (worked_in / run).read_bytes() == (recorded / run).read_bytes():
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    snakemake(worked_in, "--unlock")
    assert "ledger: recorded" in snakemake(worked_in)
    assert is_clean(worked_in)
    assert (worked_in / RUN).read_bytes() == (recorded / RUN).read_bytes()


def test_dvc_yaml_declares_what_the_rules_read(recorded):
    """Against Snakemake's records of the toy run, which list every file that a job was given. What
    code it depends on is a parameter; test_house has that."""
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    read: dict[str, set[str]] = {}
    for record in (recorded / ".snakemake/metadata").iterdir():
        made = json.loads(record.read_text())
        read.setdefault(made["rule"], set()).update(made["input"])
    for stage, rules in RULES.items():
        given = {path for rule in rules for path in read.get(rule, ())}
        assert given or stage in ("fetch", "prepare"), "embedded sources need none"
        made = [
            out for out in stages[stage]["outs"] if rules[1:]
        ]  # plotting reads what tabulating made
        known = [*stages[stage]["deps"], *(next(iter(out)) for out in made)]
        outside = [
            path for path in given if not any(Path(path).is_relative_to(dep) for dep in known)
        ]
        assert not outside, f"dvc.yaml: {stage}: deps"
        assert {f"rules/{rule}.smk" for rule in rules} <= set(stages[stage]["deps"])


def test_dvc_yaml_declares_the_keys_that_the_stages_depend_on():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"]
    for stage, rules in RULES.items():
        params = {file: keys for entry in stages[stage]["params"] for file, keys in entry.items()}
        assert set(params.pop("config/config.yaml")) == {
            key
            for rule in rules
            for key in JOBS[rule].model_fields
            if key in Configuration.model_fields
        } | GRID_KEYS.get(stage, set()), stage
        assert set(params) == {
            "draw": {"config/studies/diagvib6.yaml", "config/studies/whac_a_mole.yaml"},
            "train": {"config/baselines/diagvib6.yaml"},
        }.get(stage, set())
    assert "config/dataset_samples.yaml" in stages["draw"]["deps"], (
        "a list, which DVC takes for no parameters"
    )
    written = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())
    named = {
        key
        for stage in stages.values()
        for entry in stage.get("params", [])
        for key in entry.get("config/config.yaml", [])
    }
    assert named <= set(written), "config/config.yaml must name every key that dvc.yaml looks up"


@pytest.mark.parametrize(
    ("without", "says"),
    [
        (".dvc", "no DVC repository"),
        (".git", "no git repository"),
        ("dvc", "dvc is not installed"),
    ],
)
def test_without_git_or_dvc_there_is_no_ledger_and_no_error(
    tmp_path, monkeypatch, capsys, without, says
):
    for name in {".dvc", ".git"} - {without}:
        (tmp_path / name).mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}")
    if without != ".dvc":
        (tmp_path / ".dvc/config").write_text("")
    if without == "dvc":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    ledger.record_run(SimpleNamespace(root="."), touched=False)
    assert f"not recorded: {says}" in capsys.readouterr().err
    (tmp_path / "dvc.lock").write_text("")
    ledger.check_recorded(".")
    assert f"not checked: {says}" in capsys.readouterr().err


def test_a_damaged_ledger_is_named_in_one_line(worked_in):
    (worked_in / "dvc.lock").write_text("schema: '2.0'\n<<<<<<< HEAD\nstages:\n=======\n")
    shutil.rmtree((worked_in / RUN).parent)
    said = snakemake(worked_in, fails=True)
    assert "error: dvc.lock: empty, damaged, or with the conflict markers" in said
    assert "Traceback" not in said and "git checkout --ours dvc.lock" in said


def test_a_root_of_its_own_is_never_recorded_as_the_current_folder(worked_in):
    before = (worked_in / "dvc.lock").read_bytes()
    replace(worked_in / "config/config.yaml", "root: .", "root: mine")
    replace(worked_in / "config/config.yaml", "max_epochs: 1", "max_epochs: 2")
    said = diagvib(worked_in, "record", fails=True)
    assert "error: there is no mine/config.yaml; name the configuration" in said
    said = dvc(worked_in, "repro", fails=True)
    assert (
        "root is 'mine', but `dvc repro` records data/ and results/ of the current folder; set `root: .`"
        in said
    )
    said = diagvib(worked_in, "record", "--root", ".", fails=True)
    assert (
        "error: config/config.yaml: root is 'mine', but dvc.lock holds data/ and results/" in said
    )
    assert (worked_in / "dvc.lock").read_bytes() == before


def recorded_files(folder: Path) -> list[Path]:
    """Every file that DVC records, and Snakemake's records of them."""
    return sorted(
        path
        for top in ("data", "results", ".snakemake/metadata")
        for path in (folder / top).rglob("*")
        if path.is_file() and path.name != ".snakemake_timestamp"
    )


def test_verify_finds_a_flipped_bit_in_any_recorded_file(pulled, tmp_path):
    folder = shutil.copytree(pulled, tmp_path / "flipped")
    random, files = np.random.default_rng(11), recorded_files(folder)
    chosen = [files[at] for at in random.permutation(len(files))[:100]]
    metrics = [path for path in chosen if "metrics" in path.relative_to(folder).parts]
    assert metrics and any(".snakemake" in path.parts for path in chosen)
    for place, path in enumerate(chosen):
        content, status = bytearray(path.read_bytes()), path.stat()
        content[random.integers(len(content))] ^= 1 << int(random.integers(8))
        path.write_bytes(content)
        if place % 2:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    said = diagvib(folder, "verify", fails=True)
    found = {line.split()[1] for line in said.splitlines() if line.startswith("changed  ")}
    assert found == {str(path.relative_to(folder)) for path in chosen if path not in metrics} | {
        "results/metrics"
    }


def test_verify_finds_a_changed_time_in_a_record(worked_in):
    """Which is how it knows what the workflow made."""
    record = worked_in / records.record_of("metadata", "results/metrics")
    before = record.read_text()
    ended = str(json.loads(before)["endtime"])
    record.write_text(before.replace(ended, "9" + ended[1:]))
    assert f"changed  {record.relative_to(worked_in)}" in diagvib(worked_in, "verify", fails=True)


def test_a_digest_file_vouches_only_for_what_it_names_and_only_if_it_was_made_here(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    file = touch(Path("results/runs/a/0/run.json"))
    digests = touch(Path("results/runs/a/sha256.json"))
    record = touch(records.record_of("metadata", str(digests)))
    for noted, made in (
        ({"0/run.json": file_sha256(file)}, True),
        ({"0/run.json": "other"}, False),
        ({}, False),
    ):
        digests.write_text(json.dumps(noted))
        record.write_text(json.dumps({"endtime": digests.stat().st_mtime}))
        assert records.made_here(file, ()) == made
    digests.write_text("damaged")
    assert not records.made_here(file, ()) and records.made_here(file, {str(digests)})
