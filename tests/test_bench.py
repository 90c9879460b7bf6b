"""The benchmark command writes a file that others can read; no figure is judged here."""

import os
import runpy
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from diagvib.bench import rendering as bench
from diagvib.bench import training as bench_train_module
from diagvib.bench.training import GpuUse, bench_train
from diagvib.foundation.devices import has_bf16
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json
from diagvib.operations.rates import measured_rates
from warm import programs

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def tiny(monkeypatch):
    """Everything once, in this process, on one core."""
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "YARDSTICK_IMAGES", 3)
    monkeypatch.setattr(
        bench, "_in_child", lambda function, cores, *arguments: function(cores, *arguments)
    )
    monkeypatch.setattr(bench, "_cores", lambda: [0])

    class Here(bench._Yardstick):
        def __init__(self, processes):
            self.processes = processes

        def __call__(self):
            bench._render_plainly(3)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(bench, "_Yardstick", Here)


def test_a_tiny_run_writes_every_row(tiny, tmp_path, capsys):
    path = bench.bench_render("cpu", 40, tmp_path / "results")
    assert path.name.startswith("render-cpu-")
    assert list(path.parent.iterdir()) == [path]
    result = read_json(path)
    assert {"kind", "device", "date", "command", "machine", "versions", "rows", "checks"} <= set(
        result
    )
    assert [row["what"] for row in result["rows"]] == [
        "render",
        "render, plain torch",
        "render to Parquet",
        "read from Parquet",
        "yardstick",
    ]
    for row in result["rows"]:
        assert row["images_per_second"] == pytest.approx(row["images"] / row["seconds"])
        assert row["bytes_per_second"] == pytest.approx(row["images_per_second"] * 49152)
        assert row["ratio_to_yardstick"] > 0
    assert result["checks"] and all(check["holds"] for check in result["checks"])
    assert result["machine"]["cores"] >= 1 and result["versions"]["torch"]
    shown = capsys.readouterr().out
    assert "render to Parquet" in shown and str(path) in shown


def test_without_scikit_image_the_yardstick_is_left_out(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    rows = read_json(bench.bench_render("cpu", 10, tmp_path))["rows"]
    assert [row["what"] for row in rows] == [
        "render",
        "render, plain torch",
        "render to Parquet",
        "read from Parquet",
    ]
    assert all(row["ratio_to_yardstick"] is None for row in rows)
    assert "no yardstick: scikit-image is not installed" in capsys.readouterr().out


def test_it_needs_nothing_that_a_bare_machine_lacks():
    """Importing it must not import what only the other stages need."""
    heavy = "jsonschema pooch snakemake pandas skimage matplotlib torchvision"
    code = f"import sys, diagvib.bench.rendering; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_golden_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "GOLDEN", tmp_path / "none.npz")
    with pytest.raises(
        DiagvibError, match="none.npz: no such file; run the benchmark from a checkout"
    ):
        bench.bench_render("cpu", 10, tmp_path)


@pytest.fixture
def one_process(monkeypatch):
    """Every figure in this process, and once; the separate processes it is otherwise measured in
    take seconds to start."""
    monkeypatch.setattr(
        bench_train_module,
        "_at_once",
        lambda function, processes, *arguments: [function(*arguments)],
    )
    monkeypatch.setattr(bench_train_module, "machine", lambda: {"cores": 1})


def test_two_processes_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_train_module, "machine", lambda: {"cores": 2})
    rows = read_json(bench_train(["small_cnn"], "cpu", images=64, out=tmp_path))["rows"]
    assert [(row["processes"], row["images"]) for row in rows] == [
        (1, 64),
        (1, 64),
        (2, 128),
        (2, 128),
    ]


def test_training_is_measured_as_the_plan_reads_it(one_process, tmp_path, capsys):
    path = bench_train(["small_cnn"], "cpu", [8, 4], images=16, out=tmp_path)
    rates, precision = (
        measured_rates("cpu", tmp_path),
        "bf16" if has_bf16(torch.device("cpu")) else "fp32",
    )
    assert rates.files == (path.name,)
    rows = read_json(path)["rows"]
    assert {row["what"] for row in rows} == {"train small_cnn", "predict small_cnn"}
    assert {row["batch_size"] for row in rows} == {8, 4}
    assert all(row["images_per_second"] > 0 and row["peak_memory_mib"] > 0 for row in rows)
    assert {row["full_run"] for row in rows} == {"computed"} and {
        row["precision"] for row in rows
    } == {precision}
    train, test = rows[0]["images_per_second"], rows[1]["images_per_second"]
    assert rows[0]["later_run_seconds"] == pytest.approx(
        30 * (43_740 / train + 8_748 / test) + 20_000 / test, rel=0.01
    )
    assert "computed from the rates" in capsys.readouterr().out


def test_phases_and_random_weights_are_named(one_process, tmp_path):
    rows = read_json(bench_train(["vae", "resnet50_in"], "cpu", [4], images=4, out=tmp_path))[
        "rows"
    ]
    assert [row["what"] for row in rows] == [
        "train vae encode",
        "train vae classify",
        "predict vae",
        "train resnet50_in",
        "predict resnet50_in",
    ]
    assert ["weights" in row for row in rows] == [False, False, False, True, True]
    assert measured_rates("cpu", tmp_path).phases("vae") == ["classify", "encode"]


def test_a_full_run_is_trained_from_image_files(one_process, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_train_module, "FULL_RUN", {"train": 24, "val": 9, "test": 12})
    monkeypatch.setattr(bench_train_module, "EPOCHS", 2)
    rows = read_json(
        bench_train(["small_cnn"], "cpu", [8], images=16, full_run=True, out=tmp_path)
    )["rows"]
    assert {row["full_run"] for row in rows} == {"measured"}
    assert all(row["full_run_seconds"] > 0 and row["later_run_seconds"] > 0 for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == [
        f"train-cpu-{date.today().isoformat()}.json"
    ]


def test_what_nvidia_smi_says_is_averaged(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 90\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="u")
    )
    with GpuUse(torch.device("cuda")) as use:
        while not use._samples:
            time.sleep(0.01)
    assert use.percent == 90
    with GpuUse(torch.device("cpu")) as use:
        pass
    assert use.percent is None


def test_an_unknown_baseline_is_named(tmp_path):
    with pytest.raises(DiagvibError, match="unknown baseline 'resnet81'; did you mean resnet18"):
        bench_train(["resnet81"], "cpu", out=tmp_path)


@pytest.mark.parametrize(
    "script", sorted((REPOSITORY / "benchmarks").glob("*.py")), ids=lambda path: path.stem
)
def test_every_script_can_be_asked_how_it_is_used(script):
    done = subprocess.run([programs() / "python", script, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Usage" in done.stdout, done.stderr


@pytest.mark.skipif(not has_bf16(torch.device("cpu")), reason="the script compares bf16 steps")
def test_variants_of_a_training_step_are_compared_with_the_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    main = runpy.run_path(str(REPOSITORY / "benchmarks" / "cpu_training.py"))["main"]
    main(
        ["small_cnn:16:4:8"],
        ["in one pass", "and bf16 weights", "fp32 masters", "evaluation batch 64"],
        1,
        tmp_path,
    )
    result = read_json(tmp_path / f"cpu-training-cpu-{date.today().isoformat()}.json")
    assert [row["identical"] for row in result["rows"]] == [True, True, True, None]
    assert all(row["ratio"] == row["ratios"][0] > 0 for row in result["rows"])
    assert result["profiles"]["small_cnn:16:4:8"]["convolution_backward"] > 0
