"""The train stage from image files to run folders, including when it is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from conftest import refused
from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata, read_table
from diagvib.images.datasets import ImageFiles
from diagvib.settings.baselines import complete, load_settings
from diagvib.settings.layout import Run
from diagvib.studies.scarcity import absent_combinations
from diagvib.training import callbacks
from diagvib.training import run as runs
from diagvib.training.batches import Scaling
from diagvib.training.doubts import FEW_IMAGES, noisy_selection
from diagvib.training.job import Folders, Job
from diagvib.training.load import load, load_batches, load_test
from diagvib.training.protocol import Protocol
from diagvib.training.run import train_runs
from diagvib.training.trainer import Trainer
from synthetic_images import write_dataset

SETTINGS = {**load_settings("small_cnn"), "batch_size": 16}
TRAINING = {"max_epochs": 3, "patience": None, "seed": 1, "precision": "bf16", "threads": 1}


def train(
    root,
    out,
    study="zgo",
    binding="hue-shape",
    samples=(0, 1),
    *,
    settings=SETTINGS,
    device="cpu",
    curves=None,
    **training,
):
    protocol, images = Protocol(**{**TRAINING, **training}), ImageFiles(root / "images")
    train_runs(
        Job(settings, protocol, resolve_device(device), images),
        [Run("small_cnn", study, binding, sample) for sample in samples],
        Folders(root / out, root / "checkpoints", curves),
    )
    return root / out


def contents(folder, samples=(0, 1)):
    return {
        (sample, name): (folder / str(sample) / name).read_bytes()
        for sample in samples
        for name in ("predictions.parquet", "metrics.json", "history.jsonl")
    }


def history_of(run):
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


@pytest.fixture
def root(tmp_path):
    for sample in (0, 1):
        write_dataset(tmp_path / "images", "zgo", "hue-shape", sample)
    return tmp_path


def test_run_folder(root, capsys):
    run = train(root, "runs", samples=[0]) / "0"
    metrics, predictions = read_json(run / "metrics.json"), read_table(run / "predictions.parquet")
    expected = {"baseline": "small_cnn", "study": "zgo", "binding": "hue-shape", "sample": 0}
    expected |= {"target": "hue", "cue": "shape", "sources": "embedded", "comparable": False}
    assert expected.items() <= metrics.items()
    assert {name: group["n"] for name, group in metrics["groups"].items()} == {"id": 12, "ood": 12}
    calls = ImageFiles(root / "images").table(0, "train").to_pandas()
    counts = (calls["hue"] + "-" + calls["shape"]).value_counts().to_dict()
    assert metrics["trained"] == counts == read_metadata(run / "predictions.parquet")["trained"]
    frame = predictions.to_pandas()
    ood = frame[frame.group == "ood"]
    per_class = (ood.prediction == ood.hue).groupby(ood.hue).mean()
    assert metrics["groups"]["ood"]["per_class"] == per_class.to_dict()
    assert metrics["groups"]["ood"]["accuracy"] == pytest.approx(per_class.mean())
    history = history_of(run)
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert min(row["val_loss"] for row in history) == metrics["val_loss"]
    facts = read_json(run / "run.json")
    assert facts["settings"] == SETTINGS and facts["device"] == "cpu"
    assert not (root / "checkpoints").exists(), "a job that succeeded leaves no checkpoint"
    assert capsys.readouterr().err.startswith("small_cnn/zgo/hue-shape/0: id ")


def test_accuracy_on_the_test_groups_in_every_epoch(root):
    """Only the history differs from a run that does not track; its selected epoch has the run's own
    accuracies."""
    out = train(root, "tracked", samples=[0], track_test=True)
    history, metrics = history_of(out / "0"), read_json(out / "0/metrics.json")
    selected = history[metrics["selected_epoch"] - 1]
    tracked, plain = contents(out, [0]), contents(train(root, "plain", samples=[0]), [0])
    for group in ("id", "ood"):
        assert selected[f"{group}_accuracy"] == metrics["groups"][group]["accuracy"]
        for row in history:
            del row[f"{group}_accuracy"]
    assert history == history_of(root / "plain/0")
    assert {name for name in plain if tracked[name] != plain[name]} == {(0, "history.jsonl")}


def test_a_run_that_is_there_is_kept_and_one_that_differs_in_anything_is_not(root, capsys):
    out = train(root, "runs", samples=[0])
    first_bytes = (out / "0/run.json").read_bytes()
    entire = contents(train(root, "runs"))
    assert (out / "0/run.json").read_bytes() == first_bytes
    retained = "0: kept, because it was made with the same settings, images and code"
    assert capsys.readouterr().out.count(retained) == 1
    assert contents(train(root, "other order", samples=(1, 0))) == entire
    history = out / "0/history.jsonl"
    for change in (history.unlink, lambda: (out / "0/run.json").write_text("{")):
        change()
        train(root, "runs")
        assert contents(out) == entire
        output = capsys.readouterr().out
        assert "0: kept" not in output and "1: kept" in output
    train(root, "runs", seed=2)
    assert "kept" not in capsys.readouterr().out and contents(out) != entire
    write_dataset(root / "images", "zgo", "hue-shape", 1, counts=(48, 16, 36))
    train(root, "runs", seed=2)
    output = capsys.readouterr().out
    assert "0: kept" in output and "1: kept" not in output


EDITED = """
from pathlib import Path
from torch import nn

