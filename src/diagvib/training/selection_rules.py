"""Rules of choosing an epoch, and which one each would have kept of a training that noted what it needs."""

from collections.abc import Mapping, Sequence

import numpy as np

LAST, ORACLE = "last", "oracle"
# What each goes by: a column of the history, of which the loss shall be low and all others high; in words. The oracle
# looks at the test images: no result, but a bound for all.
RULES = {"val_loss": "validation loss", "val_accuracy": "validation accuracy", "val_worst_group": "worst group",
         "val_environment_accuracy": "training-domain accuracy", LAST: "last epoch", ORACLE: "oracle"}
# Where a study has this test group it is the one that counts: the images on which the cue misleads.
_MISLED = "ood_accuracy"
TESTED = "test_accuracy"


def tested(row: Mapping[str, float]) -> float:
    """The test accuracy that an epoch noted: that of the images on which the cue misleads or, where a study has other
    test groups, the mean over these; NaN if none."""
    groups = [value for name, value in row.items() if is_tested(name)]
    return row[_MISLED] if _MISLED in row else float(np.mean(groups)) if groups else float("nan")


def is_tested(column: str) -> bool:
    """Whether a column of the history is the accuracy on a test group."""
    return column.endswith("_accuracy") and not column.startswith(("train_", "val_"))


def training_domain(columns: Sequence[str]) -> str:
    """The rule that DomainBed selects by, of those whose columns were noted: the mean accuracy over the training
    environments or, in a study with one, the validation accuracy."""
    several = "val_environment_accuracy"
    return several if several in columns else "val_accuracy"


def kept_epochs(epochs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Rule -> the place of the epoch that it keeps, for each of the RULES that can be told.

    epochs: float[epochs] by column: val_loss, val_accuracy, further ones where they were noted, and TESTED, NaN where
    it was not. Of equals the epoch of the higher validation accuracy, then the earliest, as in training.
    """
    accuracy = np.nan_to_num(epochs["val_accuracy"])
    number = np.arange(len(accuracy))
    scores = {rule: -epochs[rule] if rule == "val_loss" else epochs[rule] for rule in RULES if rule in epochs}
    scores |= {LAST: number.astype(float), ORACLE: epochs[TESTED]}
    # NaN comes last.
    return {rule: int(np.lexsort((number, -accuracy, -scores[rule]))[0]) for rule in RULES
            if rule in scores and not np.isnan(scores[rule]).all()}
