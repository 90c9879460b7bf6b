"""The benchmark scripts write files that others can read; no figure is judged here."""

import sys
from datetime import date
from pathlib import Path

import pytest
import torch

from diagvib.foundation.devices import has_bf16
from diagvib.foundation.files import read_json
from diagvib.operations.rates import measured_rates

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import render  # noqa: E402
import train  # noqa: E402


def written(folder: Path, kind: str) -> dict:
    (path,) = folder.iterdir()
    assert path.name == f"{kind}-cpu-{date.today().isoformat()}.json"
    return read_json(path)


def test_rendering_is_measured_and_checked(tmp_path, monkeypatch):
    """In this process, once, and without the yardstick's own processes."""
    monkeypatch.setattr(render, "ROUNDS", 1)
    monkeypatch.setattr(render, "_in_child", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(render, "cores", lambda: [0])
    monkeypatch.setattr(render, "find_spec", lambda name: None)
    render.main("cpu", 40, tmp_path / "results")
    result = written(tmp_path / "results", "render")
    assert {"command", "machine", "versions", "load_before"} <= set(result)
    assert [row["what"] for row in result["rows"]] == [
        "render",
        "render to Parquet",
        "read from Parquet",
    ]
    for row in result["rows"]:
        assert row["images_per_second"] == pytest.approx(row["images"] / row["seconds"])
        assert row["bytes_per_second"] == pytest.approx(row["images_per_second"] * 49152)
    assert result["checks"] and all(check["holds"] for check in result["checks"])


@pytest.fixture
def one_process(monkeypatch):
    """Everything in this process, and once."""
    monkeypatch.setattr(train, "_at_once", lambda function, n, *arguments: [function(*arguments)])
    monkeypatch.setattr(train, "machine", lambda: {"cores": 1})


def test_training_is_measured_as_the_plan_reads_it(one_process, tmp_path):
    train.main(["small_cnn"], "cpu", [8, 4], images=16, out=tmp_path)
    rows, rates = written(tmp_path, "train")["rows"], measured_rates("cpu", tmp_path)
    assert {(row["what"], row["batch_size"]) for row in rows} == {
        (what, size) for what in ("train small_cnn", "predict small_cnn") for size in (8, 4)
    }
    assert {row["full_run"] for row in rows} == {"computed"}
    assert {row["precision"] for row in rows} == {
        "bf16" if has_bf16(torch.device("cpu")) else "fp32"
    }
    speed, test = rows[0]["images_per_second"], rows[1]["images_per_second"]
    assert rows[0]["later_run_seconds"] == pytest.approx(
        30 * (43_740 / speed + 8_748 / test) + 20_000 / test, rel=0.01
    )
    assert rates.best("train small_cnn", batch_size=8).batch_size == 8


def test_phases_and_random_weights_are_named(one_process, tmp_path):
    train.main(["vae", "resnet50_in"], "cpu", [4], images=4, out=tmp_path)
    rows = written(tmp_path, "train")["rows"]
    assert [(row["what"], "weights" in row) for row in rows] == [
        ("train vae encode", False),
        ("train vae classify", False),
        ("predict vae", False),
        ("train resnet50_in", True),
        ("predict resnet50_in", True),
    ]
    assert measured_rates("cpu", tmp_path).phases("vae") == [
        "train vae classify",
        "train vae encode",
    ]


def test_a_full_run_is_trained_from_image_files(one_process, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "FULL_RUN", {"train": 24, "val": 9, "test": 12})
    monkeypatch.setattr(train, "EPOCHS", 2)
    train.main(["small_cnn"], "cpu", [8], images=16, full_run=True, out=tmp_path)
    rows = written(tmp_path, "train")["rows"]
    assert {row["full_run"] for row in rows} == {"measured"}
    assert all(row["full_run_seconds"] > 0 and row["later_run_seconds"] > 0 for row in rows)
