"""Code that was shown to compute the same: no line without its toy run, and none for other bytes."""

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import BIN, REPOSITORY, refused
from diagvib.provenance import code
from diagvib.provenance.code import COLUMNS, EQUAL_CODE, read_equal_code
from diagvib.provenance.expected import ExpectedJobs
from diagvib.provenance.finished import differing
from diagvib.provenance.rerun_reasons import reasons
from diagvib.settings.resolve import load_config
from toy import copy_of_the_repository, count, environment, toy

A, B, C, BYTES = (letter * 64 for letter in "abc1")
LINE = {
    "old": A, "new": B, "job": "train root/results/runs/a/b/c/sha256.json", "commit": "1.0",
    "old_bytes": BYTES, "new_bytes": BYTES,
}  # fmt: skip


def table(path: Path, *lines: dict) -> Path:
    rows = [",".join(COLUMNS), *(",".join(line.values()) for line in lines)]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_every_shipped_line_has_its_toy_run():
    digests = [row["old"] for row in read_equal_code(EQUAL_CODE)]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    "mistakes", [{"job": ""}, {"new_bytes": C}, {"old_bytes": "", "new_bytes": ""}, {"new": "x"}, {"new": A}]
)  # fmt: skip
def test_a_line_without_its_toy_run_is_refused(tmp_path, mistakes):
    path = table(tmp_path / "equal.csv", LINE)
    assert [row["old"] for row in read_equal_code(path)] == [A]
    table(
        path,
        LINE,
        {**LINE, "old": C, **mistakes} if mistakes != {"new": A} else {**LINE, **mistakes},
    )
    with refused(r"equal.csv: line \d: .*equal_code.py"):
        read_equal_code(path)


def test_lines_are_followed_where_provenance_is_compared(tmp_path, monkeypatch):
    path = table(tmp_path / "equal.csv", LINE, {**LINE, "old": B, "new": C})
    monkeypatch.setattr(code, "EQUAL_CODE", path)
    code.equal_digests.cache_clear()
    try:
        assert not differing(
            {"code": A, "made_from": {"code": B}}, {"code": C, "made_from": {"code": C}}
        )
        assert differing({"code": C}, {"code": "d" * 64}) == ["code"]
    finally:
        code.equal_digests.cache_clear()


def test_records_of_earlier_versions_count(tmp_path):
    """Their parameters have the settings themselves, not the name of a file with them."""
    jobs = ExpectedJobs(load_config(overrides=[f"root={tmp_path}"]))
    output = tmp_path / "p_matrix.csv"
    output.touch()
    job = SimpleNamespace(output=[str(output)], rule=SimpleNamespace(name="tabulate"), wildcards={})
    settings, code = jobs.settings("tabulate").text(), repr(A)
    parameters = [repr(jobs.settings_file("tabulate", None, None)), code]

    def why(*recorded: str) -> list[str]:
        return [reason for reason, _ in reasons(jobs, job, parameters, lambda path: [*recorded])]

    assert why(*parameters) == why(repr(settings), code) == []
    other = ["other settings or code than in the record"]
    assert why(repr(settings.replace("1332", "7")), code) == why(repr(settings), repr(B)) == other


def show(old: Path, new: Path, config: Path) -> str:
    script = [BIN / "python", REPOSITORY / "benchmarks/equal_code.py", old, new, config]
    options = ["--commit", "older", "--target", "recipes"]
    options += ["--table", new / "src/diagvib/provenance/equal_code.csv"]
    process = subprocess.run(
        [*script, *options],
        env=environment(REPOSITORY),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_what_code_of_the_same_bytes_made_is_kept(tmp_path):
    """A function that other modules name gets another name; then a number changes, too."""
    (tmp_path / "old").mkdir()
    old = copy_of_the_repository(tmp_path / "old")
    (old / "toy.yaml").write_text(
        "root: toy\nsources: embedded\nstudies: [zso]\nbindings: [hue]\nsamples: 1\n"
        "counts: {train: 60, val: 12, id: 12, ood: 12}\nbaselines: [small_cnn]\n"
    )
    toy(old, "--", "recipes")
    assert count(toy(old, "-n", "--", "recipes")) == {}
    new = shutil.copytree(old, tmp_path / "new")
    for path in (new / "src/diagvib").rglob("*.py"):
        text = path.read_text()
        if "named_generator" in text:
            path.write_text(re.sub(r"\bnamed_generator\b", "generator_of", text))
    jobs = count(toy(new, "-n", "--", "recipes"))
    assert {"prepare", "draw"} & set(jobs)
    assert show(old, new, new / "toy.yaml") == ""
    assert count(toy(new, "-n", "--", "recipes")) == {}
    path = new / "src/diagvib/foundation/seeding.py"
    before = path.read_text()
    path.write_text(before.replace(".encode()).digest()", '.encode() + b"1").digest()'))
    assert path.read_text() != before
    assert (
        "draw toy" not in (message := show(old, new, new / "toy.yaml")) or "other bytes" in message
    )
    assert count(toy(new, "-n", "--", "recipes"))["draw"] == 1
