"""Devices are shared by file locks: between jobs, Snakemakes and users, and whatever is killed."""

import errno
import fcntl
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from conftest import BIN, refused
from diagvib.cli import app
from diagvib.foundation import devices, gpus
from diagvib.foundation.files import read_json
from diagvib.foundation.slots import (
    FOLDER,
    SLOT,
    WORKFLOW,
    Device,
    note_failure,
    slot_devices,
    take_slot,
)
from diagvib.settings.resolve import load_config
from diagvib.workflow.gpu_shares import gpu_shares
from slot_holder import HOLD
from toy import copy_of_the_repository, environment, write

# Its jobs say so if they use a slot while another job does.
GRID = """
root: toy
sources: embedded
studies: [zgo]
bindings: [hue-shape, hue-position, hue-scale, hue-texture, hue-lightness, shape-hue]
samples: 1
counts: {train: 18, val: 9, id: 9, ood: 9}
image_size: 64
images: render
baselines: [alone]
baselines_from: [lab/baselines.yaml]
training: {max_epochs: 1}
devices: [cpu, cpu, cpu, cpu]
"""
SINGLE_JOB = """
import atexit, functools, os, pathlib, time
from torch import nn

@functools.cache
def note():
    slot = os.environ["DIAGVIB_SLOT"]
    busy = pathlib.Path(os.environ["DIAGVIB_SLOTS"], "busy " + slot.split("of ")[1])
    with busy.open("a") as file:
        file.write(f"begin {os.getpid()}\\n")
    atexit.register(lambda: busy.open("a").write(f"end {os.getpid()}\\n"))
    time.sleep(3)

def alone(n_classes, image_size):
    note()
    return nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, n_classes))
"""
BASELINE = """
alone: {model: "lab.models:alone", method: erm, optimiser: {name: adam, lr: 1.0e-3}, batch_size: 9, origin: mine}
"""
LISTS = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb-2)
  MIG 3g.20gb     Device  0: (UUID: MIG-cccc-3)
  MIG 1c.3g.20gb  Device  1: (UUID: MIG-dddd-4)
