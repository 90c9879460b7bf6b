"""Calibration error: of known predictions, and in the tables."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diagvib.results.calibration import (
    calibration_error,
    calibration_sentence,
    calibration_tables,
)
from diagvib.results.metric_sets.metric_set import BASELINE
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import read_runs
from diagvib.results.tidy_tables import make_tables, result_tables
from diagvib.studies.known_studies import SHIPPED
from synthetic_runs import accuracy, expected_runs, note_files, write_run


def test_the_error_of_known_predictions():
    """0.81 and 0.85 share a bin, from 12 / 15 to 13 / 15, in which one of two is right."""
    confidence, correct = np.array([0.81, 0.85, 1.0, 0.3]), np.array([1, 0, 1, 1])
    error = (abs(1 - 0.81 - 0.85) + 0 + 0.7) / 4
    assert calibration_error(confidence, correct) == pytest.approx(error)
    assert calibration_error(np.array([0.0]), np.array([1])) == 1


def test_it_is_in_the_tables_if_runs_have_probabilities(tmp_path):
    expected = expected_runs(["resnet18", "vae"], ["zgo"], ["shape-hue"], 3)
    for run in expected:
        path = write_run(tmp_path, run) / "predictions.parquet"
        table = pq.read_table(path)
        if run["baseline"] == "resnet18":
            column = pa.array(np.full(len(table), 0.9, np.float32))
            pq.write_table(table.append_column("confidence", column), path)
            note_files(path.parent)
    collected = read_runs(tmp_path, expected)
    assert "ood_ece" in collected.frame and "ece" not in collected.frame
    tables = make_tables(collected, SHIPPED, {})
    rows = tables["metrics"].query("metric_set == 'calibration'")
    errors = [abs(accuracy(run, "ood") - 0.9) for run in expected[:3]]
    result = rows[(rows["metric"] == "ood_ece") & (rows["baseline"] == "resnet18")]
    assert result["mean"].item() == pytest.approx(np.mean(errors), abs=1e-6)
    assert rows[rows["baseline"] == "vae"]["n"].eq(0).all()
    (text,) = (item for item in result_tables(tables, SHIPPED) if item.section == "Calibration")
    assert text.heads[-2:] == ["id", "ood"]
    furthest = calibration_sentence(rows, SHIPPED)
    assert "resnet18 in ZGO, test group ood" in furthest
    assert f"by {100 * np.mean(errors):.0f} points" in furthest


def test_the_sentence_is_of_the_mean_over_all_bindings_as_the_table_is():
    means = [("", 0.625), ("shape-hue", 0.85), ("hue-shape", 0.4)]
    rows = pd.DataFrame(means, columns=["binding", "mean"])
    rows = rows.assign(study="zgo", baseline="net", metric="ood_ece")
    assert "by 62 points on average" in calibration_sentence(rows, SHIPPED)


def test_a_measure_that_is_no_accuracy_has_no_bound_of_one():
    numbers = {"mean": 0.001, "stderr": 0.0, "n": 4, "expected": 4}
    description = dict.fromkeys(BASELINE, "net") | {"study": "zgo", "binding": "shape-hue"}
    rows = pd.DataFrame([{**description, **numbers, "metric": "ood_ece"}])
    (table,) = calibration_tables(rows, SHIPPED)
    assert table.rows[0][-1] == "0.1 (n = 4)"
    watermark = METRIC_SETS["watermark"]
    assert watermark.text({**numbers, "metric": "p_carton"}) == "0.1 (n = 4)"
    assert watermark.text({**numbers, "metric": "in1k_accuracy"}).startswith("0.1 (≤ ")


def test_a_bin_has_its_upper_edge():
    """Certain predictions are in the last bin, with those above 14 / 15."""
    error = calibration_error(np.array([1.0, 0.95]), np.array([0, 1]))
    assert error == pytest.approx(abs(1 - 1.95) / 2)
