"""Entries of the leaderboard: what `diagvib submit` writes can be computed again from the
predictions, and those in the repository are valid."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from conftest import REPOSITORY
from diagvib.cli import app
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_sha256
from diagvib.operations.submit import read_entry
from diagvib.reproduction.tabulate import tabulate
from diagvib.settings.config import load_config
from synthetic_runs import expected_runs, write_run

RUNS = expected_runs(["small_cnn", "resnet18"], ["zgo", "fgo-20"], ["shape-hue"], samples=3)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    for run in RUNS:
        path = write_run(folder / "results/runs", run)
        made = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(made | {"code": "c"}))
    shutil.rmtree(folder / "results/runs/resnet18/zgo/shape-hue/2")
    settings = load_config(None, ["samples=3"]).model_dump(mode="json")
    tabulate(folder / "results/runs", folder / "results/tables", RUNS, settings)
    return folder


def submitted(root, out):
    return CliRunner().invoke(app, ["submit", str(root), "--by", "me", "--out", str(out)])


def test_an_entry_can_be_computed_again_from_the_predictions(root, tmp_path):
    result = submitted(root, tmp_path / "board")
    assert result.exit_code == 0 and "zgo, resnet18: left out" in result.output
    found = sorted(path.parent.name for path in (tmp_path / "board").rglob("*.json"))
    assert found == ["fgo-20", "fgo-20", "zgo"]
    entry = read_entry(tmp_path / "board/zgo/small_cnn.json")
    accuracies = []
    for sample in range(3):
        path = root / f"results/runs/small_cnn/zgo/shape-hue/{sample}/predictions.parquet"
        table = pd.read_parquet(path).astype(str).query("group == 'ood'")
        right = table["prediction"] == table["shape"]
        accuracies.append(right.groupby(table["shape"]).mean().mean())
        assert entry.runs[f"shape-hue/{sample}"] == file_sha256(path)
    (faavg,) = (one for one in entry.metrics if one.metric == "faavg")
    assert faavg.mean == pytest.approx(np.mean(accuracies)) and faavg.n == 3
    assert faavg.low < faavg.mean < faavg.high and faavg.binding == "shape"
    assert entry.protocol["training"]["max_epochs"] == 30 and entry.supervision == "none"


def test_a_root_without_enough_runs_or_tables_and_a_wrong_entry_are_named(root, tmp_path):
    path = root / "results/tables/runs.parquet"
    runs = pd.read_parquet(path)
    runs[runs["sample"] < 2].to_parquet(path)
    assert "nothing in it can be submitted" in str(submitted(root, tmp_path).exception)
    assert "run `diagvib tabulate`" in str(submitted(tmp_path, tmp_path).exception)
    entry = json.loads((REPOSITORY / "leaderboard/whac-95/lite0_erm.json").read_text())
    entry["metrics"][0]["n"] = 2
    wrong = tmp_path / "whac-95/lite0_erm.json"
    wrong.parent.mkdir()
    wrong.write_text(json.dumps(entry))
    with pytest.raises(DiagvibError, match=r"lite0_erm.json: metrics\.0\.n"):
        read_entry(wrong)


def test_the_repositorys_entries_are_valid_and_those_of_the_published_results():
    entries = [read_entry(path) for path in sorted((REPOSITORY / "leaderboard").glob("*/*.json"))]
    assert entries
    for study, folder in (("whac-95", "frozen_whac_a_mole"),):
        table = pd.read_csv(REPOSITORY / f"docs/results/{folder}/metrics.csv")
        means = table.set_index(["baseline", "metric"])["mean"]
        for entry in entries:
            for one in entry.metrics if entry.study == study else ():
                assert one.mean == pytest.approx(means[entry.baseline, one.metric], abs=1e-9)
