"""What a machine with a GPU does in a quarter of an hour, tried on the CPU: the next machine goes on
from the files that came back, and ends with the same predictions."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import add_runs
import gpu_jobs
import pandas as pd
import psutil
import pytest

from conftest import refused

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


def trial(results: Path, overrides: str = "") -> Path:
    """The folder of a trial on the CPU."""
    text = f"cpu {overrides}\n".encode()
    checksum = subprocess.run("cksum", input=text, stdout=subprocess.PIPE, check=True).stdout
    folder = results / f"trial-{checksum.split()[0].decode()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def machine(tmp_path, runs_list):
    """Starts benchmarks/on_a_gpu.sh with a folder of results whose measurements are there already."""

    def start(results: Path) -> subprocess.Popen:
        if not (log := trial(results, OVERRIDES) / "devices.csv").exists():
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
    uninterrupted, earlier, later = tmp_path / "whole", tmp_path / "earlier", tmp_path / "later"
    script, earlier = machine(earlier), trial(earlier, OVERRIDES)
    end_its_time(script, earlier)
    assert script.wait(DEADLINE_SECONDS) == 0
    steps = pd.read_csv(earlier / "devices.csv").set_index("step")["status"]
    assert steps["protocol"] == OUT_OF_TIME and steps["smoke"] == 0
    assert len(predictions(earlier / "work")) < 3

    for path in earlier.glob("*.*"):
        shutil.copy(path, trial(later, OVERRIDES))
    script, later = machine(later), trial(later, OVERRIDES)
    assert script.wait(DEADLINE_SECONDS) == 0
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


@pytest.fixture
def without_python(tmp_path) -> Callable[..., int]:
    """Runs benchmarks/on_a_gpu.sh with these variables, and programs of these texts: the one for
    Python does nothing; returns its exit status."""

    def start(results: Path, variables: dict[str, str] | None = None, **programs: str) -> int:
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        for name, text in {"python3": "echo cpu", **programs}.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
        environment = {"DEVICE": "cpu", "PATH": f"{folder}:{os.environ['PATH']}"}
        environment |= variables or {}
        command = ["sh", BENCHMARKS / "on_a_gpu.sh", tmp_path, results]
        return subprocess.run(command, env=environment).returncode

    return start


RUN, CHECKPOINT = (
    f"work/protocol/{path}" for path in ("results/runs/{}/run.json", "data/checkpoints/{}.pt")
)


def written(folder: Path, name: str, text: str, seconds: int) -> Path:
    """A file that was changed at a time."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (seconds, seconds))
    return path


def archive(folder: Path, name: str, *files: str) -> None:
    """As it comes back, in one part; the files are then gone."""
    subprocess.run(["tar", "-czf", folder / f"{name}.tgz.aa", *files], cwd=folder, check=True)
    for file in files:
        (folder / file).unlink()


def content(folder: Path, name: str) -> dict[str, str]:
    """The texts of an archive's files."""
    parts = b"".join(path.read_bytes() for path in sorted(folder.glob(f"{name}.tgz.*")))
    with tarfile.open(fileobj=io.BytesIO(parts)) as files:
        return {member.name: files.extractfile(member).read().decode() for member in files}


def brought_back(folder: Path) -> None:
    """The archives of another machine."""
    for name in (RUN.format("a"), RUN.format("b"), CHECKPOINT.format("c"), CHECKPOINT.format("d")):
        written(folder, name, "theirs", 2_000)
    archive(folder, "finished", RUN.format("a"), RUN.format("b"))
    archive(folder, "unfinished", CHECKPOINT.format("c"), CHECKPOINT.format("d"))


def test_what_comes_back_is_joined_with_the_work_that_is_there(without_python, tmp_path):
    folder = trial(tmp_path / "results")
    brought_back(folder)
    for name, seconds in ((RUN.format("b"), 1_000), (RUN.format("e"), 1_000)):
        written(folder, name, "ours", seconds)
    for name, seconds in ((CHECKPOINT.format("c"), 1_000), (CHECKPOINT.format("d"), 3_000)):
        written(folder, name, "ours", seconds)
    assert without_python(tmp_path / "results") == 0
    runs = content(folder, "finished")
    assert runs == {RUN.format("a"): "theirs", RUN.format("b"): "ours", RUN.format("e"): "ours"}
    checkpoints = content(folder, "unfinished")
    assert checkpoints == {CHECKPOINT.format("c"): "theirs", CHECKPOINT.format("d"): "ours"}
    assert not [*folder.glob("*.new*"), *folder.glob("unpacking")]


