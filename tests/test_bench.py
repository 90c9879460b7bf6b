"""The benchmark command writes a file that others can read; no figure is judged here."""

import pytest

from diagvib import bench
from diagvib.bench_train import bench_train
from diagvib.errors import DiagvibError
from diagvib.files import read_json
from diagvib.plan import measured_rates


@pytest.fixture
def tiny(monkeypatch):
    """Everything once, in this process, on one core."""
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "YARDSTICK_IMAGES", 3)
    monkeypatch.setattr(bench, "_in_child", lambda function, cores, *arguments: function(cores, *arguments))
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
    assert {"kind", "device", "date", "command", "machine", "versions", "rows", "checks"} <= set(result)
    assert [row["what"] for row in result["rows"]] == [
        "render", "render, plain torch", "render to Parquet", "read from Parquet", "yardstick"]
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
        "render", "render, plain torch", "render to Parquet", "read from Parquet"]
    assert all(row["ratio_to_yardstick"] is None for row in rows)
    assert "no yardstick: scikit-image is not installed" in capsys.readouterr().out


def test_it_needs_nothing_that_a_bare_machine_lacks():
    """Importing it must not draw in what only the other stages need."""
    import subprocess
    import sys
    heavy = "jsonschema pooch snakemake pandas skimage matplotlib torchvision"
    code = f"import sys, diagvib.bench; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_golden_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "GOLDEN", tmp_path / "none.npz")
    with pytest.raises(DiagvibError, match="none.npz: no such file; run the benchmark from a checkout"):
        bench.bench_render("cpu", 10, tmp_path)


def test_training_is_measured_as_the_plan_reads_it(tmp_path):
    path = bench_train(["small_cnn"], "cpu", batch_size=8, images=16, out=tmp_path)
    rates, origin = measured_rates("cpu", tmp_path)
    assert origin == [path.name] and set(rates) == {"train small_cnn", "predict small_cnn"}
    assert all(rate > 0 for rate in rates.values())
    assert {row["batch_size"] for row in read_json(path)["rows"]} == {8}
