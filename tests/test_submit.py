"""Entries of the leaderboard: what `diagvib submit` writes can be computed again from the
predictions, and those in the repository are valid."""

import json
import shutil
import uuid
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results
from typer.testing import CliRunner

from conftest import REPOSITORY, refused
from diagvib.cli import app
from diagvib.commands.shared_results import write_every_eval_ever
from diagvib.commands.submit import Number, entries, read_entry, same_number
from diagvib.foundation.files import file_sha256, read_json, write_json
from diagvib.papers.all_tables import tabulate
from diagvib.settings.layout import Run
from diagvib.settings.resolve import load_config
from synthetic_runs import expected_runs, note_files, write_cells, write_run

RUNS = expected_runs(["small_cnn", "resnet18"], ["zgo", "fgo-20"], ["shape-hue"], samples=3)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    for run in RUNS:
        note_code(write_run(folder / "results/runs", run), "c")
    shutil.rmtree(folder / "results/runs/resnet18/zgo/shape-hue/2")
    settings = load_config(None, ["samples=3"]).model_dump(mode="json")
    tabulate(folder / "results/runs", folder / "results/tables", RUNS, settings)
    return folder


def note_code(run: Path, code: str) -> None:
    """Say in a run's record by which code it was made."""
    write_json(run / "run.json", read_json(run / "run.json") | {"code": code})


def submitted(root, out, *options):
    return CliRunner().invoke(app, ["submit", str(root), "--by", "me", "--out", str(out), *options])


def test_an_entry_can_be_computed_again_from_the_predictions(root, tmp_path):
    result = submitted(root, tmp_path / "board")
    assert result.exit_code == 0 and "zgo, resnet18: left out" in result.output
    case = sorted(path.parent.name for path in (tmp_path / "board").rglob("*.json"))
    assert case == ["fgo-20", "fgo-20", "zgo"]
    entry = read_entry(tmp_path / "board/zgo/small_cnn.json")
    accuracies = []
    for sample in range(3):
        path = root / f"results/runs/small_cnn/zgo/shape-hue/{sample}/predictions.parquet"
        table = pd.read_parquet(path).astype(str).query("group == 'ood'")
        right = table["prediction"] == table["shape"]
        accuracies.append(right.groupby(table["shape"]).mean().mean())
        assert entry.runs[f"shape-hue/{sample}"].predictions == file_sha256(path)
    (faavg,) = (item for item in entry.metrics if item.metric == "faavg")
    assert faavg.mean == pytest.approx(np.mean(accuracies)) and faavg.n == 3
    assert faavg.low < faavg.mean < faavg.high and faavg.binding == "shape (1 of 5 cues)"
    assert entry.protocol["training"]["max_epochs"] == 30 and entry.supervision == "none"


def test_a_root_without_enough_runs_or_tables_is_named(root, tmp_path):
    root = shutil.copytree(root, tmp_path / "root")
    path = root / "results/tables/runs.parquet"
    runs = pd.read_parquet(path)
    runs[runs["sample"] < 2].to_parquet(path)
    assert "nothing in it can be submitted" in str(submitted(root, tmp_path).exception)
    assert "run `diagvib tabulate --config FILE`" in str(submitted(tmp_path, tmp_path).exception)


def test_tables_of_earlier_runs_are_refused(root, tmp_path):
    root = shutil.copytree(root, tmp_path / "root")
    path = root / "results/runs/small_cnn/zgo/shape-hue/0"
    table = pq.read_table(path / "predictions.parquet")
    column = table.column_names.index("prediction")
    backwards = table["prediction"].take([*range(len(table))][::-1])
    flipped = table.set_column(column, "prediction", backwards)
    pq.write_table(flipped, path / "predictions.parquet")
    note_files(path)
    assert "made from other runs of small_cnn on zgo" in str(submitted(root, tmp_path).exception)


def test_an_entry_is_replaced_only_by_those_who_made_it(root, tmp_path):
    for _ in range(2):
        assert submitted(root, tmp_path).exit_code == 0
    alternative = submitted(root, tmp_path, "--by", "someone else")
    assert "zgo/small_cnn.json: this entry is by me; rename" in str(alternative.exception)
    assert "by: the submitter's name is missing" in str(
        submitted(root, tmp_path, "--by", " ").exception
    )


