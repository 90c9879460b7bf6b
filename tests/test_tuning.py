"""Tuning: which candidate wins and why, on real training at toy size; also when it is killed or a
loss diverges."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml

from conftest import refused
from diagvib import stages as jobs
from diagvib.foundation.files import read_json, read_yaml
from diagvib.settings.baselines import BaselineSettings, complete, load_settings
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import load_config, with_baseline
from diagvib.training import fit, tuning
from diagvib.training.callbacks import Callback
from diagvib.training.trainer import Trainer
from diagvib.training.tuning import grid
from synthetic_methods import settings_of
from test_trainer import Interrupted, Interruption
from toy import images_here

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
    images_here(config, root)
    return root


@pytest.fixture
def root(images, tmp_path) -> Path:
    """A separate root that shares the images."""
    (tmp_path / "data").mkdir()
    for name in ("images", "recipes", "prepared"):
        (tmp_path / "data" / name).symlink_to(images / "data" / name)
    return tmp_path


def tune(root: Path, *overrides: str, baseline: str = "small_cnn") -> pd.DataFrame:
    config = with_baseline(load_config(None, [*TOY, *overrides]), "tune", baseline)
    jobs.tune(Layout(root), stage_settings(config, "tune", baseline=baseline), baseline, "cpu")
    return pd.read_csv(root / f"results/tuning/{baseline}.csv")


def chosen_entry(root: Path, baseline: str = "small_cnn") -> dict:
    """The entry that tuning wrote for config/baselines, complete."""
    path = root / f"results/tuning/{baseline}.yaml"
    return complete(read_yaml(path)[baseline], baseline, str(path))


def test_the_lowest_mean_validation_loss_wins(root, capsys):
    table = tune(root)
    assert len(table) == 2 * 2 * 2 and set(table["status"]) == {"ok"}
    assert set(table["epochs"]) == {2} and table["epoch"].between(1, 2).all()
    means = table.groupby(["batch_size", "optimiser.lr"])["score"].mean()
    batch_size, lr = means.idxmin()
    assert set(table.loc[table["chosen"], "batch_size"]) == {batch_size}
    assert set(table.loc[table["chosen"], "optimiser.lr"]) == {lr}

    entry, now = chosen_entry(root), load_settings("small_cnn")
    assert list(entry) == list(now)
    now["optimiser"]["lr"] = lr
    assert entry == {**now, "batch_size": batch_size, "origin": entry["origin"]}
    assert f"lowest validation loss ({means.min():.4g}) on ZSO (position, hue; " in entry["origin"]
    output = "64 training images of 64 pixels from embedded sources and 2 epochs"
    assert entry["origin"].endswith(output)
    text = capsys.readouterr().out
    assert f"chosen: batch {batch_size}, lr {lr:g}" in text
    assert f"lr {lr:g} is the" in text and "a better one may be outside the grid" in text


def test_a_candidate_is_what_a_run_with_these_settings_would_be(root):
    table = tune(root)
    config = load_config(None, [*TOY, "baselines=[small_cnn]"])
    settings = stage_settings(config, "train", study="zso", baseline="small_cnn")
    settings_ = BaselineSettings(**grid([16], [1e-4])[0].applied(settings.settings))
    settings = settings.model_copy(update={"baseline": settings_})
    jobs.train(Layout(root), settings, "small_cnn", "zso", "hue", "cpu")
    provenance = read_json(root / "results/runs/small_cnn/zso/hue/0/metrics.json")
    (row,) = table[
        (table["binding"] == "hue") & (table["batch_size"] == 16) & (table["optimiser.lr"] == 1e-4)
    ].to_dict("records")
    assert (row["score"], row["epoch"]) == (provenance["val_loss"], provenance["selected_epoch"])


def trainings(monkeypatch) -> list:
    """The trainings from now on, as (learning rate, epochs trained)."""
    results, fit = [], Trainer.fit

    def counted(self, *arguments):
        fitted = fit(self, *arguments)
        results.append((self.method.settings["optimiser"]["lr"], len(fitted.timings)))
        return fitted

    monkeypatch.setattr(Trainer, "fit", counted)
    return results


SHORT = ["tuning.factors=[hue]"]


def test_killed_it_continues_to_the_same_table_and_trains_nothing_twice(root, monkeypatch):
    """Stopped in the third training, after its first epoch."""
    callbacks = iter([Callback(), Callback(), Interruption(epoch=1)])
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(fit, "training_callback", lambda *_: nullcontext(next(callbacks)))
        tune(root, *SHORT)
    retained = root / "data/tuning/small_cnn"
    assert not (root / "results").exists() and len(list(retained.rglob("*.json"))) == 2
    trained = trainings(monkeypatch)
    continued = tune(root, *SHORT)
    assert [epochs for _, epochs in trained] == [1, 2], "of the third and fourth"
    assert not list(retained.rglob("*.pt"))
    trained.clear()
    pd.testing.assert_frame_equal(tune(root, *SHORT), continued)
    assert not trained
    tune(root, *SHORT, "tuning.learning_rates=[1.0e-3, 1.0e-4, 3.0e-4]")
    assert trained == [(3e-4, 2)] * 2
    shutil.rmtree(retained)
    pd.testing.assert_frame_equal(tune(root, *SHORT), continued)
    trained.clear()
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(fit, "training_callback", lambda *_: nullcontext(Interruption(epoch=1)))
        tune(root, *SHORT, "training.seed=2")
    assert not (root / "results/tuning/small_cnn.yaml").exists(), "its settings are not those"
    trained.clear()
    tune(root, *SHORT, "training.seed=2")
    assert len(trained) == 4, "results for another seed do not count"


def test_a_training_without_memory_goes_on_when_there_is_some(root, monkeypatch):
    """Its neighbours on a GPU may have had it."""
    full = Interruption(epoch=1, error=torch.OutOfMemoryError("CUDA out of memory"))
    callbacks = iter([full, Callback(), Callback(), Callback()])
    with monkeypatch.context() as patch:
        patch.setattr(fit, "training_callback", lambda *_: nullcontext(next(callbacks)))
        first = tune(root, *SHORT)
    assert [*first["status"]].count("out of memory") == 1
    trained = trainings(monkeypatch)
    assert set(tune(root, *SHORT)["status"]) == {"ok"}
    assert [epochs for _, epochs in trained] == [1], "the second of its two"
    assert not list((root / "data/tuning/small_cnn").rglob("*.pt"))


def test_a_tuning_may_have_fewer_epochs(root):
    assert set(tune(root, *SHORT, "tuning.max_epochs=1")["epochs"]) == {1}
    assert chosen_entry(root)["origin"].endswith("embedded sources and 1 epochs")


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
    diverged = table[table["optimiser.lr"] == 1000]
    assert set(diverged["status"]) == {"diverged"} and diverged["score"].isna().all()
    assert set(table[table["optimiser.lr"] == 1e-4]["status"]) == {"ok"}
    assert chosen_entry(root, "deep")["optimiser"]["lr"] == 1e-4
    assert "no number" in capsys.readouterr().out
    with refused("tune deep: no trial ends with a score"):
        tune(root, "tuning.learning_rates=[1000.0]", *small, baseline="deep")


def test_larger_batches_then_lower_rates_come_first():
    """Of equals the first is chosen; test_random_search has that."""
    trials = [tuple(trial.values.values()) for trial in grid([16, 64, 32], [1e-3, 1e-4])]
    assert trials == [(size, lr) for size in (64, 32, 16) for lr in (1e-4, 1e-3)]


def test_what_cannot_be_tuned_is_named(root):
    for override, says in (
        ("tuning.batch_sizes=[65]", "batch_size 65 is more than the 64 training images"),
        ("tuning.factors=[colour]", "tuning.factors: unknown factor 'colour'"),
        ("tuning.samples=[1]", "tuning.samples: 1 is not among the dataset samples of"),
    ):
        with refused(says):
            tune(root, *SHORT, override)
    assert not (root / "results").exists()


def test_a_head_fitted_to_validation_images_is_not_judged_by_them(root):
    (root / "mine.yaml").write_text(
        "net: {model: small_cnn, method: {name: llr, images: validation}, batch_size: 16,\n"
        "      optimiser: {name: adam, lr: 0.001}, origin: mine}\n"
    )
    inputs = f"baselines_from=[{root / 'mine.yaml'}]", "baselines=[net]"
    with refused("tune net: method.images: validation fits the head"):
        tune(root, *SHORT, *inputs, baseline="net")
    text = (root / "mine.yaml").read_text()
    (root / "mine.yaml").write_text(text.replace("images: validation", "images: training"))
    draws = "{llr: {method.images: {choice: [validation]}}}"
    search = f"tuning.random_search={{bindings: [hue], trials: 2, ranges: {draws}}}"
    with refused("tune net: method.images: validation fits the head"):
        tune(root, *SHORT, *inputs, search, baseline="net")


@pytest.mark.parametrize(("rule", "left"), [("val_loss", 0), ("val_accuracy", 1)])
def test_the_ranking_begins_with_the_best(rule, left, monkeypatch):
    display = []
    monkeypatch.setattr(tuning, "print_rows", lambda title, heads, rows: display.extend(rows))
    table = pd.DataFrame({"trial": [0, 1], "binding": "hue", "rule": rule, "score": [0.1, 0.2]})
    task = SimpleNamespace(
        baseline="m", study="ZSO", job=SimpleNamespace(settings=settings_of(batch_size=9))
    )
    tuning.print_ranking(
        task, table.assign(status="ok"), tuning.grid([16], [1e-4, 1e-3]), rule, "c"
    )
    assert [int(row[0]) for row in display] == [left, 1 - left]


def test_a_batch_norm_that_gets_one_image_says_what_to_change(root, tmp_path, monkeypatch):
    """When it is tuned, and when it is trained."""
    (tmp_path / "normed_net.py").write_text(
        "from torch import nn\n\n"
        "def net(n_classes, image_size, **options):\n"
        "    features = nn.Flatten(), nn.Linear(3 * image_size**2, 4), nn.BatchNorm1d(4)\n"
        "    return nn.Sequential(*features, nn.Linear(4, n_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = {"model": "normed_net:net", "method": "erm", "origin": "a test", "drop_last": False}
    entry |= {"optimiser": {"name": "adam", "lr": 1e-3}, "batch_size": 21}
    (tmp_path / "normed.yaml").write_text(yaml.safe_dump({"normed": entry}))
    overrides = f"baselines_from=[{tmp_path / 'normed.yaml'}]", "tuning.batch_sizes=[21]"
    with refused("normed: batch norm needs two images"):
        tune(root, *overrides, baseline="normed")
    config = load_config(None, [*TOY, overrides[0], "baselines=[normed]"])
    settings = stage_settings(config, "train", study="zso", baseline="normed")
    with refused("normed: batch norm needs two images"):
        jobs.train(Layout(root), settings, "normed", "zso", "hue", "cpu")