GPU 2: NVIDIA H200 (UUID: GPU-eeee-5)
"""
MEMORY = "GPU-aaaa-1, 40960\nGPU-bbbb-2, 40960\nGPU-eeee-5, 143771\n"


def waits(job: subprocess.Popen) -> bool:
    """Whether a job names no device within two seconds."""
    return not select.select([job.stdout], [], [], 2)[0]


def test_jobs_take_the_least_used_device_and_wait_where_none_has_room(holder):
    jobs = [holder(60).stdout.readline() for _ in range(2)]
    assert jobs == ["cpu:0\n", "cpu:1\n"]
    smaller = holder(30)
    assert smaller.stdout.readline() == "cpu:0\n"
    assert holder(40).stdout.readline() == "cpu:1\n"
    waiting = holder(30)
    assert waits(waiting)
    smaller.kill()  # the kernel frees what it had
    assert waiting.stdout.readline() == "cpu:0\n"


def test_no_smaller_job_overtakes_one_that_waits_unless_that_is_killed(holder):
    assert holder(60, "cpu").stdout.readline() == "cpu:0\n"
    larger = holder(60, "cpu", stderr=subprocess.PIPE)
    assert "waits until 60 %" in larger.stderr.readline()
    smaller = holder(30, "cpu", stderr=subprocess.PIPE)
    assert "waits until 30 %" in smaller.stderr.readline()
    larger.kill()
    assert smaller.stdout.readline() == "cpu:0\n"


def test_none_that_may_use_other_devices_overtakes_one_that_waits(holder):
    jobs = [holder(60) for _ in range(2)]
    assert sorted(job.stdout.readline() for job in jobs) == ["cpu:0\n", "cpu:1\n"]
    whole = holder(100, "cpu", stderr=subprocess.PIPE)
    assert "waits until 100 % of cpu:0" in whole.stderr.readline()
    assert holder(30).stdout.readline() == "cpu:1\n"
    waiting = holder(30)
    assert waits(waiting)
    for job in jobs:
        job.kill()
    assert whole.stdout.readline() == "cpu:0\n"
    assert waiting.stdout.readline() == "cpu:1\n"


def test_a_device_that_has_failed_gets_no_job_while_there_are_others(holder, tmp_path):
    note_failure(Device("cpu:0"))
    assert holder(30).stdout.readline() == "cpu:1\n"
    full = holder(70)
    assert full.stdout.readline() == "cpu:1\n"
    waiting = holder(30)
    assert waits(waiting)
    assert holder(30, "cpu").stdout.readline() == "cpu:0\n"  # has no other
    long_ago = time.time() - 601
    os.utime(tmp_path / "slots/cpu-0.failed", (long_ago, long_ago))
    assert waiting.stdout.readline() == "cpu:0\n"


def test_what_tidies_old_files_passes_over_the_locks_of_a_long_job(holder, tmp_path):
    job = holder(60)
    assert job.stdout.readline() == "cpu:0\n"
    folder = os.open(tmp_path / "slots", os.O_RDONLY)
    with pytest.raises(BlockingIOError):  # as systemd-tmpfiles asks
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    job.kill()
    job.wait()
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)


def test_a_job_ends_with_its_snakemake(holder, monkeypatch):
    snakemake = subprocess.Popen(["sleep", "600"])
    monkeypatch.setenv(WORKFLOW, str(snakemake.pid))
    job = holder(100)
    assert job.stdout.readline() == "cpu:0\n"
    snakemake.kill()
    snakemake.wait()
    assert job.wait(timeout=60) == 1


def test_users_share_locks(holder, tmp_path):
    strict = os.umask(0o077)
    try:
        assert holder(60, "cpu").stdout.readline() == "cpu:0\n"
    finally:
        os.umask(strict)
    folder = tmp_path / "slots"
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o666}


def test_locks_that_nobody_may_write(holder, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    job = holder(100, stderr=subprocess.PIPE)
    assert f"set {FOLDER} to a folder of your own" in job.communicate()[1]


def list_gpus(monkeypatch, lists: str = LISTS, memory: str = MEMORY) -> None:
    """Have the driver list these GPUs, all of which are visible."""
    monkeypatch.setattr(gpus, "_nvidia_smi", lambda *words: lists if "-L" in words else memory)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aaaa-1", "MIG-cccc-3", "MIG-dddd-4", "GPU-eeee-5"]),
        ("2,0", ["GPU-eeee-5", "GPU-aaaa-1"]),
        ("1", ["MIG-cccc-3"]),
        ("GPU-ee,MIG-dddd-4", ["GPU-eeee-5", "MIG-dddd-4"]),
        ("0,7,2", ["GPU-aaaa-1"]),
        ("0,GPU-aaaa-1,0,2", ["GPU-aaaa-1", "GPU-eeee-5"]),
        ("MIG-ffff-6,0", ["MIG-ffff-6", "GPU-aaaa-1"]),  # which this list does not know
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_cuda_would_see_and_each_slice_is_one(visible, expected, monkeypatch):
    list_gpus(monkeypatch)
    if visible is not None:
        monkeypatch.setenv(gpus.VISIBLE, visible)
    assert gpus.visible_gpus() == expected
    assert [device.address for device in slot_devices(None)] == expected


def test_where_the_driver_lists_nothing_numbers_are_addresses(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "_nvidia_smi", lambda *words: "")
    monkeypatch.setattr(gpus, "_FILES", tmp_path)
    monkeypatch.setenv(gpus.VISIBLE, "2,3")
    gpu_1, gpu_0 = slot_devices(["cuda:1", "cuda:0"])
    assert (gpu_1.address, gpu_0.address, gpu_0.file) == ("3", "2", "gpu-2")
    with refused(r"devices: there is no cuda:2; .* may use 2 GPUs"):
        slot_devices(["cuda:2"])


@pytest.mark.parametrize(
    ("devices", "changes", "share"),
    [
        ("[cuda:3]", [], 33),  # 140 GiB: three jobs of five processes
        ("[cuda:3]", ["processes=1"], 6),
        ("all", [], 100),  # as many as fit into the smallest
        ("[cpu, cpu]", [], 100),
    ],
)
def test_as_many_jobs_share_a_gpu_as_fill_it(devices, changes, share, monkeypatch):
    list_gpus(monkeypatch)
    monkeypatch.setattr("diagvib.workflow.gpu_shares.likely_gpu", lambda name: True)
    config = load_config(None, [f"devices={devices}", "studies=[zso]", *changes])
    assert gpu_shares(config).train == share


@pytest.mark.parametrize(
    ("mib", "cores", "expected"),
    [
        ("11264", 32, (100, 1, 1)),  # as many as fit
        ("143771", 32, (33, 4, 4)),  # as leave four cores for each GPU
        ("143771", 4, (6, 1, 1)),
        ("143771", 256, (33, 5, 15)),  # as many as a job has runs, and a tuning trainings
        ("unknown", 32, (100, 4, 4)),
    ],
)
def test_a_job_reserves_no_more_than_a_gpus_part_of_the_cores(mib, cores, expected, monkeypatch):
    names = [f"GPU-aaaa-{number}" for number in range(8)]
    lists = "".join(f"GPU {n}: Any (UUID: {name})\n" for n, name in enumerate(names))
    memory = "".join(f"{name}, {mib}\n" for name in names)
    list_gpus(monkeypatch, lists, memory)
    config = load_config(None, ["device=cuda", "studies=[zso]"])
    assert gpu_shares(config, cores)[1:] == expected


def test_devices_that_are_all_the_cpu_leave_gpus_alone():
    assert load_config(None, ["devices=[cpu, cpu]"]).device == "cpu"
    assert load_config(None, ["devices=[cuda:0]"]).device == "auto"


@pytest.fixture
def driver(monkeypatch, tmp_path) -> Path:
    """A folder for the files of a driver, which are there only if a test makes them. One of its
    programs is the first."""
    files = {name: tmp_path / name for name in ("nvidiactl", "version", "dxg", "gpus")}
    monkeypatch.setattr(devices, "_GPUS", files["nvidiactl"])
    monkeypatch.setattr(devices, "_DRIVERS", (files["version"], files["dxg"]))
    monkeypatch.setattr(gpus, "_FILES", files["gpus"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["nvidiactl"], True),
        (["version"], False),  # a container that sees the driver, but no GPU
        (["version", "bin/nvidia-smi"], True),
        (["dxg", "bin/nvidia-smi"], True),  # WSL2
        (["dxg"], False),  # a GPU of another make there
    ],
)
def test_what_tells_of_a_gpu(files, found, driver, monkeypatch):
    write(driver, dict.fromkeys(files, "#!/bin/sh"))
    for path in driver.glob("bin/*"):
        path.chmod(0o755)
    assert devices.likely_gpu("auto") == found
    assert len(gpus.visible_gpus()) == found


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles"])
def test_hidden_gpus_are_none(visible, driver, monkeypatch):
    (driver / "nvidiactl").touch()
    config = load_config(None, ["device=auto"])
    assert gpu_shares(config).alone == 100
    monkeypatch.setenv(gpus.VISIBLE, visible)
    assert gpu_shares(config) == ([], 0, 1, 1)
    assert devices.likely_gpu("cuda")


def test_without_its_program_the_driver_lists_gpus_in_files(driver):
    (driver / "gpus").mkdir()
    known = "Model: \t\t A100\nGPU UUID: \t GPU-0a-1\nBus Type: \t PCIe\n"
    unknown = "GPU UUID: \t GPU-????????-????\n"
    files = {"0000:07:00.0/information": known, "0000:0f:00.0/information": unknown}
    write(driver / "gpus", files)
    assert gpus.visible_gpus() == ["GPU-0a-1", "1"]


def test_a_gpu_that_a_scheduler_keeps_for_others_is_none(driver, monkeypatch):
    monkeypatch.setattr(gpus, "_NODES", driver)
    text = "GPU UUID: \t GPU-{}\nDevice Minor: \t {}\n"
    files = {f"{n}/information": text.format(f"0{n}", n) for n in range(3)}
    (driver / "gpus").mkdir()
    write(driver / "gpus", files)
    write(driver, {"nvidiactl": "", "nvidia0": "", "nvidia1": ""})  # the third is made when used
    allowed = {driver / "nvidia1"}
    monkeypatch.setattr("os.access", lambda path, mode: path in allowed)
    assert gpus.visible_gpus() == ["GPU-01", "GPU-02"]
    (driver / "nvidia2").touch()
    allowed.clear()
    assert gpus.visible_gpus() == []
    assert gpu_shares(load_config(None, ["device=auto"])).devices == []


def test_a_gpu_that_a_scheduler_has_given_and_torch_does_not_see(driver, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv(SLOT, raising=False)
    monkeypatch.setenv(gpus.VISIBLE, "1")
    assert devices.resolve_device("auto").type == "cpu"  # a machine without a driver
    (driver / "version").touch()
    with refused("does not see the GPU that CUDA_VISIBLE_DEVICES=1 gives to this process"):
        devices.resolve_device("auto")
    monkeypatch.setenv(gpus.VISIBLE, "NoDevFiles")
    assert devices.resolve_device("auto").type == "cpu"


def test_a_slot_on_a_gpu_that_torch_does_not_see(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv(SLOT, "33 % of cuda:0 (GPU-aaaa-1)")
    with refused(
        r"device: torch \S+ does not see the GPU of which 33 % of cuda:0 .* `device: cpu`"
    ):
        devices.resolve_device("auto")
    assert devices.resolve_device("cpu").type == "cpu"


def test_on_the_cpu_a_job_takes_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "_nvidia_smi", lambda *words: LISTS)
    monkeypatch.setenv(FOLDER, str(tmp_path / "slots"))
    job = ["train", "alexnet", "zgo", "hue-shape", "--gpu-share", "33", "--device", "cpu"]
    with refused(r"train\.parquet: no such file"):
        app([*job, "--root", str(tmp_path / "none")], standalone_mode=False)
    assert not (tmp_path / "slots").exists()


def test_images_are_drawn_here_and_without_a_gpu_outside_all_slots(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "slots"))
    job = ["render", "zgo", "hue-shape", "--gpu-share", "100", "--root", str(tmp_path / "none")]
    with refused("recipes.*no such file"):
        app([*job, "--devices", "ssh gpu1"], standalone_mode=False)
    assert not (tmp_path / "slots").exists()
    with refused("recipes.*no such file"):
        app([*job, "--devices", "ssh gpu1,cpu"], standalone_mode=False)
    assert (tmp_path / "slots/cpu-0").exists()


def test_a_disk_without_locks(monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr("fcntl.lockf", refuse)
    with refused(f"has no locks .*; set {FOLDER} to a folder on a disk of this machine"):
        take_slot(100, slot_devices(["cpu"]))


def test_a_kernel_or_container_without_pidfd_open(holder, monkeypatch):
    monkeypatch.setenv(WORKFLOW, str(os.getpid()))
    without = "import errno, os\ndef refuse(_): raise OSError(errno.ENOSYS, 'not there')\n"
    assert (
        holder(100, code=f"{without}os.pidfd_open = refuse\n{HOLD}").stdout.readline() == "cpu:0\n"
    )


def test_a_device_and_other_devices_contradict_each_other():
    config = load_config(None, ["devices=[cpu]", "device=cuda"])
    with refused("devices: cpu and device: cuda contradict"):
        gpu_shares(config)
    with refused("devices"):
        load_config(None, ["devices=[cuda:0, cuda:0]"])


@pytest.mark.integration
def test_two_snakemakes_use_every_slot_and_none_twice_and_a_kill_frees_it(tmp_path, monkeypatch):
    slots = tmp_path / "slots"
    monkeypatch.setenv(FOLDER, str(slots))
    clones = [clone(tmp_path / name) for name in ("a", "b")]
    snakemakes = [*map(start, clones)]
    wait_for(lambda: len(trainings(clones[0])) >= 2 or snakemakes[0].poll() is not None)
    trainings(clones[0])[0].kill()
    snakemakes[1].send_signal(signal.SIGKILL)
    snakemakes[1].wait()
    wait_for(lambda: not trainings(clones[1]))
    assert start(clones[1], "--unlock").wait() == 0
    snakemakes[1] = start(clones[1])
    assert snakemakes[0].wait(timeout=1800) != 0  # one job was killed
    assert snakemakes[1].wait(timeout=1800) == 0
    assert start(clones[0]).wait(timeout=1800) == 0
    runs = [path for folder in clones for path in folder.glob("toy/results/runs/**/run.json")]
    assert len(runs) == 12
    assert {read_json(path)["slot"] for path in runs} == {f"100 % of cpu:{n}" for n in range(4)}
    for busy in slots.glob("busy *"):
        assert not twice(busy.read_text().splitlines()), busy.read_text()


def clone(folder: Path) -> Path:
    folder.mkdir()
    copy_of_the_repository(folder)
    write(folder, {"toy.yaml": GRID, "lab/models.py": SINGLE_JOB, "lab/baselines.yaml": BASELINE})
    return folder


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    command = [BIN / "snakemake", "runs", "--cores", "4", "--configfile", "toy.yaml", *arguments]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdout=log, stderr=log
        )


def trainings(folder: Path) -> list[psutil.Process]:
    """The training processes of a clone."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.info["cwd"] == str(folder) and "train" in (process.info["cmdline"] or [])
    ]


def wait_for(condition) -> None:
    until = time.monotonic() + 900
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def twice(lines: list[str]) -> bool:
    """Whether a process began to use a slot while another one, not killed since, used it."""
    ends = {line.split()[1] for line in lines if line.startswith("end")}
    users: list[str] = []
    for line in lines:
        event, process = line.split()
        if event == "end":
            users.remove(process)
        elif users:
            return True
        elif process in ends:  # others were killed
            users.append(process)
    return False
