"""The ledger of a root other than the current folder: recorded, pulled, checked and pruned as that
of `.` is."""

import json
import shlex
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

import toy
from conftest import REPOSITORY
from diagvib.foundation.errors import DiagvibError
from diagvib.operations import records
from diagvib.operations.dvc import why_no_ledger
from diagvib.operations.ledger import record, verify
from diagvib.operations.records import record_of
from diagvib.operations.root_stages import configuration_text, write_root_stages
from diagvib.settings.config import load_config, resolve
from test_ledger import flip_a_bit, replace
from toy import ROOT, count, diagvib, dvc, git, snakemake
from toy import toy as run

RUN = toy.RUN.format("tiny") + "/0/predictions.parquet"


@pytest.fixture
def copied(made, tmp_path) -> Path:
    """A copy of `made`, which tests may change."""
    return shutil.copytree(made, tmp_path / "copy", symlinks=True)


def test_a_complete_run_is_recorded_in_its_root(made):
    said = (made / "said.txt").read_text()
    assert f"in {ROOT}/dvc.lock; `git add {ROOT}`" in said
    assert "a clone needs your own studies, baselines and models in git, too" in said
    assert not (made / "dvc.lock").exists()
    assert git(made, "ls-files", ROOT).split() == [
        f"{ROOT}/{name}" for name in (".gitignore", "config.yaml", "dvc.lock", "dvc.yaml")
    ]
    assert git(made, "status", "--porcelain", "--", ROOT) == ""
    stages, main = (
        yaml.safe_load((made / folder / "dvc.yaml").read_text())["stages"] for folder in (ROOT, ".")
    )
    assert list(stages) == list(main)
    for name, stage in stages.items():
        outs = {
            path for out in (*main[name]["outs"], *main[name].get("metrics", [])) for path in out
        }
        assert {path for out in stage["outs"] for path in out} == {
            f"{ROOT}/provenance.zip" if path.startswith(".snakemake") else f"{ROOT}/{path}"
            for path in outs
        }


def test_a_clone_that_pulls_the_root_has_nothing_to_do_until_something_changes(made, tmp_path):
    git(tmp_path, "clone", str(made), "clone")
    clone = tmp_path / "clone"
    shutil.copytree(made / "src", clone / "src", dirs_exist_ok=True)  # with what is compiled of it
    dvc(clone, "pull", "-R", ROOT)
    assert "Nothing to be done" in snakemake(clone, "-n", "--configfile", f"{ROOT}/config.yaml")
    assert "up to date" in dvc(clone, "status", f"{ROOT}/dvc.yaml")
    replace(clone / "src/diagvib/report/page.py", "import", "MORE = 1\nimport")
    dvc(clone, "repro", f"{ROOT}/dvc.yaml")
    assert "0 recorded files are changed, 0 absent, 0 made again" in diagvib(
        clone, "verify", "--root", ROOT
    )
    git(clone, "commit", "-am", "another page")
    # The records go with the files: the commit before is complete again, too.
    git(clone, "checkout", "HEAD~1")
    dvc(clone, "checkout", "-R", ROOT)
    assert "Nothing to be done" in run(clone, "-n")


def test_damage_is_found(copied):
    flip_a_bit(copied / RUN)
    assert f"changed  {RUN}" in diagvib(copied, "verify", "--root", ROOT, fails=True)
    said = run(copied, "--config", "samples=3", fails=True)
    assert f"{RUN}: recorded in {ROOT}/dvc.lock, but changed since by something other than" in said
    (copied / ROOT / "provenance.zip").write_bytes(b"no archive")
    said = run(copied, "-n", fails=True)
    assert f"error: {ROOT}/provenance.zip: damaged" in said
    assert f"`dvc checkout {ROOT}/provenance.zip` restores" in said


def test_what_is_pruned_is_recorded_without_it(copied):
    beyond = copied / RUN.replace("/0/", "/2/")
    beyond.parent.mkdir()
    shutil.copy(copied / RUN, beyond)
    assert "deleted 1 files" in diagvib(copied, "prune", "--config", "toy.yaml", "--yes")
    lock = (copied / ROOT / "dvc.lock").read_text()
    assert f"in {ROOT}/dvc.lock" in diagvib(copied, "record", "--root", ROOT)
    assert (copied / ROOT / "dvc.lock").read_text() == lock


