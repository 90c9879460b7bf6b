"""Jobs run on machines that share no disk with the one that runs the workflow: what they read and make
travels by way of a store."""

import json
import shlex
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from conftest import BIN, refused
from diagvib.foundation.files import file_sha256
from diagvib.foundation.slots import FOLDER, Device, slot_devices
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config
from diagvib.workflow.gpu_shares import gpu_shares
from diagvib.workflow.machines import STORE, Store, run_on
from toy import (
    call,
    command,
    copy_of_the_repository,
    count,
    environment,
    hashes,
    images_here,
    run_here,
    write,
)

CONFIG = """
root: toy
sources: embedded
studies: [zgo]
bindings: [hue-shape, shape-hue]
samples: 2
counts: {train: 64, val: 18, id: 18, ood: 18}
image_size: 64
images: render
baselines: [small_cnn]
training: {max_epochs: 2}
"""


@pytest.fixture
def slots(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "slots"))


@pytest.mark.integration
def test_a_grid_runs_on_two_machines_by_way_of_an_s3_server(own_disk, tmp_path, slots):
    """Each machine sees a folder of its own where the workflow has its repository."""
    from s3 import BUCKET, s3_server

    for name in ("workflow", "first", "second"):
        (tmp_path / name).mkdir()
        copy_of_the_repository(tmp_path / name)
    workflow = tmp_path / "workflow"
    for name in ("first", "second"):
        reached(own_disk, workflow, name, tmp_path / name)
    devices = ["sh first", "sh second"]
    write(workflow, {"toy.yaml": f"{CONFIG}devices: {json.dumps(devices)}\n"})
    with s3_server() as s3:
        clients = {**s3.environment, STORE: f"s3://{BUCKET}/jobs"}
        toy = partial(call, workflow, *command(), "--configfile=toy.yaml", **clients)
        toy("tables")
        undisturbed = run_here(workflow / "toy.yaml", root=tmp_path / "undisturbed").root
        assert hashes(workflow / "toy") == hashes(undisturbed)
        assert count(toy("--dry-run", "tables")) == {}
        for name in ("first", "second"):  # which has trained one of the two, and drawn nothing
            assert len([*(tmp_path / name).glob("toy/results/runs/*/*/*/sha256.json")]) == 1
            assert not (tmp_path / name / "toy/results/tables").exists()
        # A machine with other code says so, and the job goes on where the code is the same.
        network = tmp_path / "first/src/diagvib/models/small_cnn.py"
        network.write_text(network.read_text().replace("convolution(3, 32", "convolution(3, 33"))
        shutil.rmtree(workflow / "toy/results")
        message = toy("runs", fails=True)
        assert "train is not the same code as where the workflow runs" in message
        assert len([*(workflow / "toy/results/runs").glob("*/*/*/sha256.json")]) == 1


@pytest.fixture
def machine(own_disk, repository) -> Path:
    """The folder that another machine has where this one has the repository; `sh reach` runs a line
    of shell there."""
    (folder := repository.with_name("elsewhere")).mkdir()
    copy_of_the_repository(folder)
    return reached(own_disk, repository, "reach", folder)


def reached(own_disk: list[str], repository: Path, script: str, folder: Path) -> Path:
    """Make a script that runs a line of shell as on a machine which has `folder` where this one has
    the repository."""
    mounted = f"mount --bind '{folder}' '{repository}'; cd /; exec sh -c \"$0\""
    write(repository, {script: f'exec {shlex.join([*own_disk, mounted])} "$1"'})
    return folder


