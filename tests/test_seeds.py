"""Several training seeds on each dataset sample, from the configuration to the tables; and that one
seed, the default, leaves everything as it was before there were more."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import REPOSITORY, refused
from diagvib import stages
from diagvib.commands.compare import compare_results
from diagvib.commands.plan import estimate
from diagvib.commands.prune import find_unneeded
from diagvib.foundation.files import read_json, read_metadata
from diagvib.results import TABLE_FILES
from diagvib.settings.jobs import stage_settings
from diagvib.settings.layout import Layout, Run, run_numbers
from diagvib.settings.resolve import load_config
from toy import run_here, runs_here

CONFIG = REPOSITORY / "config"
SMALL = (
    "studies=[zgo]",
    "bindings=[hue-shape]",
    "samples=2",
    "counts={train: 36, val: 18, id: 18, ood: 18}",
    "image_size=64",
    "training.max_epochs=1",
)
JOB = "small_cnn", "zgo", "hue-shape"


def small(root: Path, *changes: str):
    return load_config(CONFIG / "demo.yaml", [*SMALL, f"root={root}", *changes])


def run_files(layout: Layout) -> dict[str, bytes]:
    folder = layout.runs(*JOB)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*")}


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory) -> Layout:
    return run_here(CONFIG / "demo.yaml", *SMALL, root=tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def raised(one_seed) -> tuple[dict[str, bytes], Layout]:
    """The files of the runs of one seed, and the root after `seeds` was raised to 2."""
    before, config = run_files(one_seed), small(one_seed.root, "seeds=2")
    runs_here(config, one_seed)
    stages.tabulate(one_seed, stage_settings(config, "tabulate"), 1)
    return before, one_seed


def test_one_seed_is_written_nowhere(one_seed):
    assert {path.name for path in one_seed.runs(*JOB).iterdir() if path.is_dir()} == {"0", "1"}
    for file in sorted(one_seed.runs(*JOB).glob("*/*.json")):
        record = read_json(file)
        assert file.name != "run.json" or record["seed"] == record["training"]["seed"] == 1332
        assert file.name != "metrics.json" or "seed" not in record
    assert "seed" not in read_metadata(one_seed.runs(*JOB) / "0/predictions.parquet")
    for name in TABLE_FILES:
        if name.endswith(".parquet"):
            table = pd.read_parquet(one_seed.tables / name)
            assert "seed" not in table or name == "variation.parquet", name
    assert "seeds" not in read_json(one_seed.tables / "versions.json")["settings"]
    config = small(one_seed.root)
    for stage in ("train", "tabulate"):
        assert "seeds" not in json.loads(stage_settings(config, stage, *JOB[1::-1]).text())


def test_further_seeds_keep_the_runs_of_the_first(raised):
    before, layout = raised
    after = run_files(layout)
    assert before == {name: after[name] for name in before}
    assert {Path(name).parent.name for name in after} == {"0", "0-seed1", "1", "1-seed1"}
    assert set(read_json(layout.runs(*JOB) / "sha256.json")) == set(after)
    records = {
        folder: read_json(layout.runs(*JOB) / folder / "run.json")
        for folder in ("0", "0-seed1", "1", "1-seed1")
    }
    seeds = {folder: record["seed"] for folder, record in records.items()}
    assert seeds["0"] == seeds["1"] == 1332, "the paper's, for all samples"
    assert len({*seeds.values()}) == 3, "of further seeds, each sample has others"
    assert all(record["training"]["seed"] == seeds[name] for name, record in records.items())
    assert records["0"]["images"] == records["0-seed1"]["images"] != records["1"]["images"]
    assert after["0/history.jsonl"] != after["0-seed1/history.jsonl"]


def test_tables_have_the_seeds_and_count_samples(raised):
    _, layout = raised
    tables = {
        name: pd.read_parquet(layout.tables / f"{name}.parquet")
        for name in ("runs", "metrics", "p_matrix", "cells", "history", "run_times")
    }
    for name in ("runs", "cells", "history", "run_times"):
        pairs = tables[name][["sample", "seed"]].drop_duplicates()
        assert sorted(pairs.itertuples(index=False, name=None)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    runs = tables["runs"]
    means = runs.groupby("sample")["ood_accuracy"].mean()
    (row,) = tables["metrics"].query("metric == 'faavg' and study == 'zgo'").to_dict("records")
    assert (row["n"], row["expected"]) == (2, 2)
    assert row["mean"] == pytest.approx(means.mean())
    assert row["stderr"] == pytest.approx(means.std(ddof=1) / np.sqrt(2))
    (cell,) = tables["p_matrix"].query("group == 'ood'").to_dict("records")
    assert (cell["n"], cell["expected"], cell["images"]) == (2, 2, 18)


def test_plan_and_prune_count_seeds(raised):
    _, layout = raised
    single, two = small(layout.root), small(layout.root, "seeds=2")
    plans = [estimate(config, "cpu") for config in (single, two)]
    assert [plan["runs"] for plan in plans] == [2, 4]
    assert plans[0]["datasets"] == plans[1]["datasets"] == 2
    unneeded = {path.name for path in find_unneeded([single])}
    assert {"0-seed1", "1-seed1"} <= unneeded and not {"0", "1"} & unneeded
    assert not {"0-seed1", "1-seed1"} & {path.name for path in find_unneeded([two])}


def test_compared_with_one_seed_only_common_runs_count(raised, tmp_path):
    _, layout = raised
    for folder in ("0", "1"):
        copied = tmp_path / "runs" / "/".join(JOB) / folder
        copied.mkdir(parents=True)
        for path in (layout.runs(*JOB) / folder).iterdir():
            (copied / path.name).write_bytes(path.read_bytes())
    table = compare_results(layout.root / "results", tmp_path / "runs")
    assert set(table["verdict"]) == {"same"} and set(table["n"]) == {2}


def test_names_of_runs():
    run = Run(*JOB, 3, seed=2)
    assert run.name == "small_cnn/zgo/hue-shape/3-seed2" and run.names["seed"] == 2
    assert run_numbers(run.folder) == (3, 2) and run_numbers("3") == (3, 0)
    assert not any(map(run_numbers, ("3-seed0", "3-seed", "seed1", "a", "3-seed01")))
    first_run = Run(*JOB, 3)
    assert first_run.name == "small_cnn/zgo/hue-shape/3" and "seed" not in first_run.names


def test_photos_have_seeds_instead_of_samples():
    for samples in (1, 3):
        with refused(f"seeds: cars has one dataset, .* set samples: {2 * samples} and leave this"):
            load_config(CONFIG / "urbancars_demo.yaml", [f"samples={samples}", "seeds=2"])
