"""Files made behind the workflow's back are made again, whoever made them; those merely older or
from elsewhere are not. With the real program at toy size, in copies of one finished repository."""

import json
import shutil
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from conftest import REPOSITORY
from diagvib.cli import app
from diagvib.foundation.files import read_json, write_json
from diagvib.provenance.expected import ExpectedJobs
from diagvib.provenance.rerun_reasons import reasons
from diagvib.settings.resolve import load_config
from test_workflow import planned
from toy import BASELINES, MODELS, RUN, TOY, call, command, count, hashes, toy, write

EDITED = MODELS.replace("width=4):", "width=4):\n    print('edited')")
TINY, FOCAL, CNN = (RUN.format(name) for name in ("tiny", "focal", "small_cnn"))
CORNERS = "toy/results/runs/small_cnn/two-places/corner-colour"
ZGO, TWO_PLACES = ("zgo", "hue-shape"), ("two-places", "corner-colour")


def by_hand(folder: Path, *arguments: str) -> None:
    with chdir(folder):
        app([*arguments, "--config", "toy.yaml"], standalone_mode=False)


@pytest.fixture
def disturbed(finished) -> Path:
    """Runs of another seed with today's times, as `dvc checkout` of an older commit leaves them; of
    a model that was edited while they were trained; of images of other counts, from another root;
    and one in place of another."""
    by_hand(finished, "train", "focal", *ZGO, "--set", "training.seed=7")
    write(finished, {"lab/models.py": EDITED})
    by_hand(finished, "train", "tiny", *ZGO)
    write(finished, {"lab/models.py": MODELS})
    alternative = ("--root", "other", "--set", "counts.train=63")
    by_hand(finished, "prepare", *alternative)
    for stage in (("draw",), ("render",), ("train", "small_cnn")):
        by_hand(finished, *stage, *ZGO, *alternative)
    shutil.copytree(finished / CNN.replace("toy", "other", 1), finished / CNN, dirs_exist_ok=True)
    shutil.copytree(finished / CORNERS / "0", finished / CORNERS / "1", dirs_exist_ok=True)
    return finished


def test_runs_that_are_not_those_asked_for_are_named_not_counted_and_made_again(output, disturbed):
    trained = {f"train {name}" for name in ("focal", "tiny", "small_cnn")}
    assert planned(disturbed) == {*trained, "tabulate", "plot"}
    by_hand(disturbed, "tabulate")
    runs = pd.read_csv(disturbed / "toy/results/tables/runs.csv")
    runs = runs[runs["status"] == "missing"]
    message = {
        (run.baseline, run.study): run.reason.partition(" than")[0] for run in runs.itertuples()
    }
    assert message == {
        ("focal", "zgo"): "another run is there, of other training",
        ("tiny", "zgo"): "another run is there, of other code",
        ("small_cnn", "zgo"): "another run is there, of other images",
        ("small_cnn", "two-places"): "another run is there, of other run, images",
    }
    assert len(runs) == 7, "of two places only one"
    toy(disturbed, "--", f"{TINY}/sha256.json")
    runs = [
        {path: single for path, single in hashes(folder / "toy").items() if "runs/tiny" in path}
        for folder in (disturbed, output)
    ]
    assert runs[0] == runs[1]
    assert planned(disturbed) == {"train focal", "train small_cnn", "tabulate", "plot"}


def test_recipes_and_images_of_other_settings_are_made_again(finished):
    by_hand(finished, "render", *TWO_PLACES, "--set", "image_size=128")
    # Images of other recipes are older than the right ones.
    by_hand(finished, "draw", *ZGO, "--set", "counts.ood=27")
    by_hand(finished, "render", *ZGO)
    by_hand(finished, "draw", *ZGO)
    again = {"render": 2, "train": 4, "tabulate": 1, "tables": 1}
    assert count(toy(finished, "-n", "--", "tables")) == again
    by_hand(finished, "draw", *TWO_PLACES, "--set", "counts.train=90")
    assert count(toy(finished, "-n", "--", "tables")) == {"draw": 1, **again}


FROZEN = """
frozen: {model: {name: small_cnn, frozen: true}, method: erm, optimiser: {name: adam, lr: 1.0e-3},
         batch_size: 16, origin: mine}
"""


