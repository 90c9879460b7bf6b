"""The train stage from image files to run folders, including when it is killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_metadata, read_table
from diagvib.images.datasets import ImageFiles
from diagvib.settings.baselines import complete, load_settings
from diagvib.settings.grid import make_run
from diagvib.training import run as runs
from diagvib.training.protocol import Protocol
from diagvib.training.run import Folders, Job, train_runs
from diagvib.training.trainer import Trainer
from synthetic_images import write_dataset

SETTINGS = {**load_settings("small_cnn"), "batch_size": 16}
TRAINING = {"max_epochs": 3, "patience": None, "seed": 1, "precision": "bf16", "threads": 1}
SAME_ALWAYS = ("predictions.parquet", "metrics.json", "history.jsonl")


def train(
    root,
    out,
    study="zgo",
    binding="hue-shape",
    samples=(0, 1),
    *,
    settings=SETTINGS,
    training=TRAINING,
    device="cpu",
    curves=None,
    **changed,
):
    job = Job(
        settings,
        Protocol(**training),
        resolve_device(device),
        ImageFiles(root / "images"),
        **changed,
    )
    train_runs(
        job,
        [make_run("small_cnn", study, binding, sample) for sample in samples],
        Folders(root / out, root / "checkpoints", curves),
    )
    return root / out


def contents(folder, samples=(0, 1)):
    return {
        (sample, name): (folder / str(sample) / name).read_bytes()
        for sample in samples
        for name in SAME_ALWAYS
    }


@pytest.fixture
def root(tmp_path):
    for sample in (0, 1):
        write_dataset(tmp_path / "images", "zgo", "hue-shape", sample)
    return tmp_path


def test_run_folder(root, capsys):
    out = train(root, "runs")
    metrics = read_json(out / "0" / "metrics.json")
    assert {
        key: metrics[key]
        for key in (
            "baseline",
            "study",
            "binding",
            "target",
            "cue",
            "sample",
            "sources",
            "comparable",
            "epochs",
        )
    } == {
        "baseline": "small_cnn",
        "study": "zgo",
        "binding": "hue-shape",
        "target": "hue",
        "cue": "shape",
        "sample": 0,
        "sources": "embedded",
        "comparable": False,
        "epochs": 3,
    }
    assert {name: group["n"] for name, group in metrics["groups"].items()} == {"id": 12, "ood": 12}
    assert set(metrics["groups"]["id"]["per_class"]) <= {"red", "yellow", "green"}

    predictions = read_table(out / "0" / "predictions.parquet").to_pandas()
    assert list(predictions) == [
        "group",
        "position",
        "hue",
        "lightness",
        "scale",
        "shape",
        "texture",
        "prediction",
        "confidence",
    ]
    assert len(predictions) == 24 and predictions.confidence.dtype == "float32"
    ood = predictions[predictions.group == "ood"]
    per_class = (ood.prediction == ood.hue).groupby(ood.hue).mean()
    assert metrics["groups"]["ood"]["accuracy"] == pytest.approx(per_class.mean())
    assert read_metadata(out / "0" / "predictions.parquet")["sample"] == 0

    history = [json.loads(line) for line in (out / "0" / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert min(row["val_loss"] for row in history) == metrics["val_loss"]
    facts = read_json(out / "1" / "run.json")
    assert facts["settings"] == SETTINGS and facts["device"] == "cpu"
    assert facts["precision"] == Protocol(**TRAINING).on(torch.device("cpu"))
    assert facts["train_images"] == 48 and facts["versions"]["torch"]

    assert not (root / "checkpoints").exists(), "a job that succeeded leaves no checkpoint"
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"small_cnn/zgo/hue-shape/{s}" for s in (0, 1)
    ]


def test_accuracy_on_the_test_groups_in_every_epoch(root):
    """Only the history differs from a run that does not track; its selected epoch has the run's own
    accuracies."""
    out = train(root, "tracked", training={**TRAINING, "track_test": True}, samples=[0])
    history = [json.loads(line) for line in (out / "0" / "history.jsonl").read_text().splitlines()]
    metrics = read_json(out / "0" / "metrics.json")
    selected = history[metrics["selected_epoch"] - 1]
    for group in ("id", "ood"):
        assert selected[f"{group}_accuracy"] == metrics["groups"][group]["accuracy"]
        assert all(0 <= row[f"{group}_accuracy"] <= 1 for row in history)
    plain = contents(train(root, "plain", samples=[0]), [0])
    tracked = contents(out, [0])
    assert tracked[0, "metrics.json"] == plain[0, "metrics.json"]
    assert tracked[0, "predictions.parquet"] == plain[0, "predictions.parquet"]
    without = "".join(
        json.dumps({k: v for k, v in row.items() if k not in ("id_accuracy", "ood_accuracy")})
        + "\n"
        for row in history
    )
    assert without.encode() == plain[0, "history.jsonl"]


def test_study_without_cue(tmp_path):
    write_dataset(tmp_path / "images", "zso", "hue", 0)
    metrics = read_json(train(tmp_path, "runs", "zso", "hue", samples=[0]) / "0" / "metrics.json")
    assert metrics["cue"] is None and list(metrics["groups"]) == ["id"]


def test_same_again_and_alone(root):
    whole = contents(train(root, "runs"))
    assert contents(train(root, "again", samples=(1, 0))) == whole
    assert contents(train(root, "alone", samples=[1]), [1]).items() <= whole.items()


def test_a_run_that_is_there_is_kept_and_one_that_differs_in_anything_is_not(root, capsys):
    out = train(root, "runs", samples=[0])
    first = (out / "0/run.json").read_bytes()
    alone = contents(train(root, "runs"))
    assert (out / "0/run.json").read_bytes() == first
    assert (
        capsys.readouterr().out.count(
            "0: kept, because it was made with the same settings, images and code"
        )
        == 1
    )
    assert contents(train(root, "whole")) == alone
    history = out / "0/history.jsonl"
    for change in (
        lambda: history.write_text("damaged\n"),
        history.unlink,
        (out / "0/run.json").unlink,
        lambda: (out / "0/run.json").write_text("{"),
    ):
        change()
        train(root, "runs")
        assert contents(out) == alone
        said = capsys.readouterr().out
        assert "0: kept" not in said and "1: kept" in said
    train(root, "runs", training={**TRAINING, "seed": 2})
    assert "kept" not in capsys.readouterr().out and contents(out) != alone
    write_dataset(root / "images", "zgo", "hue-shape", 1, counts=(48, 16, 36))
    train(root, "runs", training={**TRAINING, "seed": 2})
    said = capsys.readouterr().out
    assert "0: kept" in said and "1: kept" not in said


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
    with pytest.raises(DiagvibError, match="hue-shape/0: the code changed while it was loaded"):
        train(root, "runs", samples=[0], settings=settings)
    assert not list((root / "runs").rglob("run.json"))
    train(root, "runs", samples=[0], settings=settings)


def test_another_version_of_a_package_is_named_and_trains_nothing(root, capsys):
    mark = train(root, "runs", samples=[0]) / "0/run.json"
    made = read_json(mark)
    now, made["versions"]["torch"] = made["versions"]["torch"], "1.0"
    mark.write_text(json.dumps(made))
    train(root, "runs", samples=[0])
    said = capsys.readouterr().out
    assert (
        f"0: kept, because it was made with the same settings, images and code, but with torch 1.0 (now {now})\n"
        in said
    )


def test_what_is_trained_anew_is_not_there_until_it_is_whole(root, monkeypatch):
    out = train(root, "runs")

    def fail(*_):
        raise RuntimeError("no power")

    monkeypatch.setattr(Trainer, "fit", fail)
    with pytest.raises(RuntimeError, match="no power"):
        train(root, "runs", training={**TRAINING, "seed": 2})
    assert not (out / "0/run.json").exists()


def test_killed_job_continues_to_the_same_bytes(root):
    """SIGKILL in the second sample's second epoch, with other threads outside; then the same
    command again."""
    script = textwrap.dedent("""
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

        test_runs.runs.training_callback = killer
        test_runs.train(pathlib.Path(sys.argv[1]), "runs")
        """)
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "3",
        "PYTHONPATH": f"{here}:{here.parent / 'src'}",
    }
    killed = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert sorted(path.name for path in (root / "checkpoints").iterdir()) == ["1.pt"]
    assert not (root / "runs" / "1").exists()

    trained = []

    class Counting(Trainer):
        def fit(self, *arguments):
            trained.append(super().fit(*arguments))
            return trained[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "Trainer", Counting)
        continued = contents(train(root, "runs"))
    assert len(trained) == 1, "the finished first sample is kept"
    assert not (root / "checkpoints").exists()
    assert contents(train(root, "whole")) == continued


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("study", "zso"),
        ("sample", 4),
        ("sources_digest", "other"),
        ("image_shape", [32, 32, 3]),
        ("split", "val"),
    ],
)
def test_files_that_do_not_belong_together(root, key, value):
    write_dataset(root / "images", "zgo", "hue-shape", 1, {key: value})
    with pytest.raises(DiagvibError, match="render again") as caught:
        train(root, "runs")
    assert str(root / "images" / "1" / "test.parquet") in str(caught.value)
    assert not (root / "runs").exists(), "checked before anything is trained"


def test_missing_and_damaged_files(root):
    path = root / "images" / "1" / "val.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DiagvibError, match=r"1/val.parquet: damaged"):
        train(root, "runs")
    path.unlink()
    with pytest.raises(DiagvibError, match=r"1/val.parquet: no such file"):
        train(root, "runs")


def test_other_settings_do_not_continue_the_checkpoint(root, monkeypatch, capsys):
    def full_disk(*arguments):
        raise DiagvibError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_write_results", full_disk)
        with pytest.raises(DiagvibError, match="disk is full"):
            train(root, "runs")
    assert (root / "checkpoints" / "0.pt").exists()
    train(root, "runs", settings={**SETTINGS, "optimiser": {**SETTINGS["optimiser"], "lr": 1e-4}})
    assert "made with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
@pytest.mark.parametrize("place", ["Batches", "Trainer", "predict"])
def test_too_little_gpu_memory(root, monkeypatch, error, place):
    def out_of_memory(*arguments):
        raise error

    monkeypatch.setattr(runs, place, out_of_memory)
    with pytest.raises(
        DiagvibError,
        match="small_cnn/zgo/hue-shape/0: the GPU's memory is too small; lower the "
        r"batch_size of small_cnn \(now",
    ):
        train(root, "runs")


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
    plain = contents(train(root, "plain"))
    original = runs.training_callback

    @contextmanager
    def interrupting(name, curves):
        with original(name, curves) as callback:

            def stop(row):
                original_on_epoch(row)
                if name.endswith("/1") and row["epoch"] == 2:
                    raise KeyboardInterrupt

            original_on_epoch, callback.on_epoch = callback.on_epoch, stop
            yield callback

    with monkeypatch.context() as patch:
        patch.setattr(runs, "training_callback", interrupting)
        with pytest.raises(KeyboardInterrupt):
            train(root, "runs", curves=root / "curves")
    assert len(scalars(root / "curves" / "1")["val_loss"]) == 2
    out = train(root, "runs", curves=root / "curves")
    assert contents(out) == plain, "watching changes nothing"
    for sample in ("0", "1"):
        history = [
            json.loads(line) for line in (out / sample / "history.jsonl").read_text().splitlines()
        ]
        shown = scalars(root / "curves" / sample)
        assert set(shown) == {
            "train_loss",
            "train_accuracy",
            "val_loss",
            "val_accuracy",
            "val_worst_group",
        }
        for name, points in shown.items():
            assert [step for step, _ in points] == [1, 2, 3]
            assert [value for _, value in points] == pytest.approx([row[name] for row in history])


def test_tensorboard_that_is_not_installed(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(DiagvibError, match=r"pip install 'diagvib\[tensorboard\]'"):
        train(root, "runs", curves=root / "curves")
    assert not (root / "runs").exists(), "said before anything is trained"


def test_cuda_without_a_gpu(root, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(DiagvibError, match="device: cuda"):
        train(root, "runs", device="cuda")