def net(n_classes, image_size):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, n_classes))

Path(__file__).write_text(Path(__file__).read_text() + "MORE = 1\\n")
"""


def test_code_that_changes_while_it_is_loaded_makes_no_run(root, monkeypatch):
    """A module that edits itself stands for a user who saves it just then."""
    monkeypatch.chdir(root)
    Path("edited.py").write_text(EDITED)
    entry = {"model": "edited:net", "method": "erm", "batch_size": 16, "origin": "test"}
    settings = complete({**entry, "optimiser": {"name": "adam", "lr": 1e-3}})
    with refused("hue-shape/0: the code changed while it was loaded"):
        train(root, "runs", samples=[0], settings=settings)
    assert not list((root / "runs").rglob("run.json"))
    train(root, "runs", samples=[0], settings=settings)


def test_another_version_of_a_package_is_named_and_trains_nothing(root, capsys):
    mark = train(root, "runs", samples=[0]) / "0/run.json"
    provenance = read_json(mark)
    now, provenance["versions"]["torch"] = provenance["versions"]["torch"], "1.0"
    mark.write_text(json.dumps(provenance))
    train(root, "runs", samples=[0])
    assert f"images and code, but with torch 1.0 (now {now})\n" in capsys.readouterr().out


def test_what_is_trained_anew_is_not_there_until_it_is_whole(root, monkeypatch):
    """And what was trained until then is not continued with other settings."""
    out = train(root, "runs", samples=[0])

    def full_disk(*_):
        raise DiagvibError("the disk is full")

    monkeypatch.setattr(runs, "write_results", full_disk)
    with refused("disk is full"):
        train(root, "runs", samples=[0], seed=2)
    assert not (out / "0/run.json").exists() and (root / "checkpoints/0.pt").exists()


def test_no_weights_of_an_earlier_training_stay(root):
    (train(root, "runs", samples=[0]) / "0/weights.pt").write_bytes(b"of another training")
    assert not (train(root, "runs", samples=[0], seed=2) / "0/weights.pt").exists()


# In a process of its own: a training that ends with SIGKILL at step 14, in the second sample's
# second epoch.
KILLED = """
    import os, pathlib, signal, sys
    import test_runs
    from contextlib import contextmanager
    from diagvib.training.callbacks import Callback

    class Killer(Callback):
        steps = 0
        def on_step(self, images):
            Killer.steps += 1
            if Killer.steps == 3 * 3 + 5:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def killer(name, curves):
        yield Killer()

    from diagvib.training import fit
    fit.training_callback = killer
    test_runs.train(pathlib.Path(sys.argv[1]), "runs")
    """


def test_killed_job_continues_to_the_same_bytes(root, monkeypatch, capsys):
    """With other threads outside; then the same command again. Other code starts over."""
    folder_ = Path(__file__).parent
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(root)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "3",
            "PYTHONPATH": f"{folder_}:{folder_.parent / 'src'}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (root / "runs" / "1").exists()
    state, trained, fit = (root / "checkpoints/1.pt").read_bytes(), [], Trainer.fit

    def counted(self, *arguments):
        trained.append(fit(self, *arguments))
        return trained[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", counted)
        continued = contents(train(root, "runs"))
    assert [len(item.timings) for item in trained] == [2], "epochs two and three of sample 1"
    assert not (root / "checkpoints").exists()
    assert contents(train(root, "whole")) == continued
    (root / "checkpoints").mkdir()
    (root / "checkpoints/1.pt").write_bytes(state)
    monkeypatch.setattr("diagvib.training.job.code_for", lambda *_: "0" * 64)
    train(root, "other", samples=[1])
    assert "made with other settings, images, code or packages" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "value"), [("study", "zso"), ("sources_digest", "other")])
def test_files_that_do_not_belong_together(root, key, value):
    write_dataset(root / "images", "zgo", "hue-shape", 1, {key: value})
    with refused(rf"1/test.parquet: {key} is .* render again"):
        train(root, "runs")
    assert not (root / "runs").exists(), "checked before anything is trained"


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("load.Batches", torch.OutOfMemoryError("CUDA out of memory")),
        (
            "prediction.predict",
            RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        ),
    ],
)
def test_too_little_gpu_memory(root, monkeypatch, place, error):
    def out_of_memory(*arguments):
        raise error

    monkeypatch.setattr(f"diagvib.training.{place}", out_of_memory)
    message = r"hue-shape/0: the GPU's memory is too small; lower the batch_size of small_cnn \(now"
    with refused(message):
        train(root, "runs", max_epochs=1)


def scalars(folder):
    """{name: [(step, value), ...]} of all event files of a folder, as they are in the files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(
        str(folder), purge_orphaned_data=False, size_guidance={"scalars": 0}
    ).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_tensorboard_shows_the_history_once_also_behind_an_interruption(root, monkeypatch):
    pytest.importorskip("tensorboard")
    curves, on_epoch = root / "curves", callbacks.TrainingBar.on_epoch

    def stop(bar, row):
        on_epoch(bar, row)
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(callbacks.TrainingBar, "on_epoch", stop)
        train(root, "runs", samples=[0], curves=curves)
    assert len(scalars(curves / "0")["val_loss"]) == 2
    history = history_of(train(root, "runs", samples=[0], curves=curves) / "0")
    display = scalars(curves / "0")
    assert set(display) == set(history[0]) - {"epoch", "phase"}
    for name, points in display.items():
        assert points == [(row["epoch"], pytest.approx(row[name])) for row in history]


