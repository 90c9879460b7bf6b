"""What a machine with a GPU does in a quarter of an hour, tried on the CPU: the next machine goes on
from the files that came back, and ends with the same predictions."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RUNS = "small_cnn/zgo/shape-hue\nsmall_cnn/zgo/shape-hue/0-seed1 root=seeds seeds=2\n"
OVERRIDES = (
    "sources=embedded counts.train=90 counts.val=45 counts.id=36 counts.ood=36 image_size=64 "
    "training.max_epochs=4 samples=2"
)
MEASUREMENTS = ("cuda_tests", "render", "train", "encode")
OUT_OF_TIME, DEADLINE_SECONDS = 75, 240


@pytest.fixture
def runs_list(tmp_path) -> Path:
    path = tmp_path / "runs.txt"
    path.write_text(RUNS)
    return path


@pytest.fixture
def machine(tmp_path, runs_list):
    """Starts benchmarks/on_a_gpu.sh with a folder of results whose measurements are there already."""

    def start(results: Path) -> subprocess.Popen:
        results.mkdir(exist_ok=True)
        if not (log := results / "devices.csv").exists():
            rows = [f"2026-01-01T00:00:00Z,cpu,{name},0,1" for name in MEASUREMENTS]
            log.write_text("\n".join(["ended,device,step,status,seconds", *rows, ""]))
        settings = {
            "DEVICE": "cpu",
            "RUNS": str(runs_list),
            "PROCESSES": "1",
            "SMOKE_SECONDS": "300",
        }
        environment = os.environ | settings | {"OVERRIDES": OVERRIDES}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        command = ["sh", BENCHMARKS / "on_a_gpu.sh", tmp_path, results]
        return subprocess.Popen(command, env=environment)

    return start


def end_its_time(script: subprocess.Popen, results: Path) -> None:
    """Let the time of the protocol's step end as soon as a run has a checkpoint."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any(results.glob("work/protocol/data/checkpoints/**/*.pt")):
        assert script.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    for process in psutil.Process(script.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            if process.cmdline()[1:2] == ["benchmarks/gpu_jobs.py"]:
                process.send_signal(signal.SIGALRM)


def predictions(work: Path) -> dict[str, bytes]:
    paths = work.glob("*/results/runs/**/predictions.parquet")
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.integration
def test_another_machine_goes_on_from_the_files_that_came_back(machine, runs_list, tmp_path):
    earlier, later, uninterrupted = (tmp_path / name for name in ("earlier", "later", "whole"))
    end_its_time(script := machine(earlier), earlier)
    assert script.wait(DEADLINE_SECONDS) == 0
    steps = pd.read_csv(earlier / "devices.csv").set_index("step")["status"]
    assert steps["protocol"] == OUT_OF_TIME and steps["smoke"] == 0
    assert len(predictions(earlier / "work")) < 3

    later.mkdir()
    for path in earlier.glob("*.*"):
        shutil.copy(path, later)
    assert machine(later).wait(DEADLINE_SECONDS) == 0
    changes = [text for change in OVERRIDES.split() for text in ("--set", change)]
    command = [sys.executable, BENCHMARKS / "gpu_jobs.py", runs_list, tmp_path, uninterrupted]
    subprocess.run([*command, "--device", "cpu", *changes], check=True)
    assert len(predictions(later / "work")) == 3
    assert predictions(later / "work") == predictions(uninterrupted)

    shutil.rmtree(later / "work")
    tables = tmp_path / "tables"
    command = [sys.executable, BENCHMARKS / "add_runs.py", later, "--folder", tables]
    subprocess.run([*command, "--runs", runs_list, *changes], check=True)
    assert len(pd.read_csv(tables / "runs.csv")) == 2
    assert list(pd.read_csv(tables / "seeds.csv")["seed"]) == [1]
