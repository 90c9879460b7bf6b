"""The runs of a job in processes of their own: as many as fit, the same bytes, and each for itself."""

import gc
import shutil
import signal
import subprocess
import time
import weakref
from pathlib import Path

import psutil
import pytest

from conftest import BIN, refused
from diagvib import stages
from diagvib.foundation import slots
from diagvib.foundation.errors import DeviceFailed, DiagvibError
from diagvib.foundation.files import read_json
from diagvib.foundation.parallel import in_turn, side_by_side
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from failing_jobs import full_gpu, refuse, refuse_in_our_words, stop
from toy import environment, hashes, images_here

JOB = ("small_cnn", "zgo", "hue-shape")
CHANGES = [
    "sources=embedded",
    "image_size=64",
    "samples=3",
    "studies=[zgo, zso]",
    "bindings=[hue-shape, hue]",
    "baselines=[small_cnn]",
    "counts={train: 64, val: 18, id: 18, ood: 18}",
    "training.max_epochs=3",
    "tuning={study: zso, factors: [hue], batch_sizes: [16, 32], learning_rates: [1.0e-3], samples: [0, 1]}",
]


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """A root with images. Not to be changed."""
    root = tmp_path_factory.mktemp("images")
    images_here(load_config(None, CHANGES), root)
    return root


@pytest.fixture(scope="module")
def undisturbed(images, tmp_path_factory) -> Path:
    """A root with the runs and the tuning of one process."""
    return trained(images, tmp_path_factory.mktemp("alone"), 1)


@pytest.fixture
def root(images, tmp_path) -> Path:
    return shutil.copytree(images, tmp_path / "root")


def trained(images: Path, root: Path, processes: int) -> Path:
    config = load_config(None, CHANGES)
    layout = Layout(shutil.copytree(images, root / "root"))
    stages.train(
        layout, stage_settings(config, "train", JOB[1], JOB[0]), *JOB, "cpu", processes=processes
    )
    job = stage_settings(config, "tune", None, JOB[0])
    stages.tune(layout, job, JOB[0], "cpu", processes=processes)
    return layout.root


def test_results_do_not_depend_on_how_many_run_at_once(images, undisturbed, tmp_path, capfd):
    joint_root = trained(images, tmp_path, 2)
    assert hashes(joint_root) == hashes(undisturbed)
    message = capfd.readouterr().err
    for sample in range(3):
        assert f"{'/'.join(JOB)}/{sample}: id " in message
    assert "zso/hue/1, batch 16, lr 0.001" in message
    assert not [*(joint_root / "data/checkpoints").rglob("*.pt")]


@pytest.mark.parametrize("processes", [1, 3])
def test_a_failure_leaves_the_others(root, processes):
    spoilt = root / "data/images/zgo/hue-shape/1/val.parquet"
    spoilt.write_bytes(spoilt.read_bytes() + b"x")
    config = load_config(None, CHANGES)
    job = stage_settings(config, "train", JOB[1], JOB[0])
    with refused(r"1/val\.parquet: damaged") as error:
        stages.train(Layout(root), job, *JOB, "cpu", processes=processes)
    assert "failed, too" not in str(error.value)
    runs = root / "results/runs/small_cnn/zgo/hue-shape"
    assert sorted(path.parent.name for path in runs.glob("*/run.json")) == ["0", "2"]


def test_killed_at_any_moment_a_job_leaves_no_process_and_continues(root, undisturbed):
    arguments = [part for change in CHANGES for part in ("--set", change)]
    command = [
        *(BIN / "diagvib", "train", *JOB, "--processes", "3", "--device", "cpu", "--root", root),
        *arguments,
    ]
    options = {"env": environment(Path(__file__).parent.parent), "stderr": subprocess.DEVNULL}
    checkpoints = root / "data/checkpoints" / "/".join(JOB)
    job = subprocess.Popen(command, **options)
    while not list(checkpoints.glob("*.pt")):
        assert job.poll() is None
        time.sleep(0.02)
    children = psutil.Process(job.pid).children(recursive=True)
    job.send_signal(signal.SIGKILL)
    job.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    subprocess.run(command, **options, check=True)
    expected = {name: sha for name, sha in hashes(undisturbed).items() if "tuning" not in name}
    assert hashes(root) == expected