def test_tensorboard_that_is_not_installed(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with refused(r"pip install 'diagvib\[tensorboard\]'"):
        train(root, "runs", curves=root / "curves")
    assert not (root / "runs").exists(), "said before anything is trained"


def test_cuda_without_a_gpu(root, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    with refused("device: cuda"):
        train(root, "runs", device="cuda")


def test_reasons_to_distrust_a_run_are_noted_and_shown(root, capsys):
    """A choice by few validation images; one class for every test image."""
    rule = {**SETTINGS, "selection": "val_worst_group"}
    metrics = read_json(train(root, "runs", samples=[0], settings=rule) / "0/metrics.json")
    (doubt,) = metrics["doubts"]
    assert re.search("chosen by val_worst_group, with only [0-7] validation images? of", doubt)
    assert f"small_cnn/zgo/hue-shape/0: doubtful, {doubt}" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "diagvib.training.prediction.class_names",
            lambda test, target, result: np.full(len(result), "red"),
        )
        metrics = read_json(train(root, "other", samples=[0]) / "0/metrics.json")
    assert metrics["doubts"] == ["predicts red for every test image"]
    # The groups of a single cue are those of the target and that cue.
    subset = FEW_IMAGES
    validated = {("0", "x", "p"): subset, ("0", "y", "p"): 1, ("0", "x", "q"): subset - 1}
    (doubt,) = noisy_selection("val_worst_group_cue_2", validated)
    assert f"with only {subset - 1} validation images of 0-q, so" in doubt


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ("ax by ay", []),
        ("ax ay", ["b-y"]),  # a class of the target
        ("ax bx ay", ["b-y"]),  # a combination, though both classes are there
        ("az bz", []),  # other cues, as in studies with another test environment
        ("bz", ["a-x"]),  # other cues, and a class of the target
    ],
)
def test_combinations_that_a_split_lacks_are_named(present, missing):
    split = {tuple(cell) for cell in present.split()}
    assert [*absent_combinations([("a", "x"), ("b", "y")], split)] == missing


def test_environments_are_numbered_by_name_and_others_are_none(root):
    """Those of validation as in training."""
    images = ImageFiles(root / "images")

    def load(sample, split):
        dataset = images.load(sample, split)
        names = {"train": ["b", "a"], "val": ["c", "b"]}[split] * (len(dataset.table) // 2)
        return replace(dataset, table=dataset.table.append_column("environment", [names]))

    job = Job(SETTINGS, Protocol(**TRAINING), torch.device("cpu"), SimpleNamespace(load=load))
    run = Run("net", "zgo", "hue-shape", 0)
    train = load_batches(job, run, "train")
    val = load_batches(job, run, "val", train)
    assert train.annotations.environments == val.annotations.environments == ("a", "b")
    assert train.environment[:4].tolist() == [1, 0, 1, 0]
    assert val.environment[:4].tolist() == [-1, 1, -1, 1]


def test_all_splits_are_scaled_as_the_training_images(root):
    job = Job(SETTINGS, Protocol(**TRAINING), torch.device("cpu"), ImageFiles(root / "images"))
    run = Run("net", "zgo", "hue-shape", 0)
    data = load(job, run)
    _, tested = load_test(job, run, data.train.scaling)
    defaults = Scaling.of_parts([data.train.pixels])
    assert data.train.scaling == data.val.scaling == tested.scaling == defaults
    assert Scaling.of_parts([tested.pixels]) != defaults != Scaling.of_parts([data.val.pixels])


def test_a_checkpoint_of_other_conditions_is_not_continued(tmp_path):
    """Threads change the last bits, so that the end would not be that of either."""
    single, two = (
        Job(SETTINGS, Protocol(**{**TRAINING, "threads": threads}), torch.device("cpu"), None)
        for threads in (1, 2)
    )
    single.checkpoint({"run": "a"}, tmp_path / "0.pt").write({"weights": {}})
    assert single.checkpoint({"run": "a"}, tmp_path / "0.pt").read() == {"weights": {}}
    assert two.checkpoint({"run": "a"}, tmp_path / "0.pt").read() is None
    assert single.checkpoint({"run": "b"}, tmp_path / "0.pt").read() is None