def test_an_archive_stays_until_a_new_one_is_whole(without_python, tmp_path):
    folder = trial(tmp_path / "results")
    brought_back(folder)
    before = content(folder, "finished"), content(folder, "unfinished")
    full_disk = 'for prefix; do :; done; head -c 10 >"${prefix}aa"; exit 1'
    assert without_python(tmp_path / "results", split=full_disk) == 2
    assert (content(folder, "finished"), content(folder, "unfinished")) == before
    assert not [*folder.glob("*.new*")]
    part = folder / "finished.tgz.aa"
    part.write_bytes(cut := part.read_bytes()[:-10])
    shutil.rmtree(folder / "work")
    assert without_python(tmp_path / "results") == 1
    assert part.read_bytes() == cut


def test_a_trial_does_nothing_instead_of_a_gpu(without_python, tmp_path):
    results = tmp_path / "results"
    log = trial(results) / "devices.csv"
    log.write_text(
        "ended,device,step,status,seconds\n2026-01-01T00:00:00Z,NVIDIA H200,render,0,1\n"
    )
    for _ in range(2):
        assert without_python(results) == 0
    steps = pd.read_csv(log).value_counts(["device", "step"])
    assert steps["cpu", "render"] == steps["NVIDIA H200", "render"] == 1
    assert [*results.iterdir()] == [trial(results)]


@pytest.mark.parametrize(
    ("failing", "processes"), [("nothing", None), ("-c *", "10"), ("*smoke.list *", "10")]
)
def test_runs_share_the_gpu_by_the_service_if_it_works(
    without_python, tmp_path, failing, processes
):
    """It ends before the measurements, and where something fails with it."""
    log = tmp_path / "log"
    python3 = (
        f'echo "$*" >>{log}\n[ -z "$CUDA_MPS_PIPE_DIRECTORY" ] || case "$*" in '
        f"({failing.replace(' ', chr(92) + ' ')}) exit 1 ;; esac\necho H200"
    )
    service = f"[ $# -gt 0 ] && echo begun >>{log} || cat >>{log}"
    programs = {"python3": python3, "nvidia-cuda-mps-control": service}
    assert without_python(tmp_path / "results", {"DEVICE": "cuda"}, **programs) == 0
    lines = log.read_text().splitlines()
    assert lines.count("begun") == lines.count("quit") == 1
    assert lines.index("quit") < next(n for n, line in enumerate(lines) if "-m pytest" in line)
    words = next(line for line in lines if "protocol_runs.txt" in line).split()
    assert (
        words[words.index("--processes") + 1] == processes
        if processes
        else "--processes" not in words
    )


def test_a_shorter_time_is_for_runs(without_python, tmp_path):
    """What would not end is not begun; a second call on the same machine needs no test."""
    log = tmp_path / "log"
    for _ in range(2):
        python3 = f'echo "$*" >>{log}\necho cpu'
        assert without_python(tmp_path / "results", {"MINUTES": "1"}, python3=python3) == 0
    lines = log.read_text().splitlines()
    seconds = [int(line.split("--seconds ")[1].split()[0]) for line in lines if "gpu_jobs" in line]
    assert len(seconds) == 3 and max(seconds[1:]) <= 20
    assert sum("render.py" in line for line in lines) == 1
    assert not any("test_cuda.py" in line for line in lines)


def test_checkpoints_that_are_too_large_stay(without_python, tmp_path):
    folder = trial(tmp_path / "results")
    large = folder / CHECKPOINT.format("a")
    for name, size in ((CHECKPOINT.format("a"), 2 << 20), (RUN.format("b"), 1)):
        written(folder, name, "", 1_000).write_bytes(bytes(size))
    written(folder, RUN.format("b").replace("run.json", ".run.json.tmp"), "cut off", 1_000)
    assert without_python(tmp_path / "results", {"UNFINISHED_MIB": "1"}) == 0
    assert large.exists() and not [*folder.glob("unfinished.*")]
    assert [*content(folder, "finished")] == [RUN.format("b")]


def test_runs_that_come_back_later_are_added_to_earlier_ones(tmp_path):
    brought_back(tmp_path)
    written(tmp_path, RUN.format("b"), "ours", 1_000)
    work = add_runs.unpacked(tmp_path)
    texts = [(work.parent / RUN.format(name)).read_text() for name in "ab"]
    assert texts == ["theirs", "ours"]
    (tmp_path / "finished.tgz.aa").write_bytes(b"cut off")
    with refused("finished.tgz.aa: not unpacked"):
        add_runs.unpacked(tmp_path)


def test_a_link_to_sources_that_have_moved_is_replaced(runs_list, tmp_path):
    link = tmp_path / "root/protocol/data/prepared/digits"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "gone")
    lines = gpu_jobs.read_lines(runs_list)
    gpu_jobs.prepare(lines, ("sources=embedded",), tmp_path, tmp_path / "root")
    assert link.exists()