def test_a_root_that_git_ignores_has_no_ledger(made, monkeypatch):
    monkeypatch.chdir(made)
    for action in (record, verify):
        with pytest.raises(DiagvibError, match="^git ignores outputs/demo/dvc.yaml$"):
            action("outputs/demo")


def test_the_written_configuration_is_the_one_that_was_run(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    others = ("sources", "dataset", "search")
    found = [path for path in Path("config").glob("*.yaml") if not path.name.startswith(others)]
    assert len(found) > 5
    for path in found:
        config = load_config(path)
        written = resolve(yaml.safe_load(configuration_text(config)), path.name)
        assert written == config.model_copy(update={"mirror": None}), path


def test_records_are_those_of_the_root_alone_and_come_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    metadata = Path(".snakemake/metadata")

    def note(path: str, text: str) -> Path:
        place = record_of("metadata", path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(text))
        return place

    own = [note(f"a/data/{'deep/' * 60}{number}", "first") for number in range(3)]
    others = [
        note("ab/data/0", "other"),
        note("a/results/tuning/x.csv", "tuned"),
        note("a/other", "other"),
    ]
    records.pack("a")
    archive = Path("a/provenance.zip").read_bytes()
    records.pack("a")
    assert Path("a/provenance.zip").read_bytes() == archive
    own[0].write_text("changed since")
    later = note("a/data/later", "later")
    records.unpack("a")
    assert own[0].read_text() == "changed since" and later.exists(), "it came from here"
    shutil.rmtree(".snakemake/diagvib")
    records.unpack("a")
    assert own[0].read_text() == '"first"' and not later.exists()
    assert all(path.exists() for path in (*own, *others))
    with zipfile.ZipFile("a/provenance.zip", "w") as file:
        file.writestr(others[0].relative_to(metadata).as_posix(), "stolen")
    records.unpack("a")
    assert others[0].read_text() == '"other"' and not own[0].exists()


def test_what_is_published_of_it(copied, tmp_path, monkeypatch):
    monkeypatch.chdir(copied)
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from publish import publish

    about = publish(Path(ROOT), tmp_path / "shown")
    assert about["runs"] == about["expected"] == 8 and about["training_hours"] == 0, (
        "it took seconds"
    )
    shown = {path.name for path in (tmp_path / "shown").iterdir()}
    assert {
        "about.json",
        "config.yaml",
        "dvc.lock",
        "p_matrix.csv",
    } <= shown and "report.html" not in shown
    assert "p_matrix_zgo_tiny.png" in shown
    assert "whac_a_mole.csv" not in shown, "it has no rows"
    flip_a_bit(copied / RUN)
    with pytest.raises(DiagvibError, match="changed since it was recorded"):
        publish(Path(ROOT), tmp_path / "shown")
    with pytest.raises(DiagvibError, match=r"nowhere/dvc.lock: no such file"):
        publish(Path("nowhere"), tmp_path / "shown")


def test_a_root_with_spaces_is_run_by_dvc_and_one_that_was_moved_is_made_again(copied, monkeypatch):
    """Without records nothing says that what is there was made with the settings that are asked
    for."""
    moved = "moved there"
    (copied / ROOT).rename(copied / moved)
    planned = ["-n", "--config", f"root={moved}"]
    jobs = {"prepare": 2, "draw": 2, "render": 2, "train": 4}
    jobs |= dict.fromkeys(("tabulate", "plot", "all"), 1)
    assert count(toy.toy(copied, *planned)) == jobs
    assert "Nothing to be done" in toy.toy(copied, *planned, "--rerun-triggers", "mtime")
    monkeypatch.chdir(copied)
    write_root_stages(moved, load_config("toy.yaml").model_copy(update={"root": moved}))
    stages = yaml.safe_load(Path(moved, "dvc.yaml").read_text())["stages"]
    command = shlex.split(stages["train"]["cmd"])
    assert command[-3:] == [f"{moved}/config.yaml", "--", "runs"]


def test_a_root_behind_a_link_has_no_ledger(copied, tmp_path, monkeypatch):
    """git adds nothing beyond a link, and DVC fails where one leads out of the repository."""
    monkeypatch.chdir(copied)
    linked = f"{ROOT}/data"
    assert why_no_ledger(ROOT) is None
    Path(linked).rename(tmp_path / "disk")
    Path(linked).symlink_to(tmp_path / "disk")
    Path(ROOT, "dvc.lock").unlink()
    with pytest.raises(DiagvibError, match=f"{linked} is a link, which DVC and git do not follow"):
        record(ROOT, config=load_config("toy.yaml"))