def test_replicates_on_a_shared_dataset_have_seeds_of_their_own(root, tmp_path):
    """Such as those of a study of one's own photos."""
    assert submitted(root, tmp_path).exit_code == 0
    entry = json.loads((tmp_path / "zgo/small_cnn.json").read_text()) | {"study": "mine"}
    for number in (1, 2):
        run = Run("small_cnn", "mine", "shape-hue", number, shared=True)
        entry["runs"][f"shape-hue/{number}"]["seed"] = run.training_seed(1332)
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine/small_cnn.json"
    path.write_text(json.dumps(entry))
    assert read_entry(path).study == "mine"


def test_studies_with_other_metrics_can_be_submitted(tmp_path):
    """Their numbers are those of the counts, and a mean over some bindings says over how many."""
    names = ["shape-hue", "hue-shape", "shape-hue-position"]
    runs = expected_runs(["small_cnn"], ["whac-95", "o2o-easy"], names, samples=3)
    for run in runs:
        path = write_cells(tmp_path / "results/runs", run, lambda cell, position: position % 2)
        note_code(path, "c")
    settings = load_config(None, ["samples=3"]).model_dump(mode="json")
    tabulate(tmp_path / "results/runs", tmp_path / "results/tables", runs, settings)
    assert submitted(tmp_path, tmp_path / "board").exit_code == 0
    result = {
        path.parent.name: read_entry(path).metrics
        for path in (tmp_path / "board").rglob("small_cnn.json")
    }
    assert {row.metric for row in result["whac-95"]} >= {"cue_1_gap", "worst_group"}
    (mean,) = (
        item
        for item in result["o2o-easy"]
        if (item.metric, item.binding[:4]) == ("accuracy", "mean")
    )
    assert mean.binding == "mean of 2 of 15 bindings"


def renumbered(entry):
    """The three best of more runs."""
    entry["runs"] = {
        f"shape-hue/{2 * position}": run for position, run in enumerate(entry["runs"].values())
    }


def with_another_seed(entry):
    """A run with a further seed on the first sample."""
    seed = Run("small_cnn", "zgo", "shape-hue", 0, seed=1).training_seed(1332)
    entry["runs"]["shape-hue/0-seed1"] = entry["runs"]["shape-hue/0"] | {"seed": seed}


