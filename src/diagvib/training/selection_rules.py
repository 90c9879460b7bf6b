"""Rules for choosing an epoch, and which epoch each would have kept in a training that recorded
what it needs."""

from collections.abc import Mapping, Sequence

import numpy as np

LAST, ORACLE, INFERRED = "last", "oracle", "val_worst_inferred_group"
# The column of the history that each rule uses (lowest loss, highest value of all others), and its
# name. The oracle looks at the test images: it is not a result but an upper bound for all rules.
RULES = {
    "val_loss": "validation loss",
    "val_accuracy": "validation accuracy",
    "val_worst_class": "worst class",
    "val_worst_group": "worst group",
    INFERRED: "worst inferred group",
    "val_environment_accuracy": "training-domain accuracy",
    LAST: "last epoch",
    ORACLE: "oracle",
}
# If a study has this test group, it is the one that counts: the images on which the cue misleads.
_MISLED = "ood_accuracy"
TESTED = "test_accuracy"


def tested(row: Mapping[str, float]) -> float:
    """The test accuracy recorded for an epoch: that of the images on which the cue misleads or, if
    a study has other test groups, the mean over these; NaN if there is none."""
    groups = [value for name, value in row.items() if is_tested(name)]
    return row[_MISLED] if _MISLED in row else float(np.mean(groups)) if groups else float("nan")


def is_tested(column: str) -> bool:
    """Whether a column of the history is the accuracy on a test group."""
    return column.endswith("_accuracy") and not column.startswith(("train_", "val_"))


def training_domain(columns: Sequence[str]) -> str:
    """The rule that DomainBed selects by, if its columns were recorded: the mean accuracy over the
    training environments or, in a study with one, the validation accuracy."""
    several = "val_environment_accuracy"
    return several if several in columns else "val_accuracy"


def score(row: Mapping[str, float], rule: str) -> tuple[float, float]:
    """How good an epoch is by a rule, the larger the better. Ties, which are common for worst groups
    with accuracy 0, go to the higher validation accuracy."""
    return -row[rule] if rule == "val_loss" else row[rule], row["val_accuracy"] or 0.0


def kept_epochs(epochs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Rule -> the index of the epoch that it keeps, for each of the RULES that can be evaluated.

    epochs: float[epochs] by column: val_loss, val_accuracy, others if recorded, and TESTED, NaN
    where it was not recorded. Ties go to the epoch with the higher validation accuracy, then to the
    earliest, as in training.
    """
    accuracy = np.nan_to_num(epochs["val_accuracy"])
    number = np.arange(len(accuracy))
    scores = {
        rule: -epochs[rule] if rule == "val_loss" else epochs[rule]
        for rule in RULES
        if rule in epochs
    }
    scores |= {LAST: number.astype(float), ORACLE: epochs[TESTED]}
    # NaN sorts last.
    return {
        rule: int(np.lexsort((number, -accuracy, -scores[rule]))[0])
        for rule in RULES
        if rule in scores and not np.isnan(scores[rule]).all()
    }
