"""Known answers: what the numbers must be for simple predictors."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from diagvib.library import StudyDataset
from diagvib.metrics import (
    Estimate,
    faavg,
    famin,
    mean_per_class_accuracy,
    per_class_accuracy,
)
from diagvib.results.cells import count_cells


def test_classes_weigh_alike_whatever_their_size():
    labels, predictions = [0, 0, 0, 0, 1], [0, 0, 0, 5, 0]
    assert per_class_accuracy(labels, predictions) == {0: 0.75, 1: 0.0}
    assert mean_per_class_accuracy(labels, predictions) == 0.375


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [([], []), ([1, 2], [1]), ([None, "a"], ["a", "a"])],
)
def test_nothing_unequal_lengths_and_missing_labels_are_errors(labels, predictions):
    with pytest.raises(ValueError):
        mean_per_class_accuracy(np.array(labels), np.array(predictions))


@pytest.mark.parametrize(
    ("labels", "predictions", "says"),
    [
        (["0", "1"], [0, 1], "labels are string and predictions integer, so none would be right"),
        ([0, 1], np.array(["0", "1"], object), "labels are integer and predictions string"),
        ([0, 1], [np.nan, 1.0], "prediction 0 is missing"),
    ],
)
def test_numbers_beside_names_are_no_accuracy_of_zero(labels, predictions, says):
    for function in (mean_per_class_accuracy, per_class_accuracy):
        with pytest.raises(ValueError, match=says):
            function(labels, predictions)
    assert mean_per_class_accuracy([0, 1], [0.0, 1.0]) == 1
    assert mean_per_class_accuracy(["a", "b"], pd.Categorical(["a", "a"])) == 0.5


def test_faavg_and_famin_of_a_hand_made_array():
    acc = np.array([[1.0, 0.5, 0.0], [0.8, 0.6, 0.4]])  # means 0.5, 0.6; minima 0.0, 0.4
    mean, stderr, n = faavg(acc)
    assert (mean, n) == (pytest.approx(0.55), 2)
    assert stderr == pytest.approx(0.05)  # std with ddof 1 = 0.1/sqrt 2, over sqrt 2
    assert float(famin(acc)) == pytest.approx(0.2)
    assert famin(acc).stderr == pytest.approx(0.2)
    assert famin(acc).std == pytest.approx(0.4 / math.sqrt(2))


def test_a_sample_that_lacks_a_cue_does_not_count():
    acc = np.array([[0.2, 0.4], [np.nan, 0.9], [0.6, 0.8]])
    assert tuple(faavg(acc)) == (pytest.approx(0.5), pytest.approx(0.2), 2)
    assert tuple(famin(acc))[::2] == (pytest.approx(0.4), 2)


def test_one_sample_has_no_standard_error_and_none_has_no_mean():
    single, nothing = faavg(np.array([[0.5, 0.7]])), faavg(np.array([[0.5, np.nan]]))
    assert single.mean == pytest.approx(0.6) and single.n == 1 and math.isnan(single.stderr)
    assert nothing.n == 0 and math.isnan(nothing) and math.isnan(nothing.stderr)


@pytest.mark.parametrize("acc", [np.zeros(5), np.zeros((5, 0))])
def test_accuracies_must_be_samples_by_cues(acc):
    with pytest.raises(ValueError, match="samples, cues"):
        faavg(acc)


def test_faavg_of_differences_pairs_samples_and_cues():
    zgo = np.array([[0.1, 0.3], [0.5, 0.1], [0.2, 0.2]])
    gain = np.array([[0.2, 0.4], [0.1, 0.1], [0.4, 0.2]])  # per-sample means 0.3, 0.1, 0.3
    result = faavg(zgo + gain - zgo)
    assert result.mean == pytest.approx(0.7 / 3)
    assert result.std == pytest.approx(np.std([0.3, 0.1, 0.3], ddof=1))
    zgo[1, 0] = np.nan
    assert faavg(zgo + gain - zgo).n == 2


def test_an_estimate_is_a_number_and_survives_pickling():
    value = Estimate(0.5, 0.1, 4)
    assert value + 1 == 1.5 and f"{value:.2f}" == "0.50"
    assert tuple(pickle.loads(pickle.dumps(value))) == (0.5, 0.1, 4)


def test_a_prediction_of_a_class_that_is_not_tested_is_wrong():
    table = pa.table({"group": ["id"] * 2, "shape": ["3"] * 2, "prediction": ["5", "3"]})
    (cell,) = count_cells(table, "shape", [])
    assert (cell["n"], cell["correct"]) == (2, 1)


def test_a_cue_may_be_called_as_a_column_of_ours():
    fields = {"group": ["id"], "right": ["yes", "no"], "y": ["a", "b"]}
    data = SimpleNamespace(
        metadata_fields=[*fields],
        metadata_map=fields,
        cue_classes={"right": ()},
        classes=fields["y"],
    )
    rows = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    metrics, _ = StudyDataset.eval(data, torch.tensor([0, 1, 1]), rows[:, 2], rows)
    accuracies = {name: value for name, value in metrics.items() if name.startswith("acc_y")}
    assert accuracies == {
        "acc_y:a_right:no": 0,
        "acc_y:a_right:yes": 1,
        "acc_y:b_right:yes": 1,
    }
