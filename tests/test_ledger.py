"""The ledger in real git and DVC repositories at toy size: of a root of its own, and of the current
folder."""

import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from conftest import REPOSITORY, refused
from diagvib.commands.prune import prune
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_yaml, write_json, write_yaml
from diagvib.settings.jobs import JOBS
from diagvib.settings.keys import Configuration
from diagvib.settings.resolve import load_config, resolve
from diagvib.workflow import ledger, records
from diagvib.workflow.dvc import file_md5
from diagvib.workflow.ledger import check_recorded, record, verify
from diagvib.workflow.records import record_of
from diagvib.workflow.root_stages import configuration_text, write_ignored, write_root_stages
from test_prune import touch
from toy import (
    BASELINES,
    MODELS,
    ROOT,
    command,
    count,
    diagvib,
    dvc,
    environment,
    git,
    snakemake,
    toy,
    write,
)
from toy import RUN as RUNS

pytest.importorskip("dvc", reason="dvc is not installed; it is in the extra `workflow`")

RUN = f"{RUNS.format('tiny')}/0/predictions.parquet"
LOCK = Path(ROOT, "dvc.lock")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def flip_a_bit(path: Path, keep_time: bool = False) -> None:
    content, status = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def copied(output, tmp_path, monkeypatch) -> Path:
    """A copy of `output`, the current folder, which tests may change."""
    folder = shutil.copytree(output, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def test_a_complete_run_is_recorded_in_its_root(output):
    assert f"in {LOCK}; `git add {ROOT}`" in (output / "said.txt").read_text()
    assert not (output / "dvc.lock").exists()
    assert git(output, "ls-files", ROOT).split() == [
        f"{ROOT}/{name}" for name in (".gitignore", "config.yaml", "dvc.lock", "dvc.yaml")
    ]
    assert git(output, "status", "--porcelain", "--", ROOT) == ""
    (stage,) = read_yaml(output / ROOT / "dvc.yaml")["stages"].values()
    assert {"lab/models.py", "config/baselines", "rules/encode.smk"} < set(stage["deps"])
    recorded = {item["path"] for item in read_yaml(output / LOCK)["stages"]["all"]["outs"]}
    assert f"{ROOT}/results/tuning" in recorded, "which tables show"


def test_a_clone_that_pulls_the_root_has_nothing_to_do_until_something_changes(output, tmp_path):
    git(tmp_path, "clone", str(output), "clone")
    clone = tmp_path / "clone"
    shutil.copytree(
        output / "src", clone / "src", dirs_exist_ok=True
    )  # with what is compiled of it
    dvc(clone, "pull", "-R", ROOT)
    assert "Nothing to be done" in snakemake(clone, "-n", "--configfile", f"{ROOT}/config.yaml")
    assert "up to date" in dvc(clone, "status", f"{ROOT}/dvc.yaml")
    os.truncate(clone / RUN, 100)
    message = dvc(clone, "repro", f"{ROOT}/dvc.yaml", fails=True)
    assert f"{RUN}: recorded in {LOCK}, but changed" in message
    (clone / RUN).unlink()
    dvc(clone, "checkout", RUN)
    replace(clone / "src/diagvib/report/page.py", "import", "MORE = 1\nimport")
    assert "ledger: not recorded: `dvc repro`" in dvc(clone, "repro", f"{ROOT}/dvc.yaml")
    message = diagvib(clone, "verify", "--root", ROOT)
    assert "0 recorded files are changed, 0 absent, 0 made again" in message
    git(clone, "commit", "-am", "another page")
    # The records go with the files: the commit before is complete again, too.
    git(clone, "checkout", "HEAD~1")
    dvc(clone, "checkout", "-R", ROOT)
    assert "Nothing to be done" in toy(clone, "-n")


def test_the_current_folder_is_a_root_of_config_yaml(copied, tmp_path):
    """Here of the same files, which are taken for up to date."""
    for name in ("data", "results"):
        Path(name).mkdir(exist_ok=True)  # with a README in the repository
        for path in Path(ROOT, name).iterdir():
            path.rename(Path(name, path.name))
    text = configuration_text(load_config("toy.yaml", ["root=."]))
    write(copied, {"config/config.yaml": text})
    assert "ledger: not recorded: `--touch` vouches" in snakemake(copied, "--touch")
    shared = "git add dvc.lock results/metrics`"
    assert shared in diagvib(copied, "record")
    git(copied, "add", ".")
    git(copied, "commit", "-m", "here")
    assert "provenance.json" not in git(copied, "ls-files")
    dvc(copied, "push")
    git(tmp_path, "clone", str(copied), "clone")
    clone = tmp_path / "clone"
    display = dvc(clone, "metrics", "show")
    assert "results/metrics/tiny/zgo.json" in display and "famin" in display
    shutil.copytree(copied / "src", clone / "src", dirs_exist_ok=True)
    dvc(clone, "pull", "dvc.yaml")
    assert "Nothing to be done" in snakemake(clone, "-n")
    # `dvc repro` makes and records what dvc.yaml has, whatever root is configured.
    replace(clone / "config/config.yaml", "root: .", "root: mine")
    dvc(clone, "repro", "--force", "--single-item", "prepare")
    assert "up to date" in dvc(clone, "status", "prepare")
    assert not (clone / "mine").exists()


def test_damage_is_named_before_anything_starts(copied):
    flip_a_bit(Path(RUN))
    message = toy(copied, "--config", "samples=3", fails=True)
    assert f"{RUN}: recorded in {LOCK}, but changed since by something other" in message
    assert f"`dvc checkout {RUN}`" in message and "Traceback" not in message
    Path(ROOT, "provenance.json").write_text("no records")
    assert f"error: {ROOT}/provenance.json: not readable as JSON" in toy(copied, "-n", fails=True)
    LOCK.write_text("schema: '2.0'\n<<<<<<< HEAD\nstages:\n=======\n")
    with refused("possible merge conflicts"):
        check_recorded(ROOT)


def test_a_file_that_is_changed_by_hand_in_a_folder_of_the_workflow_is_damage(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = Path("a/results/metrics/m")
    path, mark = touch(folder / "zgo.json"), touch(folder / ".snakemake_timestamp")
    touch(record_of("metadata", str(folder))).write_text('{"endtime": 100.0}')
    os.utime(mark, (100, 100))
    for changed, ours in ((50, True), (100, True), (200, False)):
        os.utime(path, (changed, changed))
        assert records.made_here(path, ()) == ours


def test_tuning_by_hand_is_no_damage(copied, monkeypatch):
    files = {"modified": [f"{ROOT}/results/tuning/m.csv"]}
    monkeypatch.setattr(ledger, "changes", lambda root: True)
    monkeypatch.setattr(ledger, "changed_files", lambda root: files)
    check_recorded(ROOT)
    files["modified"].append(f"{ROOT}/it's.csv")
    with refused(r"^toy/it's.csv: .* `dvc checkout 'toy/it'\"'\"'s.csv'`"):
        check_recorded(ROOT)


@pytest.mark.parametrize(
    ("root", "remedy"),
    [
        (".", "After `git pull`: `dvc pull`; after `git checkout`: `dvc checkout`. Otherwise"),
        ("my lab", "`dvc pull -R 'my lab'`; after `git checkout`: `dvc checkout -R 'my lab'`."),
        ("published/demo", "After `git pull` or `git checkout`: `diagvib pull published/demo`."),
    ],
)
def test_what_came_with_git_is_fetched_before_it_is_checked_out(root, remedy, capsys):
    """DVC's checkout removes a file whose recorded content is not there."""
    assert not ledger.print_verified({"modified": ["a"], "deleted": [], "anew": []}, root)
    assert remedy in capsys.readouterr().out
    assert ledger.print_verified({"modified": [], "deleted": ["a"], "anew": []}, root)
    brought = "brings what is absent" in capsys.readouterr().out
    assert brought == root.startswith("published/")


def test_runs_that_were_trained_again_elsewhere_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = Path("lab/results/runs/erm/zgo/hue-shape/0")
    write_json(run / "run.json", {"device": "NVIDIA H200", "machine": "AMD EPYC, 2 cores"})
    anew = [str(run / name) for name in ("predictions.parquet", "run.json")]
    anew.append("lab/results/runs/erm/zgo/hue-shape/1/predictions.parquet")  # not finished yet
    differences = {"modified": [], "deleted": [], "anew": anew}
    assert ledger.print_verified(differences, "lab")
    message = capsys.readouterr().out
    assert (
        "other predictions than those recorded: 1 of the runs made again, on NVIDIA H200" in message
    )
    assert "--rev HEAD --out recorded_runs . lab/results/runs`" in message
    assert "`diagvib compare recorded_runs lab`" in message
    assert ledger.print_verified({**differences, "anew": anew[1:2]}, "lab")
    assert "predictions" not in capsys.readouterr().out


def test_a_root_depends_on_all_files_of_the_user(tmp_path, monkeypatch):
    """Named by a relative path, and code of frozen networks, too. What a baseline file says stays
    there."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "dvc.yaml", "dvc.yaml")
    monkeypatch.syspath_prepend(tmp_path)
    subject = """
own:
  model: {name: "my_frozen:tiny", frozen: true}
  method: erm
  optimiser: {name: adam, lr: 1.0e-3}
  batch_size: 7
  depends: [lab/table.csv]
  origin: a test
"""
    network = "def tiny(n_classes, image_size): ..."
    write(tmp_path, {"lab/table.csv": "a", "my_frozen.py": network, "own.yaml": subject})
    overrides = ["baselines=[own]", "baselines_from=[own.yaml]", "studies=[zgo]", "root=outputs/x"]
    config = load_config(None, overrides)
    (tmp_path / "outputs/x/results/tables").mkdir(parents=True)
    write(tmp_path, {"outputs/x/results/tables/overall.csv": ""})
    write_root_stages("outputs/x", config)
    content = read_yaml("outputs/x/dvc.yaml")
    (plot,) = content["plots"]  # no curves, which the root does not make
    assert [*plot] == ["results/tables/overall.csv"]
    (stage,) = content["stages"].values()
    assert {"own.yaml", "my_frozen.py", "lab/table.csv"} <= {*stage["deps"]}
    assert read_yaml("outputs/x/config.yaml")["baselines"] == [{"name": "own"}]


def test_dvc_compares_metrics_and_settings_of_a_root_and_its_options_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init")
    dvc(tmp_path, "init")
    images, metrics = f"{ROOT}/data/images", f"{ROOT}/results/metrics/tiny/zgo.json"
    write(tmp_path, {f"{ROOT}/results/report.html": "", f"{ROOT}/provenance.json": "{}"})
    for epochs in (1, 2):
        write(tmp_path, {metrics: json.dumps({"faavg": epochs / 4})})
        settings = [f"root={ROOT}", f"training={{max_epochs: {epochs}}}"]
        write_root_stages(ROOT, load_config(None, settings))
        write_ignored(ROOT)
        ledger.commit(ROOT)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-m", "a run")
        if epochs == 1:
            replace(Path(ROOT, "dvc.yaml"), f"{images}: {{", f"{images}: {{push: false, ")
            replace(Path(ROOT, "dvc.yaml"), "  all:", "  all:\n    frozen: true")
    assert f"|{metrics}|faavg|0.25|0.5|0.25|" in dvc(
        tmp_path, "metrics", "diff", "HEAD~1", "--md"
    ).replace(" ", "")
    row = f"|{ROOT}/config.yaml|training.max_epochs|1|2|"
    assert row in dvc(tmp_path, "params", "diff", "HEAD~1", "--md").replace(" ", "")
    assert not any(ledger.changed_files(ROOT).values())
    Path(metrics).write_text("{}")
    assert ledger.changed_files(ROOT)["modified"] == [metrics]
    git(tmp_path, "checkout", ROOT)
    (stage,) = read_yaml(Path(ROOT, "dvc.yaml"))["stages"].values()
    assert stage["frozen"] and {images: {"push": False, "persist": True}} in stage["outs"]


def test_what_a_store_with_versions_keeps_is_verified(tmp_path, monkeypatch):
    """A push to it replaces the hashes of folders in dvc.lock by those of their files."""
    monkeypatch.chdir(tmp_path)
    ledger.dvc("init", "--no-scm")
    stage = {"cmd": "train", "outs": ["results/runs"]}
    stage["metrics"] = [{"results/metrics": {"cache": False}}]
    write(tmp_path, {"dvc.yaml": json.dumps({"stages": {"all": stage}})})
    for name in ("runs/a", "metrics/b"):
        write(tmp_path, {f"results/{name}": name})
    ledger.commit(".")
    lock = read_yaml("dvc.lock")
    for out in lock["stages"]["all"]["outs"]:
        folder = Path(out["path"])
        files = [{"relpath": file.name, "md5": file_md5(file)} for file in folder.iterdir()]
        out |= {"files": files} if folder.name == "runs" else {}
        del out["md5"], out["size"], out["nfiles"]
    write_yaml("dvc.lock", lock)
    assert not any(verify(".").values())
    Path("results/runs/a").write_text("other")
    assert verify(".")["modified"] == ["results/runs/a"]


def test_what_is_deleted_is_absent_and_made_again(copied):
    shutil.rmtree(Path(RUN).parent)
    check_recorded(ROOT)
    changes = verify(ROOT)
    assert RUN in changes["deleted"] and not changes["modified"] and not changes["anew"]
    assert count(toy(copied, "-n")) == {"train": 1, "tabulate": 1, "plot": 1, "all": 1}
    with refused(
        "in toy is not complete: 4 jobs are left; finish them with `snakemake --c",
    ):
        record(ROOT)


def test_verify_finds_a_flipped_bit_in_any_recorded_file(copied):
    files = [path for top in ("data", "results") for path in Path(ROOT, top).rglob("*")]
    files = sorted(path for path in files if path.is_file() and path.name[0] != ".")
    selection = [*files[::3], Path(ROOT, "provenance.json")]
    for number, path in enumerate(selection):
        flip_a_bit(path, keep_time=bool(number % 2))
    changes = verify(ROOT)["modified"]
    assert changes == sorted(map(str, selection))
    assert not ledger.print_verified({"modified": changes, "deleted": [], "anew": []})


def test_what_a_killed_workflow_left_is_no_damage(copied):
    replace(Path("lab/baselines.yaml"), "lr: 1.0e-3", "lr: 2.0e-3")
    before = Path(RUN).read_bytes()
    running = subprocess.Popen(
        command("--configfile", "toy.yaml", "--", f"{RUNS.format('tiny')}/sha256.json"),
        cwd=copied,
        env=environment(copied),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while Path(RUN).read_bytes() == before:
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert Path(".snakemake/diagvib/toy.unrecorded").exists()
    check_recorded(ROOT)
    assert RUN in verify(ROOT)["anew"]
    alternative = RUN.replace("tiny", "focal")
    flip_a_bit(Path(alternative))
    with refused(f"^{alternative}: recorded in"):
        check_recorded(ROOT)


def test_a_workflow_that_was_killed_before_it_recorded_is_named_until_that_is_done(copied):
    ledger.to_be_recorded(ROOT)
    message = "ledger: not recorded, since an earlier workflow did not get that far"
    assert message in toy(copied)
    diagvib(copied, "record", "--config", "toy.yaml")
    assert message not in toy(copied, "-n")


def test_failed_runs_cost_no_table_of_the_others_and_are_no_damage(copied):
    """Jobs that fail for one reason share the last line."""
    broken = "def tiny(n_classes, image_size, width):\n    return None\n"
    twice = BASELINES + BASELINES.replace("tiny:", "again:").replace("focal:", "more:")
    write(copied, {"lab/models.py": broken, "lab/baselines.yaml": twice})
    names = ("tiny", "again", "focal")
    entries = "".join(f", {{name: {name}, studies: [zgo]}}" for name in names)
    lines = toy(copied, "--config", f"baselines=[small_cnn{entries}]", fails=True).splitlines()
    *_, page, last = lines
    assert page == "tables and page of the other runs: toy/results/report.html"
    reason = "error: model: lab.models:tiny returned NoneType, not a torch.nn.Module"
    assert last.startswith(f"{reason} (log: toy/logs/train/") and last.endswith(".log and 1 more)")
    assert sum(line.startswith("error: ") for line in lines) == 3, "in two logs, and at the end"
    runs = pd.read_csv("toy/results/tables/runs.csv").groupby("baseline")["status"].agg(set)
    assert runs["tiny"] == runs["again"] == {"missing"}
    assert runs["small_cnn"] == runs["focal"] == {"ok"}
    assert "<td>tiny</td>" in Path("toy/results/report.html").read_text()
    write(copied, {"lab/models.py": MODELS, "lab/baselines.yaml": BASELINES})
    assert not verify(ROOT)["modified"]
    assert set(count(toy(copied, "-n"))) == {"train", "tabulate", "plot", "all"}


def test_what_is_pruned_is_recorded_without_it(copied):
    beyond = touch(Path(RUN.replace("/0/", "/2/")))
    prune([load_config("toy.yaml")], yes=True, dry_run=False)
    lock = LOCK.read_text()
    assert f"in {LOCK}" in diagvib(copied, "record", "--root", ROOT)
    assert LOCK.read_text() == lock and not beyond.exists()


def test_a_root_that_was_moved_is_made_again(copied):
    """Without records nothing says that what is there was made with the settings that are asked
    for."""
    moved = "moved there"
    Path(ROOT).rename(moved)
    jobs = {"prepare": 2, "draw": 2, "render": 2, "train": 4}
    jobs |= dict.fromkeys(("tabulate", "plot", "all"), 1)
    assert count(toy(copied, "-n", "--config", f"root={moved}")) == jobs
    write_root_stages(moved, load_config("toy.yaml").model_copy(update={"root": moved}))
    (stage,) = read_yaml(f"{moved}/dvc.yaml")["stages"].values()
    assert shlex.split(stage["cmd"])[-2:] == ["--configfile", f"{moved}/config.yaml"]


# Which configuration keys decide what jobs there are, beside those that each job is given.
GRID_KEYS = {
    "fetch": {"studies", "textures", "baselines"},
    "prepare": {"studies", "textures"},
    "draw": {"studies", "textures", "bindings", "samples"},
    "render": {"studies", "textures", "bindings", "images"},
    "encode": {"studies", "textures", "bindings", "baselines"},
    "train": {"studies", "textures", "bindings", "baselines", "keep_weights"},
    "tune": {"textures", "baselines"},
}
RULES = {stage: [stage] for stage in JOBS if stage not in ("weights", "plot")} | {
    "fetch": ["fetch", "weights"],
    "tabulate": ["tabulate", "plot"],
}


def test_dvc_yaml_declares_what_the_rules_read(output):
    """Against Snakemake's records, which list every file that a job was given. What code it depends
    on is a parameter; test_house has that."""
    stages = read_yaml(REPOSITORY / "dvc.yaml")["stages"]
    read: dict[str, set[str]] = {}
    for job_record in read_json(output / ROOT / "provenance.json").values():
        files = {path.removeprefix(f"{ROOT}/") for path in job_record["input"]}
        read.setdefault(job_record["rule"], set()).update(files)
    for stage, rules in RULES.items():
        options = {path for rule in rules for path in read.get(rule, ())}
        assert options or stage in ("fetch", "prepare", "encode", "tune"), "the toy has none"
        # Plotting reads what tabulating made.
        names = [*stages[stage]["deps"], *(next(iter(out)) for out in stages[stage]["outs"])]
        outside = {path for path in options if not any(Path(path).is_relative_to(k) for k in names)}
        assert not outside, f"dvc.yaml: {stage}: deps"
        assert {f"rules/{rule}.smk" for rule in rules} <= set(stages[stage]["deps"])


def test_dvc_yaml_declares_the_keys_that_the_stages_depend_on():
    stages, written = (read_yaml(REPOSITORY / name) for name in ("dvc.yaml", "config/config.yaml"))
    for stage, rules in RULES.items():
        params = {
            file: keys
            for entry in stages["stages"][stage]["params"]
            for file, keys in entry.items()
        }
        keys = set(params.pop("config/config.yaml"))
        options = {key for rule in rules for key in JOBS[rule].model_fields}
        assert keys == options & Configuration.model_fields.keys() | GRID_KEYS.get(stage, set()), (
            stage
        )
        assert keys <= set(written), "config/config.yaml must name every key that dvc.yaml looks up"
        assert set(params) == {
            "draw": {"config/studies/diagvib6.yaml", "config/studies/whac_a_mole.yaml"},
            **{key: {"config/baselines/diagvib6.yaml"} for key in ("encode", "train", "tune")},
        }.get(stage, set())


@pytest.mark.parametrize(
    ("without", "says"),
    [
        (".dvc/config", "no DVC repository"),
        (".git", "no git repository"),
        ("trust", "git does not trust this folder"),
        ("dvc", "dvc is not installed"),
        ("a link", "data is outside the DVC repository or a link"),
        ("tracking", "git ignores dvc.yaml"),
    ],
)
def test_without_git_or_dvc_there_is_no_ledger_and_no_error(
    tmp_path, monkeypatch, capsys, without, says
):
    monkeypatch.chdir(tmp_path)
    if without != ".git":
        git(tmp_path, "init")
    for name in {"dvc.yaml", ".dvc/config", "dvc.lock"} - {without}:
        touch(Path(name))
    if without == "dvc":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if without == "a link":
        Path("data").symlink_to(tmp_path.parent)
    if without == "tracking":
        Path(".gitignore").write_text("dvc.yaml")
    if without == "trust":
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    ledger.record_run(SimpleNamespace(root="."), touched=False)
    assert f"not recorded: {says}" in capsys.readouterr().err
    if without in (".git", "tracking", "trust"):
        return  # what is recorded can be checked
    check_recorded(".")
    assert f"not checked: {says}" in capsys.readouterr().err
    with refused(f"^{says}"):
        verify(".")


@pytest.mark.parametrize("before", [None, "schema: '2.0'\n"])
def test_what_a_full_disk_does_not_keep_is_not_recorded(tmp_path, own_disk, monkeypatch, before):
    """DVC itself takes it for committed."""
    monkeypatch.chdir(tmp_path)
    ledger.dvc("init", "--no-scm")
    write(
        tmp_path, {"dvc.yaml": "stages: {plot: {cmd: plot, outs: [p.html]}}", "p.html": "x" * 2**20}
    )
    if before:
        Path("dvc.lock").write_text(before)
    Path(".dvc/cache").mkdir()
    mount = 'mount -t tmpfs -o size=64k tmpfs .dvc/cache; exec "$@"'
    commit = [sys.executable, "-c", "from diagvib.workflow.ledger import commit; commit('.')"]
    process = subprocess.run([*own_disk, mount, "sh", *commit], capture_output=True, text=True)
    last = process.stderr.splitlines()[-1]
    assert process.returncode == 1 and "No space left on device" in last
    assert last.endswith("once that is mended, `diagvib record --root .` records it")
    assert (Path("dvc.lock").read_text() if Path("dvc.lock").exists() else None) == before
    ledger.commit(".")
    assert "md5" in Path("dvc.lock").read_text() and [*Path(".dvc/cache").rglob("*")]


def test_a_folder_for_indexes_is_asked_for_where_dvc_cannot_write_its_own(monkeypatch):
    message = (
        "ERROR: unexpected error - unable to open database file\n\nHaving any troubles? Hit us"
    )
    process = SimpleNamespace(returncode=255, stdout="", stderr=message)
    monkeypatch.setattr(subprocess, "run", lambda *_, **options: process)
    with refused("failed: ERROR: unexpected error - unable to open database file; set DVC_SITE"):
        ledger.dvc("data", "status")


def test_another_dvc_process_is_waited_for(tmp_path, monkeypatch):
    """As that of a second workflow, on another root."""
    monkeypatch.chdir(tmp_path)
    ledger.dvc("init", "--no-scm")
    Path("a.txt").touch()
    holds = "import sys; from dvc.repo import Repo\nwith Repo().lock: print('held', flush=True); input()"
    process = [sys.executable, "-c", holds]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(process, text=True, **pipes) as other:
        assert other.stdout.readline() == "held\n"
        monkeypatch.setattr("diagvib.workflow.dvc.say", lambda _: other.communicate("\n"))
        ledger.dvc("add", "a.txt")
    assert Path("a.txt.dvc").exists()


def test_git_sees_a_root_when_all_of_its_record_is_there(copied, monkeypatch):
    """Also if the first try was stopped. A commit of a dvc.yaml without dvc.lock pushes nothing."""
    monkeypatch.setenv("PYTHONPATH", str(copied / "src"))  # of the code that made the results
    names = [f"{ROOT}/{name}" for name in (".gitignore", "config.yaml", "dvc.lock", "dvc.yaml")]
    git(copied, "rm", "--quiet", *names)
    git(copied, "commit", "--quiet", "-m", "none")
    commits, commit = [], ledger.commit

    def stopped(root):
        commits.append(git(copied, "status", "--porcelain", "--untracked-files=all", "--", root))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ledger, "commit", stopped)
        record(ROOT, load_config("toy.yaml"))
    assert Path(ROOT, "dvc.yaml").exists() and commits == [""]
    monkeypatch.setattr(
        ledger, "commit", lambda root: (commits.append(LOCK.exists()), commit(root))
    )
    record(ROOT, load_config("toy.yaml"))
    assert git(copied, "status", "--porcelain", "--untracked-files=all", "--", ROOT).split() == [
        part for name in names for part in ("??", name)
    ]
    assert commits == ["", False] and "data/" in Path(names[0]).read_text()


def test_a_copy_without_git_is_verified(copied):
    """Such as a ZIP of the repository."""
    shutil.rmtree(".git")
    assert not verify(ROOT)["modified"]
    flip_a_bit(Path(RUN))
    assert verify(ROOT)["modified"] == [RUN]


def test_one_repair_is_advised_and_it_works(copied, capsys):
    flip_a_bit(Path(RUN), keep_time=True)
    assert not ledger.print_verified(verify(ROOT), ROOT)
    remedy = capsys.readouterr().out.splitlines()[-1]
    flip_a_bit(Path(RUN))
    Path(RUN).write_bytes(Path(RUN).read_bytes() + b"more")
    with pytest.raises(DiagvibError) as stopped:
        check_recorded(ROOT)
    assert str(stopped.value).endswith(remedy)
    *_, removal, checkout, _ = remedy.split("`")[1::2]
    for repair in (removal, checkout):
        subprocess.run(repair, shell=True, check=True, env=environment(copied))
    assert not verify(ROOT)["modified"]


def test_the_written_configuration_is_the_one_that_was_run(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    alternatives = ("sources", "dataset", "search")
    case = [
        path for path in Path("config").glob("*.yaml") if not path.name.startswith(alternatives)
    ]
    deeper = [
        *Path("config").glob("methods/*.yaml"),
        *Path("config").glob("photos/*/config.yaml"),
        *Path("config").glob("spawrious_tuning/*.yaml"),
        *Path("config").glob("tables/*.yaml"),
    ]
    case += [path for path in deeper if path.name != "baselines.yaml"]
    assert len(case) > 11
    for path in case:
        config = load_config(path)
        assert len(Path(config.root).parts) < 3, "deeper roots are ignored by git, so not recorded"
        written = resolve(yaml.safe_load(configuration_text(config)), path.name)
        assert written == config.model_copy(update={"mirror": None}), path


def test_records_of_the_root_alone_come_back(tmp_path, monkeypatch):
    """Also under a name that Snakemake divides into folders."""
    monkeypatch.chdir(tmp_path)
    subject, alternative = (
        touch(record_of("metadata", path)) for path in (f"a/data/{'deep/' * 60}0", "ab/data/0")
    )
    for path in (subject, alternative):
        path.write_text('{"of": "before"}')
    records.pack("a")
    for path in (subject, alternative):
        path.write_text("changed since")
    shutil.rmtree(".snakemake/diagvib")  # as in a clone
    records.unpack("a")
    assert (subject.read_text(), alternative.read_text()) == ('{"of": "before"}', "changed since")


def test_what_is_published_of_it(output, tmp_path, monkeypatch):
    monkeypatch.chdir(output)
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from publish import publish

    description = publish(Path(ROOT), tmp_path / "shown")
    assert description["runs"] == description["expected"] == 8
    text = {path.name for path in (tmp_path / "shown").iterdir()}
    assert {"about.json", "config.yaml", "dvc.lock", "p_matrix.csv"} <= text
    with refused(r"nowhere/dvc.lock: no such file"):
        publish(Path("nowhere"), tmp_path / "shown")


def test_what_is_packed_is_of_data_and_results_and_comes_back_after_a_pull(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("a/data/0", "a/results/runs/0", "a/results/tuning/0", "a/database/0", "a/results-2/0")
    for name in names:
        touch(record_of("metadata", name)).write_text('{"of": "before"}')
    records.pack("a")
    packed = Path("a/provenance.json")
    assert [*read_json(packed)] == [*names[:3]]
    write_json(packed, {name: {"of": "the pull"} for name in names})
    records.unpack("a")
    content = [read_json(record_of("metadata", name))["of"] for name in names]
    assert content == ["the pull"] * 3 + ["before"] * 2
