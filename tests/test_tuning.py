"""Tuning: which candidate wins and why, on real training at toy size; also when it is killed or a
loss diverges."""

import os
import signal
import subprocess
import textwrap
from pathlib import Path

import pandas as pd
import pytest

from conftest import BIN, REPOSITORY
from diagvib import stages as jobs
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_yaml
from diagvib.settings.baselines import BaselineSettings, complete, load_settings
from diagvib.settings.config import load_config
from diagvib.settings.grid import Layout
from diagvib.settings.jobs import stage_settings
from diagvib.training import run as training
from diagvib.training.trainer import Trainer
from diagvib.training.tuning import COLUMNS, grid_trial, ranked

TOY = [
    "sources=embedded",
    "image_size=64",
    "samples=1",
    "studies=[zso]",
    "bindings=[position-hue, hue-shape]",
    "counts={train: 64, val: 18, id: 18, ood: 18}",
    "training.max_epochs=2",
    "tuning.factors=[position, hue]",
    "tuning.batch_sizes=[16, 32]",
    "tuning.learning_rates=[1.0e-3, 1.0e-4]",
]


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> Path:
    """A root with ZSO's images of two factors. Not to be changed."""
    root = tmp_path_factory.mktemp("tuning")
    config = load_config(None, TOY)
    layout = Layout(root)
    jobs.prepare(layout, stage_settings(config, "prepare"), "digits")
    for factor in ("position", "hue"):
        jobs.draw(layout, stage_settings(config, "draw", study="zso"), "zso", factor)
        jobs.render(layout, stage_settings(config, "render", study="zso"), "zso", factor, "cpu", 1)
    return root


def sharing(images: Path, folder: Path) -> Path:
    """A separate root that shares the images."""
    (folder / "data").mkdir()
    for name in ("images", "recipes", "prepared"):
        (folder / "data" / name).symlink_to(images / "data" / name)
    return folder


@pytest.fixture
def root(images, tmp_path) -> Path:
    return sharing(images, tmp_path)


def tune(root: Path, *overrides: str, baseline: str = "small_cnn") -> pd.DataFrame:
    config = load_config(None, [*TOY, *overrides])
    jobs.tune(Layout(root), stage_settings(config, "tune", baseline=baseline), baseline, "cpu")
    return pd.read_csv(root / f"results/tuning/{baseline}.csv")


def chosen_entry(root: Path, baseline: str = "small_cnn") -> dict:
    """The entry that tuning wrote for config/baselines, complete."""
    path = root / f"results/tuning/{baseline}.yaml"
    return complete(read_yaml(path)[baseline], baseline, str(path))


def results(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "results/tuning").iterdir()}


def losses(table: pd.DataFrame) -> list[tuple]:
    """Everything that a second tuning must repeat: all but the seconds."""
    return table.drop(columns="seconds").fillna("none").values.tolist()


def test_the_lowest_mean_validation_loss_wins(root, capsys):
    table = tune(root)
    assert list(table) == COLUMNS and len(table) == 2 * 2 * 2 and set(table["status"]) == {"ok"}
    assert set(table["epochs"]) == {2} and table["selected_epoch"].between(1, 2).all()
    means = table.groupby(["batch_size", "lr"])["val_loss"].mean()
    batch_size, lr = means.idxmin()

    entry, now = chosen_entry(root), load_settings("small_cnn")
    assert list(entry) == list(now) and (entry["batch_size"], entry["optimiser"]["lr"]) == (
        batch_size,
        lr,
    )
    del entry["optimiser"]["lr"], now["optimiser"]["lr"]
    assert {k: v for k, v in entry.items() if k not in ("batch_size", "origin")} == {
        k: v for k, v in now.items() if k not in ("batch_size", "origin")
    }
    for said in (
        f"({means.min():.4g})",
        "position, hue",
        "64 training images of 64 pixels",
        "embedded",
        "2 epochs",
    ):
        assert said in entry["origin"]
    shown = capsys.readouterr().out
    assert f"chosen: batch {batch_size}, lr {lr:g}" in shown and "(now)" in shown
    assert f"lr {lr:g} is the" in shown and "a better one may be outside the grid" in shown


def test_a_candidate_is_what_a_run_with_these_settings_would_be(root):
    table = tune(root)
    config = load_config(None, TOY)
    settings = stage_settings(config, "train", study="zso", baseline="small_cnn")
    own = BaselineSettings(**grid_trial(16, 1e-4).applied(settings.settings))
    settings = settings.model_copy(update={"baseline": own})
    jobs.train(Layout(root), settings, "small_cnn", "zso", "hue", "cpu")
    run = read_json(root / "results/runs/small_cnn/zso/hue/0/metrics.json")
    row = table[
        (table["target"] == "hue") & (table["batch_size"] == 16) & (table["lr"] == 1e-4)
    ].iloc[0]
    assert (row["val_loss"], row["selected_epoch"]) == (run["val_loss"], run["selected_epoch"])


def test_a_second_tuning_trains_nothing_and_a_wider_one_what_is_new(root, monkeypatch):
    tune(root)
    before, trained = results(root), []

    class Counted(Trainer):
        def __init__(self, method, *arguments):
            trained.append(method.settings["optimiser"]["lr"])
            super().__init__(method, *arguments)

    monkeypatch.setattr(training, "Trainer", Counted)
    tune(root)
    assert not trained and results(root) == before
    table = tune(root, "tuning.learning_rates=[1.0e-3, 1.0e-4, 3.0e-4]")
    assert trained == [3e-4] * 4 and len(table) == 12
    tune(root, "training.seed=2")
    assert len(trained) == 4 + 8, "results for another seed do not count"