@pytest.mark.parametrize("function", [refuse, refuse_in_our_words])
def test_what_does_not_fit_is_tried_again_with_fewer_beside_it(function, tmp_path, capfd):
    side_by_side(function, dict.fromkeys("abcd", tmp_path), 4)
    messages = capfd.readouterr().err
    assert [messages.count(f"again with {limit} at once") for limit in (2, 1)] == [4, 2]
    assert len(list(tmp_path.iterdir())) == 10


def test_a_gpu_without_room_for_one_run_has_failed(capfd):
    with pytest.raises(
        DeviceFailed, match=r"^RuntimeError: CUDA error: out of memory; [ab] failed"
    ):
        side_by_side(full_gpu, dict.fromkeys("ab"), 2)

    def train(_: None) -> None:
        try:
            full_gpu()
        except RuntimeError:
            raise DiagvibError("the GPU's memory is too small") from None

    with pytest.raises(DeviceFailed, match="^the GPU's memory is too small$"):
        in_turn(train, dict.fromkeys("ab"))


def test_a_finished_run_leaves_no_memory_to_the_next():
    class Trainer:
        def __init__(self):
            self.rank = self.__init__  # refers to itself, as by a method that its images call

    trainers: list[weakref.ref] = []

    def train(_: None) -> None:
        assert not [trainer for trainer in trainers if trainer()]
        trainers.append(weakref.ref(Trainer()))

    gc.disable()
    try:
        in_turn(train, dict.fromkeys("abc"))
    finally:
        gc.enable()
    assert len(trainers) == 3


def test_failures_are_named(capfd):
    with pytest.raises(
        DiagvibError, match=r"^(its process was ended|/no/folder).*; \w+ failed, too"
    ):
        side_by_side(stop, {"zero": 0, "one": 1, "two": 2}, 2)
    message = capfd.readouterr().err
    assert "one: failed: its process was ended by SIGKILL" in message
    assert "two: failed: /no/folder: No such file" in message


@pytest.mark.parametrize(
    ("free", "slot", "cores", "reserved", "expected"),
    [
        (140, None, 16, None, 5),
        (140, "33 % of cuda:0 (GPU-1)", 16, "15", 5),
        (36, "50 % of cuda:0", 16, None, 4),
        (140, None, 2, None, 2),
        (140, None, 16, "3", 3),
        (2, None, 16, None, 1),
    ],
)
def test_as_many_as_memory_its_share_and_cores_allow(
    free, slot, cores, reserved, expected, monkeypatch, capfd
):
    monkeypatch.setenv("OMP_NUM_THREADS", reserved or "1")  # which counts in a job of Snakemake
    monkeypatch.delenv(slots.WORKFLOW, raising=False)
    if reserved:
        monkeypatch.setenv(slots.WORKFLOW, "1")
    monkeypatch.setattr(slots, "in_a_process", lambda ask: (free << 30, 140 << 30))
    monkeypatch.setattr(slots, "core_count", lambda: cores)
    monkeypatch.delenv(slots.SLOT, raising=False)
    if slot:
        monkeypatch.setenv(slots.SLOT, slot)
    assert slots.runs_at_once(5, 4 << 30, 1) == expected
    assert f"{expected} of 5 runs at once" in capfd.readouterr().err


def test_one_at_a_time_on_a_gpu_that_others_have_filled(monkeypatch, capfd):
    monkeypatch.setattr(slots, "_gpu_memory", full_gpu)
    assert slots.runs_at_once(5, 0, 1) == 1
    assert "1 of 5 runs at once: the GPU does not say" in capfd.readouterr().err


def test_a_run_records_its_slot(root, monkeypatch):
    monkeypatch.setenv(slots.FOLDER, str(root / "slots"))
    arguments = [part for change in CHANGES for part in ("--set", change)]
    command = [BIN / "diagvib", "train", *JOB, "--gpu-share", "50", "--devices", "cpu,cpu"]
    environment_here = environment(Path(__file__).parent.parent)
    subprocess.run([*command, "--root", root, *arguments], env=environment_here, check=True)
    record = read_json(root / "results/runs" / "/".join(JOB) / "0/run.json")
    assert record["slot"] == "50 % of cpu:0" and record["device"] == "cpu"