MISTAKES = {
    "a changed number": (
        lambda e: e["metrics"][0].update(mean=0.9),
        r"metrics: faavg shape \(1 of 5 cues\) is .*0.9",
    ),
    "a number changed a little": (
        lambda e: e["metrics"][0].update(mean=e["metrics"][0]["mean"] + 0.001),
        "metrics: faavg shape",
    ),
    "a narrower interval": (lambda e: e["metrics"][0].update(low=0.1), "metrics: faavg shape"),
    "a number left out": (lambda e: e["metrics"].pop(), r"metrics: id_accuracy shape .* is None"),
    "a changed count": (
        lambda e: e["runs"]["shape-hue/1"]["cells"][-1].__setitem__(4, 99),
        "but the counts give",
    ),
    "more correct images than there are": (
        lambda e: e["runs"]["shape-hue/1"]["cells"][-1].__setitem__(5, 999),
        "a cell has more correct images than images",
    ),
    "a cell without some columns": (
        lambda e: e["runs"]["shape-hue/1"]["cells"][-1].pop(),
        r"runs\.shape-hue/1\.cells",
    ),
    "a single run": (
        lambda e: [e["runs"].pop(f"shape-hue/{position}") for position in (1, 2)],
        r"numbers \[0\]; at least 3 are needed",
    ),
    "no run": (lambda e: e.update(runs={}), "runs: must have at least 1"),
    "no date": (lambda e: e.update(date="yesterday"), "date: "),
    "nobody who submits": (lambda e: e.update(by=" "), "by: the submitter's name is missing"),
    "too many runs": (lambda e: e["metrics"][0].update(n=4), "metrics: faavg shape"),
    "too few runs": (lambda e: e["metrics"][0].update(n=2), r"metrics\.0\.n"),
    "other seeds": (lambda e: e["protocol"]["training"].update(seed=7), "training.seed 1332"),
    "another seed": (
        lambda e: e["runs"]["shape-hue/1"].update(seed=7),
        r"runs\.shape-hue/1: seed 7",
    ),
    "a seed of one sample alone": (
        with_another_seed,
        r"numbers \[0, 0-seed1, 1, 2\]; .* each with the same seeds",
    ),
    "the best of more runs": (renumbered, r"numbers \[0, 2, 4\]"),
    "an epoch chosen by test images": (
        lambda e: (e.update(selection="oracle"), e["settings"].update(selection="oracle")),
        "selection: oracle may use test images",
    ),
    "less supervision than there was": (
        lambda e: e["settings"]["method"].update(supervision="cues"),
        "supervision is 'none'",
    ),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_entry_is_refused(root, tmp_path, change, message):
    assert submitted(root, tmp_path).exit_code == 0
    path = tmp_path / "zgo/small_cnn.json"
    entry = json.loads(path.read_text())
    read_entry(path)
    change(entry)
    path.write_text(json.dumps(entry))
    with refused(f"small_cnn.json: .*{message}"):
        read_entry(path)


def test_records_of_every_eval_ever_are_valid_and_say_the_same(root, tmp_path):
    schema = json.loads((Path(__file__).parent / "every_eval_ever.schema.json").read_text())
    result = submitted(root, tmp_path, "--format", "every-eval-ever")
    paths = sorted(tmp_path.rglob("*.json"))
    assert result.exit_code == 0 and len(paths) == 3
    for path in paths:
        record = json.loads(path.read_text())
        jsonschema.Draft7Validator(schema).validate(record)
        assert record["schema_version"] == schema["version"]
    records = {
        tuple(
            item["score_details"]["score"]
            for item in json.loads(path.read_text())["evaluation_results"]
        )
        for path in paths
    }
    assert records == {tuple(row.mean for row in entry.metrics) for entry in entries(root, "me")}


def test_a_record_says_what_values_a_metric_can_have_and_whether_less_is_better(root, tmp_path):
    (entry, *_) = entries(root, "me")
    names = "faavg", "cue_1_gap", "confusion", "carton_gap", "carton_rank"
    metrics = [entry.metrics[0].model_copy(update={"metric": name}) for name in names]
    path = write_every_eval_ever(entry.model_copy(update={"metrics": metrics}), tmp_path)
    content = [item["metric_config"] for item in read_json(path)["evaluation_results"]]
    assert [item["lower_is_better"] for item in content] == [False, False, True, True]
    assert [(item["min_score"], item["max_score"]) for item in content] == [
        *((0, 1), (-1, 1), (0, 1), (-1, 1)),
    ], "a rank has no bounds"


def test_every_eval_ever_accepts_the_names_of_files(root, tmp_path):
    """Of version 4, though the same entry gives the same file; the submitter's is one folder."""
    assert (
        submitted(root, tmp_path, "--format", "every-eval-ever", "--by", "../A / B").exit_code == 0
    )
    for path in tmp_path.rglob("*.json"):
        by, _, _ = path.relative_to(tmp_path / "data/diagvib").parts
        assert by == "A-B" and uuid.UUID(path.stem).version == 4


def test_a_mean_of_zero_may_differ_in_its_last_bits():
    single = Number(metric="faavg", binding="shape", mean=0.0, low=-0.1, high=0.1, n=3)
    assert same_number(single, single.model_copy(update={"mean": 1e-17, "low": -0.1 + 1e-16}))
    assert not same_number(single, single.model_copy(update={"mean": 1e-3}))
    assert not same_number(single, single.model_copy(update={"low": None}))


def test_results_for_model_cards_are_read_by_the_hubs_library(root, tmp_path):
    assert submitted(root, tmp_path, "--format", "model-index").exit_code == 0
    content = yaml.safe_load((tmp_path / "zgo/small_cnn.yaml").read_text())
    name, results = model_index_to_eval_results(content["model-index"])
    assert name == "small_cnn" and {row.dataset_type for row in results} == {"diagvib-zgo"}
    assert {row.metric_type for row in results} == {"faavg", "famin", "id_accuracy"}


def test_the_repositorys_entries_are_valid_and_those_of_the_published_results():
    entries = [read_entry(path) for path in sorted((REPOSITORY / "leaderboard").glob("*/*.json"))]
    assert entries
    for study, folder in (("whac-95", "frozen_whac_a_mole"),):
        table = pd.read_csv(REPOSITORY / f"docs/results/{folder}/metrics.csv")
        means = table.set_index(["baseline", "metric"])["mean"]
        for entry in entries:
            for item in entry.metrics if entry.study == study else ():
                assert item.mean == pytest.approx(means[entry.baseline, item.metric], abs=1e-9)


def test_an_entry_says_what_its_runs_say(root, tmp_path):
    root = shutil.copytree(root, tmp_path / "root")
    note_code(root / "results/runs/small_cnn/zgo/shape-hue/1", "b")
    table = root / "results/tables/runs.parquet"
    runs = pd.read_parquet(table)
    runs.loc[(runs["study"] == "zgo") & (runs["sample"] == 1), ["reason", "sources"]] = (
        "odd",
        "mine",
    )
    runs.to_parquet(table)
    (entry,) = (item for item in entries(root, "me") if item.study == "zgo")
    assert (entry.code, entry.doubts, entry.sources) == (["b", "c"], ["odd"], ["mine", "official"])


def test_an_entry_in_another_place_is_refused(root, tmp_path):
    assert submitted(root, tmp_path).exit_code == 0
    path = tmp_path / "zgo/small_cnn.json"
    moved = shutil.copytree(path.parent, tmp_path / "zso") / path.name
    with refused("zso/small_cnn.json: should be at zgo/small_cnn.json"):
        read_entry(moved)


def test_records_and_cards_have_the_numbers_of_the_entry(root, tmp_path):
    for form in ("leaderboard", "every-eval-ever", "model-index"):
        assert submitted(root, tmp_path / form, "--format", form).exit_code == 0
    entry = read_json(tmp_path / "leaderboard/zgo/small_cnn.json")
    (record,) = (
        single
        for path in (tmp_path / "every-eval-ever").rglob("*.json")
        if (single := read_json(path))["evaluation_id"].startswith("diagvib_zgo/me/small_cnn/")
    )
    card = yaml.safe_load((tmp_path / "model-index/zgo/small_cnn.yaml").read_text())
    display = card["model-index"][0]["results"]
    for ours, theirs, on_card in zip(
        entry["metrics"], record["evaluation_results"], display, strict=True
    ):
        assert on_card["metrics"] == [{"type": ours["metric"], "value": ours["mean"]}]
        inputs = theirs["score_details"]["uncertainty"]
        ends = inputs["confidence_interval"]
        assert (inputs["num_samples"], ends["lower"], ends["upper"]) == (
            ours["n"],
            ours["low"],
            ours["high"],
        )
        assert theirs["source_data"]["dataset_name"] == f"diagvib zgo {ours['binding']}"


@pytest.mark.parametrize(("metric", "minimum"), [("cue_1_gap", -1), ("id_accuracy", 0)])
def test_a_difference_may_be_negative_and_days_are_kept(tmp_path, metric, minimum):
    path = min((REPOSITORY / "leaderboard/whac-95").glob("*.json"))
    entry = read_entry(path)
    fewer = [
        single.model_copy(update={"n": 3 + position})
        for position, single in enumerate(entry.metrics)
    ]
    entry = entry.model_copy(update={"date": "2026-03-17", "metrics": fewer})
    record = read_json(write_every_eval_ever(entry, tmp_path))
    assert record["retrieved_timestamp"] == "1773705600"
    configs = [item["metric_config"] for item in record["evaluation_results"]]
    assert {row["min_score"] for row in configs if row["metric_name"] == metric} == {minimum}
    inputs = [item["score_details"]["uncertainty"] for item in record["evaluation_results"]]
    assert [item["num_samples"] for item in inputs] == [item.n for item in entry.metrics]
