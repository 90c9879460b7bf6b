"""Baselines that say `settings: tuned`: the workflow tunes first, and runs record what was chosen."""

import json

import pytest
import yaml

from conftest import refused
from diagvib.foundation.files import read_yaml
from diagvib.settings.baselines import complete, load_settings, with_tuned
from diagvib.settings.jobs import stage_settings
from diagvib.settings.resolve import load_config
from toy import count, snakemake, write

SEARCH = """
root: toy
sources: embedded
studies: [o2o-easy]
bindings: [shape-hue]
samples: 1
counts: {train: 96, val: 40, id: 40, ood: 40}
image_size: 64
baselines_from: [mine.yaml]
baselines: [{name: coral, settings: tuned}, mine_erm]
training: {max_epochs: 1}
tuning:
  study: o2o-easy
  random_search:
    bindings: [shape-hue]
    trials: {all: 1, coral: 3}
    ranges: {coral: {method.gamma: {choice: [0.1, 3.0]}}, mine_erm: {optimiser.lr: {log10: [-4, -2]}}}
"""
MINE = """
mine_erm:
  model: small_cnn
  method: erm
  optimiser: {name: adam, lr: 2.0e-3}
  batch_size: 16
  optimiser_of: coral
  origin: mine
"""


def test_training_waits_for_the_tuning_and_records_what_it_chose(repository):
    write(repository, {"search.yaml": SEARCH, "mine.yaml": MINE})
    options = "tables", "--configfile", "search.yaml"
    snakemake(repository, *options)
    root = repository / "toy/results"
    assert not (root / "tuning/mine_erm.yaml").exists(), "only what decides settings is tuned"
    entry = complete(read_yaml(root / "tuning/coral.yaml")["coral"], "coral")
    origin = entry.pop("origin")
    assert "of a random search of 3" in origin
    records = {
        name: json.loads((root / f"runs/{name}/o2o-easy/shape-hue/0/run.json").read_text())
        for name in ("coral", "mine_erm")
    }
    assert records["coral"]["settings"] == entry
    assert records["mine_erm"]["settings"]["optimiser"] == entry["optimiser"]
    assert {"settings", "optimiser_of"}.isdisjoint(records["mine_erm"]["settings"])
    compared = json.loads((root / "tables/versions.json").read_text())["settings"]["baselines"]
    assert {entry["name"]: entry["settings"] for entry in compared} == {
        "coral": entry,
        "mine_erm": {**records["mine_erm"]["settings"], "origin": "mine"},
    }
    assert "Nothing to be done" in snakemake(repository, *options, "--dry-run")
    (repository / "search.yaml").write_text(SEARCH.replace("coral: 3", "coral: 2"))
    jobs = count(snakemake(repository, *options, "--dry-run"))
    assert {name: jobs[name] for name in ("tune", "train", "tabulate")} == {
        "tune": 1,
        "train": 2,
        "tabulate": 1,
    }


def job(stage: str, name: str):
    return stage_settings(load_config("search.yaml"), stage, "o2o-easy", name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"search.yaml": SEARCH, "mine.yaml": MINE})
    return tmp_path


def test_tuning_begins_with_what_is_written(folder):
    assert job("train", "coral").settings["settings"] == "tuned"
    assert job("tune", "coral").settings.keys() == load_settings("coral").keys() - {"origin"}
    assert job("tune", "coral").tuning.random_search.trials == 3


def test_settings_of_no_tuning_or_of_another_entry_are_refused(folder):
    settings = job("train", "coral").settings
    with refused(r"coral.yaml: not there, but settings .* `diagvib tune coral`"):
        with_tuned(settings, "coral", folder)
    entry = {**load_settings("coral"), "method": "erm"}
    (folder / "coral.yaml").write_text(yaml.safe_dump({"coral": entry}))
    with refused(r"coral.yaml: not a tuning of this entry, which has been changed since"):
        with_tuned(settings, "coral", folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("optimiser_of: coral", "optimiser_of: mine_erm", "mine_erm takes its own optimiser from"),
        ("optimiser_of: coral", "optimiser_of: corral", "unknown baseline 'corral'"),
        ("{all: 1, coral: 3}", "{erm: 3}", "trials: no number for coral; add one under its name"),
        ("{all: 1, coral: 3}", "{all: 1, corral: 3}", "unknown method or baseline 'corral'"),
        ("  study: o2o-easy", "  study: dogs-o2o-easy", "study dogs-o2o-easy"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_runs(folder, old, new, says):
    for name, text in {"search.yaml": SEARCH, "mine.yaml": MINE}.items():
        (folder / name).write_text(text.replace(old, new))
    with refused(says):
        load_config("search.yaml")