def test_features_and_sources_of_other_settings_are_made_again(finished):
    """The features of images of another size, and, as by `diagvib prepare`, other sources."""
    write(finished, {"lab/baselines.yaml": BASELINES + FROZEN})
    changes = {
        "[small_cnn, {name: tiny, studies: [zgo]}, {name: focal, studies: [zgo]}]": "[frozen]",
        "[zgo, two-places]": "[zgo]",
        "[hue-shape, corner-colour]": "[hue-shape]",
        "root: toy": "root: toy\nimages: render",
    }
    config = TOY
    for old, new in changes.items():
        config = config.replace(old, new)
    write(finished, {"toy.yaml": config})
    toy(finished, "--", "runs")
    assert count(toy(finished, "-n", "--", "runs")) == {}
    by_hand(finished, "encode", "frozen", *ZGO, "--set", "image_size=96")
    assert count(toy(finished, "-n", "--", "runs")) == {"encode": 1, "train": 1, "runs": 1}
    by_hand(finished, "encode", "frozen", *ZGO)
    assert count(toy(finished, "-n", "--", "runs")) == {}
    (record,) = (finished / "toy/data/features").rglob("features.json")
    message = read_json(record)
    write_json(record, message | {"made_from": message["made_from"] | {"code": "other"}})
    assert count(toy(finished, "-n", "--", "runs")) == {"encode": 1, "train": 1, "runs": 1}
    output = record.with_name("0") / "train.npy"
    before = output.stat().st_mtime_ns
    toy(finished, "--forcerun", "encode", "--", str(record.relative_to(finished)))
    assert output.stat().st_mtime_ns != before, "not only looked at"
    (described,) = (finished / "toy/data/prepared").glob("digits/sources.json")
    write_json(described, read_json(described) | {"sources": "official"})
    assert "prepare" in count(toy(finished, "-n", "--", "runs"))


def test_damaged_runs_are_made_again_and_those_from_another_machine_count(finished):
    for path in (finished / TINY).glob("*/run.json"):
        message = read_json(path)
        message |= {"device": "NVIDIA H100", "precision": "bf16", "threads": 16}
        message["versions"]["python"] = "3.13.0"
        write_json(path, message)
    before = (finished / TINY / "0/run.json").read_bytes()
    (finished / FOCAL / "1/run.json").write_text(json.dumps({"code": "mine", "training": []}))
    predictions = finished / CNN / "0/predictions.parquet"
    predictions.write_bytes(predictions.read_bytes()[:-1])
    (finished / CORNERS / "0/history.jsonl").unlink()
    assert planned(finished) == {"train focal", "train small_cnn", "tabulate", "plot"}
    assert count(toy(finished, "-n", "--", "runs")) == {"train": 3, "runs": 1}
    by_hand(finished, "train", "tiny", *ZGO, "--set", "training.threads=2")
    assert (finished / TINY / "0/run.json").read_bytes() == before, "kept"
    by_hand(finished, "tabulate")
    runs = pd.read_csv(finished / "toy/results/tables/runs.csv")
    assert set(runs[runs["baseline"] == "tiny"].status) == {"ok"}


def test_the_empty_folder_of_a_fresh_clone_is_no_result(tmp_path):
    jobs = ExpectedJobs(load_config(overrides=[f"root={tmp_path}"]))
    tabulate = SimpleNamespace(name="tabulate")
    job = SimpleNamespace(output=[jobs.layout.metrics], rule=tabulate, wildcards={})

    def why() -> list[str]:
        return [reason for reason, _ in reasons(jobs, job, [], lambda path: None)]

    write(tmp_path, {"results/metrics/.gitkeep": ""})
    assert why() == []
    write(tmp_path, {"results/metrics/tiny.zgo.json": "{}"})
    assert why() == ["no record of what made it"]


def test_a_copy_of_the_repository_runs_its_own_code(finished):
    """Such as the one of `dvc exp run --temp`, whose environment has the code of the original."""
    network = finished / "src/diagvib/models/small_cnn.py"
    network.write_text(network.read_text().replace("convolution(3, 32", "convolution(3, 33"))
    original = {"PYTHONPATH": str(REPOSITORY / "src")}
    runs = command("--configfile=toy.yaml", "runs")
    assert "33 channels" in call(finished, *runs, fails=True, **original)