def test_who_stops_a_job_stops_it_elsewhere_and_its_next_try_continues_it(
    machine, repository, slots
):
    write(repository, {"toy.yaml": CONFIG})
    config = load_config(repository / "toy.yaml", ["training.max_epochs=2000"])
    images_here(config, repository / "toy")
    settings = stage_settings(config, "train", "zgo", "small_cnn").text()
    write(repository, {"job.json": settings})
    job = ["train", "small_cnn", "zgo", "hue-shape", "--settings", "job.json", "--root", "toy"]
    store = {STORE: str(repository.with_name("store"))}
    where = ["--gpu-share", "100", "--devices", "sh reach"]

    def started() -> tuple[psutil.Popen, list[psutil.Process]]:
        """The job here, and the process that trains there, once that has finished an epoch."""
        checkpoints = machine / "toy/data/checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        process = psutil.Popen(
            [BIN / "diagvib", *job, *where],
            cwd=repository,
            env=environment(repository) | store,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not [*checkpoints.rglob("*.pt")]:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        children = process.children(recursive=True)
        return process, [child for child in children if "small_cnn" in child.cmdline()]

    no_job = [*job, "--gpu-share", "100", "--devices", "true nothing"]
    message = call(repository, BIN / "diagvib", *no_job, fails=True, **store)
    assert "true nothing: the job did not run there to its end (code 0)" in message
    assert "true nothing:0: jobs go to other devices for 10 minutes" in message
    process, training = started()
    training[0].kill()
    assert "sh reach: the job ended there with code" in process.communicate(timeout=120)[1]
    assert [*(repository / "toy/data/checkpoints").rglob("*.pt")]
    assert not [*(repository / "toy/results").rglob("sha256.json")]
    process, training = started()
    process.kill()
    assert not psutil.wait_procs(training, timeout=120)[1]


def test_a_machine_may_end_before_it_reads_its_job(tmp_path, monkeypatch):
    class EndsFirst(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.wait()

    write(tmp_path, {"toy.yaml": CONFIG, "job.json": ""})
    job = stage_settings(load_config(tmp_path / "toy.yaml"), "train", "zgo", "small_cnn")
    names = {"baseline": "small_cnn", "study": "zgo", "binding": "hue-shape"}
    monkeypatch.setattr(subprocess, "Popen", EndsFirst)
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    with refused(r"true nothing: the job did not run there to its end \(code 0\)"):
        run_on("true nothing", Layout(tmp_path), job, names, tmp_path / "job.json", ["train"])


def test_a_store_says_which_file_is_damaged_and_completes_what_was_stopped(tmp_path):
    store, path = Store(str(tmp_path / "store")), tmp_path / "file"
    path.write_text("as it was")
    store.put(path, digest := file_sha256(path))
    (tmp_path / "store" / digest).write_text("stopped")
    store.put(path, digest)
    store.get(digest, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "as it was"
    (tmp_path / "store" / digest).write_text("As it was")
    with refused(f"{digest}: damaged; delete it in the store"):
        store.get(digest, tmp_path / "other copy")
    (tmp_path / "store" / digest).unlink()
    with refused(f"{STORE}: .*/{digest}: FileNotFoundError"):
        store.get(digest, tmp_path / "other copy")
    assert not (tmp_path / "other copy").exists()


def test_a_store_that_cannot_be_opened_is_named():
    with refused(f"{STORE}: nowhere://bucket: "):
        Store("nowhere://bucket")


def test_a_machine_may_be_listed_for_each_job_that_it_takes(tmp_path):
    names = ["ssh gpu1", "cpu", "ssh gpu1"]
    assert slot_devices(names) == [
        Device("ssh gpu1:0", machine="ssh gpu1"),
        Device("cpu:0"),
        Device("ssh gpu1:1", machine="ssh gpu1"),
    ]
    write(tmp_path, {"toy.yaml": f"{CONFIG}device: cuda\ndevices: [ssh gpu1, ssh gpu2]\n"})
    shares = gpu_shares(load_config(tmp_path / "toy.yaml"))
    assert (len(shares.devices), shares.train, shares.draws) == (2, 100, 0)
    with refused("devices.*a GPU by its number.*like `ssh gpu1`"):
        load_config(tmp_path / "toy.yaml", ["devices=[gpu1]"])
