"""The metrics of one set of predictions: the numbers that a study's tables would give for a run."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError
from diagvib.results.calibration import calibration_errors
from diagvib.results.cells import (
    RUN_KEYS,
    cells_table,
    class_mean,
    count_cells,
    per_image,
    worst_cell,
)
from diagvib.results.combinations import CLASSES
from diagvib.results.metric_sets.metric_set import Results
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.settings.layout import Run
from diagvib.studies.known_studies import KnownStudies, sample_of

# A probability in half precision, or of few digits, may be less than it was.
_ROUNDED = 0.99


def below_chance(confidence: np.ndarray, classes: int) -> np.ndarray:
    """The numbers of the confidences, float[N], with which another of so many classes would be
    predicted."""
    return np.flatnonzero(confidence < _ROUNDED / classes)


def evaluate(
    study: str,
    binding: str,
    sample: int,
    split: str,
    table: pa.Table,
    prediction: Sequence[str],
    known_studies: KnownStudies,
    confidence: np.ndarray | None = None,
) -> dict[str, float]:
    """The metrics of a study for predictions on one split of a dataset.

    table: the images in their order, with group, the binding's factors, and environment if there is
    one. prediction: a class name for each image; confidence: its probability, float[N]. Every value
    is a fraction.

    `{group}_accuracy` is the mean of the classes' accuracies in a group, `accuracy` the same over
    all images, and `worst_cell` the accuracy of the worst combination of target and cues; in
    studies judged by `accuracy`, `{target}-{cue}_accuracy` is that of each combination. With
    confidence, `{group}_ece` and `ece` are the calibration errors of a group, and of all images. On the
    test split, the numbers of the study's own set of metrics are added (docs/gaps.md,
    docs/average.md), such as the gaps; those of `average` replace `accuracy` and `worst_cell` by
    the same on the group `ood` alone; those that need more than test images and predictions, such as
    `adjusted_accuracy`, are left out. DiagvibError unless there is exactly one prediction for each
    image, and for a test split in which a group of the study has no image; a warning names a cell
    without one.
    """
    if len(prediction) != len(table):
        raise DiagvibError(
            f"{study} {binding}: {len(prediction)} predictions for the {len(table)} images of the split "
            f"{split}; give one for each, in the dataset's order"
        )
    target, *cues = binding.split("-")
    run = Run("", study, binding, sample).keys
    if split == "test":
        _check_cells(known_studies, study, [target, *cues], sample, table)
    answered = table.append_column("prediction", pa.array(prediction, pa.string()))
    labels = known_studies.misleading_label(study, [target, *cues], sample, {})
    cells = cells_table(
        pd.DataFrame([run], columns=RUN_KEYS), [count_cells(answered, target, cues, labels)]
    )
    groups = class_mean(cells, ["group"]).add_suffix("_accuracy").to_dict()
    result = {
        "accuracy": class_mean(cells, RUN_KEYS).item(),
        **groups,
        "worst_cell": worst_cell(cells, RUN_KEYS).item(),
    }
    if confidence is not None:
        answered = answered.append_column("confidence", pa.array(confidence))
        result |= calibration_errors(answered, target)
    combinations: dict[str, float] = {}
    if known_studies.studies[study].metrics == "accuracy":
        shares = per_image(cells, CLASSES)
        names = ("-".join(filter(None, names)) for names in shares.index)
        combinations = {
            f"{name}_accuracy": share for name, share in zip(names, shares, strict=True)
        }
    if split == "test":
        metric_set = METRIC_SETS[known_studies.studies[study].metrics]
        values = metric_set.of_run(
            Results(pd.DataFrame([{**run, **groups}]), cells, known_studies, {})
        )
        result |= values.drop(columns=RUN_KEYS).iloc[0].astype(float).dropna().to_dict()
    return with_combinations(combinations, result)


def with_combinations(
    combinations: Mapping[str, float], metrics: Mapping[str, float]
) -> dict[str, float]:
    """The accuracies of combinations of classes, then metrics. DiagvibError if two have one name."""
    if doubled := min(combinations.keys() & metrics.keys(), default=None):
        raise DiagvibError(
            f"two metrics would be called {doubled}; rename the class {doubled.removesuffix('_accuracy')}"
        )
    return {**combinations, **metrics}


def _check_cells(
    known_studies: KnownStudies, name: str, factors: Sequence[str], sample: int, table: pa.Table
) -> None:
    """Warn of a cell of the test split without images; DiagvibError for a group without any."""
    study = known_studies.studies[name]
    cells = study.cells("test", sample_of(study.scene, sample).added_cue)
    classes = known_studies.classes(name, factors, sample)
    for factor, role, names in zip(factors, study.bound, classes, strict=True):
        cells[factor] = [names[number] for number in cells[f"{role}_class"]]
    by = ["environment"] * ("environment" in table.column_names) + ["group", *factors]
    tested = table.select(by).to_pandas()
    message = f"{name} {'-'.join(factors)}: the test split has no image"
    lost = set(cells["group"]) - set(tested["group"])
    if lost:
        remedy = "its photos have none in this split" if study.as_published else "raise its number"
        raise DiagvibError(f"{message} of group {min(lost)}; {remedy}")
    needed, tested = (pd.MultiIndex.from_frame(frame[tested.columns]) for frame in (cells, tested))
    for cell in needed.difference(tested)[:1]:
        text = f"{message} of the cell {', '.join(cell)}; metrics are of the other cells"
        warnings.warn(text, stacklevel=4)
