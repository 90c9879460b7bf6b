"""Two results folders compared: what is the same, what differs, what only one has."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import synthetic_runs
from conftest import refused
from diagvib.cli import app
from diagvib.commands.compare import compare_results, compare_sentence, write_comparison
from diagvib.foundation.files import read_json, write_json
from synthetic_images import write_dataset
from synthetic_runs import PER_CLASS, expected_runs, run_of, write_run
from test_runs import train

EXPECTED = expected_runs(["small_cnn"], ["zso", "zgo"], ["shape-hue", "hue-shape"], samples=3)


@pytest.fixture(scope="module")
def same_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same")
    for run in EXPECTED:
        write_run(folder / "a" / "runs", run)
    return shutil.copytree(folder / "a", folder / "b").parent


@pytest.fixture
def folders(same_runs, tmp_path):
    shutil.copytree(same_runs, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a", tmp_path / "b"


def cell(table, **keys):
    for key, value in {"group": "ood", **keys}.items():
        table = table[table[key] == value]
    return table.iloc[0]


def test_a_difference_is_paired_by_sample_and_one_that_chance_explains_is_not_called_the_same(
    folders, monkeypatch
):
    defaults, tables = synthetic_runs.right, []
    # Of each class, so many images more are right in the samples of B. The last differ only by
    # rounding, which is no spread to be judged by.
    for additions in ((4, 5, 4), (1, -1, 0), (4, 4, 4)):
        monkeypatch.setattr(
            synthetic_runs,
            "right",
            lambda run, group, additions=additions: (
                defaults(run, group) + additions[run["sample"]] * (group == "ood")
            ),
        )
        for run in EXPECTED:
            if run["binding"] == "shape-hue":
                write_run(folders[1] / "runs", run)
        tables.append(compare_results(*folders))
        if additions == (4, 5, 4):
            back = cell(compare_results(*folders[::-1]), target="shape", cue="hue")
    assert back["verdict"] == "differs" and back["difference"] < 0
    rows = [cell(table, target="shape", cue="hue") for table in tables]
    assert [row["verdict"] for row in rows] == ["differs", "cannot tell", "cannot tell"]
    assert cell(tables[0], target="hue", cue="shape")["verdict"] == "same"
    gain = np.array([4, 5, 4]) / PER_CLASS
    # t with 2 degrees of freedom: 4.3027
    half = 4.3027 * gain.std(ddof=1) / 3**0.5
    case = [rows[0][name] - gain.mean() for name in ("difference", "low", "high")]
    assert case == pytest.approx([0, -half, half], abs=1e-5)
    assert "5 same, 1 differs" in compare_sentence(tables[0])


def test_samples_that_only_one_folder_has_decide_nothing(folders):
    a, b = (folder / "runs/small_cnn/zgo" for folder in folders)
    write_run(folders[1] / "runs", run_of("resnet18", "zgo", "shape-hue", 0))
    shutil.rmtree(a / "shape-hue/0")
    shutil.rmtree(b / "shape-hue/1")
    shutil.rmtree(b / "shape-hue/2")
    table = compare_results(*folders)
    rows = cell(table, target="shape", cue="hue", baseline="small_cnn")
    assert rows["verdict"] == "no common sample"
    only = cell(table, baseline="resnet18")
    assert only["verdict"] == "only B" and only["n"] == 0 and np.isnan(only["difference"])


def test_a_damaged_run_is_named(folders):
    (folders[0] / "runs/small_cnn/zgo/shape-hue/1/run.json").write_text("{")
    table = compare_results(*folders)
    assert cell(table, target="shape", cue="hue")["n"] == 2
    assert "Left out, A: small_cnn, zgo: shape-hue sample 1: damaged (run.json" in compare_sentence(
        table
    )


def test_what_the_runs_were_made_with_is_compared_too(folders, tmp_path):
    third = shutil.copytree(folders[1], tmp_path / "third")
    for path in third.rglob("run.json"):
        output = json.loads(path.read_text())
        output["settings"] = output.get("settings", {}) | {"batch_size": 7, "code": "f" * 64}
        path.write_text(json.dumps(output))
    for kind in ("csv", "md", "html"):
        out = tmp_path / f"page.{kind}"
        args = ["compare", *map(str, [*folders, third]), "--out", str(out)]
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0 and "6 cells: 6 same." in result.output
        assert out.read_text().count("small_cnn") >= 2 * 6
    page = out.read_text()
    _, _, last = page.partition("made with, where it differs")
    assert page.count("where it differs") == 1 and "A and B" in page and "A and C" in page
    assert '<th scope="row">small_cnn</th><td>settings.batch_size</td>' in last


def test_runs_that_were_trained_again_elsewhere_say_where(folders, tmp_path, monkeypatch):
    """And are not taken for runs of other settings."""
    others = shutil.copytree(folders[1], tmp_path / "others")
    assert "Of 12 runs with the same settings, images and code in A and B, all have" in repeats(
        *folders
    )
    defaults = synthetic_runs.right
    monkeypatch.setattr(
        synthetic_runs, "right", lambda run, group: defaults(run, group) + (group == "ood")
    )
    for run in EXPECTED[-3:]:
        write_run(folders[1] / "runs", run)
    text = (
        "3 have other predictions, with accuracies up to 5.0 points apart: 3 trained where nothing"
    )
    assert text in repeats(*folders)
    for path in folders[1].rglob("run.json"):
        record(path, device="NVIDIA H200", precision="bf16", versions={"torch": "2.12.0"})
    for path in folders[0].rglob("run.json"):
        record(path, machine="AMD EPYC, 2 cores", versions={"torch": "2.11.0"})
    trained = (
        "3 trained on AMD EPYC (A) and NVIDIA H200 (B), in fp32 (A) and bf16 (B), with torch 2.11.0"
    )
    assert trained in repeats(*folders)
    for path in others.rglob("run.json"):
        record(path, settings={"batch_size": 7})
    assert repeats(folders[0], others) == ""


def test_real_runs_repeat_to_the_byte_but_with_other_threads(tmp_path):
    write_dataset(tmp_path / "images", "zgo", "hue-shape", 0)
    for folder, threads in (("one", 1), ("again", 1), ("two", 2)):
        out = f"{folder}/small_cnn/zgo/hue-shape"
        train(tmp_path, out, samples=[0], threads=threads, precision="fp32")
    assert "all have the same" in repeats(tmp_path / "one", tmp_path / "again")
    text = repeats(tmp_path / "one", tmp_path / "two")
    assert "1 has other predictions" in text and "1 trained with threads 1 (A) and 2 (B)" in text


def repeats(*folders) -> str:
    return compare_results(*folders).attrs["repeats"]


def record(path, **changes) -> None:
    write_json(path, read_json(path) | changes)


def test_a_folder_without_runs_and_an_unknown_ending_are_readable_errors(folders, tmp_path):
    with refused("holds no runs"):
        compare_results(folders[0], tmp_path / "nowhere")
    with refused(r"use \.csv, \.md, \.html"):
        write_comparison({"B": compare_results(*folders)}, tmp_path / "table.pdf")