def kill(root: Path, module: str, training: int) -> None:
    """The `tune` of a module of tests, in a process that is killed after the first epoch of a
    training."""
    script = textwrap.dedent("""
        import importlib, os, pathlib, signal, sys
        from contextlib import contextmanager
        from diagvib.training import run
        from diagvib.training.callbacks import Callback

        trainings = 0

        class Killer(Callback):
            def on_epoch(self, row):
                if trainings == int(sys.argv[3]):
                    os.kill(os.getpid(), signal.SIGKILL)

        @contextmanager
        def killer(name, curves):
            global trainings
            trainings += 1
            yield Killer()

        run.training_callback = killer
        importlib.import_module(sys.argv[2]).tune(pathlib.Path(sys.argv[1]))
        """)
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'tests'}:{REPOSITORY / 'src'}"}
    killed = subprocess.run(
        [BIN / "python", "-c", script, str(root), module, str(training)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def test_killed_it_continues_to_the_same_table(images, root, tmp_path_factory):
    """SIGKILL after the sixth training's first epoch; then the same command again."""
    kill(root, "test_tuning", 6)
    assert not (root / "results").exists()
    kept = root / "data/tuning/small_cnn"
    assert len(list(kept.rglob("*.json"))) == 5 and len(list(kept.rglob("*.pt"))) == 1

    fitted = []

    class Counted(Trainer):
        def fit(self, *arguments, **keywords):
            fitted.append(super().fit(*arguments, **keywords))
            return fitted[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Trainer", Counted)
        continued = tune(root)
    assert [len(one.timings) for one in fitted] == [1, 2, 2], (
        "epochs of the sixth, seventh and eighth"
    )
    assert not list(kept.rglob("*.pt"))
    whole = tmp_path_factory.mktemp("whole")
    (whole / "data").mkdir()
    (whole / "data/images").symlink_to(images / "data/images")
    assert losses(continued) == losses(tune(whole))


DEEP = """
from torch import nn

def make(n_classes, image_size):
    return nn.Sequential(nn.AvgPool2d(image_size // 4), nn.Flatten(), nn.Linear(48, 16),
                         *(nn.Linear(16, 16) for _ in range(16)), nn.Linear(16, n_classes))
"""


def test_a_diverging_candidate_is_the_worst_and_stops_nobody(root, monkeypatch, capsys):
    """A product of many matrices, which nothing normalises, overflows at the largest learning
    rate."""
    (root / "deep_net.py").write_text(DEEP)
    (root / "deep.yaml").write_text(
        "deep: {model: 'deep_net:make', method: erm, batch_size: 16, origin: test, "
        "optimiser: {name: adam, lr: 1.0e-3}}"
    )
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(root)
    small = [
        "baselines_from=[deep.yaml]",
        "baselines=[deep]",
        "tuning.batch_sizes=[16]",
        "tuning.factors=[hue]",
    ]
    table = tune(root, "tuning.learning_rates=[1000.0, 1.0e-4]", *small, baseline="deep")
    diverged = table[table["lr"] == 1000]
    assert set(diverged["status"]) == {"diverged"} and diverged["val_loss"].isna().all()
    assert set(table[table["lr"] == 1e-4]["status"]) == {"ok"}
    assert chosen_entry(root, "deep")["optimiser"]["lr"] == 1e-4
    assert "no number" in capsys.readouterr().out
    with pytest.raises(DiagvibError, match="tune deep: no candidate ends with a validation loss"):
        tune(root, "tuning.learning_rates=[1000.0]", *small, baseline="deep")


def frame(rows: list[tuple]) -> pd.DataFrame:
    columns = ["batch_size", "lr", "target", "val_loss"]
    table = pd.DataFrame(rows, columns=columns).assign(sample=0)
    return table.assign(
        status=table["val_loss"].map(lambda value: "diverged" if pd.isna(value) else "ok")
    )


def test_the_mean_decides_then_failures_then_size_then_rate():
    same = [(size, lr, "hue", 0.5) for size in (32, 64) for lr in (1e-4, 1e-3)]
    failing = [
        (16, 1.0, "hue", None),
        (16, 1.0, "shape", None),
        (16, 0.1, "hue", None),
        (16, 0.1, "shape", 0.1),
    ]
    ranking = ranked(frame([*failing, *same, (8, 0.1, "hue", 0.1), (8, 0.1, "shape", 0.7)]))
    order = list(zip(ranking["batch_size"], ranking["lr"], strict=True))
    assert order == [(8, 0.1), (64, 1e-4), (64, 1e-3), (32, 1e-4), (32, 1e-3), (16, 0.1), (16, 1.0)]
    assert ranking["mean_loss"][0] == pytest.approx(0.4)
    assert ranking["failed"].tolist() == [0] * 5 + [1, 2]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "tuning.batch_sizes=[16, 65]",
            "train.parquet: batch size 65 is more than the 64 training",
        ),
        ("tuning.factors=[colour]", "tuning.factors: unknown factor 'colour'"),
        (
            "tuning.samples=[1]",
            "tuning.samples: 1 is not among the dataset samples of `samples: 1`",
        ),
    ],
)
def test_what_cannot_be_tuned_is_named(root, override, says):
    with pytest.raises(DiagvibError, match=says):
        tune(root, "tuning.factors=[hue]", override)
    assert not (root / "results").exists()


def test_the_default_grid_holds_the_published_settings():
    section = load_config().tuning
    published = load_settings("resnet18")
    assert published["batch_size"] in section.batch_sizes
    assert published["optimiser"]["lr"] in section.learning_rates
