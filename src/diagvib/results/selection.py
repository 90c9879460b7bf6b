"""What other selection rules would have given, from the test accuracies that runs recorded after
every epoch (`training.track_test`). Nothing is trained again."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from diagvib.results.gaps import describe
from diagvib.results.metrics import accuracy_array, faavg, famin
from diagvib.results.read_runs import NOTED
from diagvib.training.selection_rules import LAST, ORACLE, TESTED, kept_epochs

# The oracle looks at the test images: not a result, but an upper bound for all rules.
HISTORY = [*NOTED, "id_accuracy", "ood_accuracy"]
AS_RUN = "as_run"  # by the baseline's own rule, whichever it is
RULES = ["val_loss", "val_accuracy", LAST, ORACLE]
_NAMES = {
    "val_loss": "lowest validation loss",
    "val_accuracy": "highest validation accuracy",
    LAST: "last epoch",
    ORACLE: "best on the test group itself, an oracle",
    "val_worst_group": "best worst group",
    "val_environment_accuracy": "highest training-domain accuracy",
}
_COLUMNS = [
    "rule",
    "study",
    "baseline",
    "selection",
    "target",
    "metric",
    "mean",
    "stderr",
    "n",
    "expected",
    "change",
]


def selection_table(
    frame: pd.DataFrame,
    epochs: Sequence[np.ndarray | None],
    baselines: Mapping[str, dict],
    history: Sequence[str] = HISTORY,
) -> pd.DataFrame:
    """FAAvg and FAMin as run, and had each of the RULES chosen the epoch; no rows if no run
    recorded its test accuracies.

    frame: from `read_runs.collect_runs`; epochs: float[epochs, history] of each of its rows, None
    for missing runs; baselines: name -> settings. All rules use the same runs, those that recorded
    them. Without cues: P_i on the only group, as faavg. Columns: rule (AS_RUN or one of the RULES),
    study, baseline, selection (the baseline's own rule), target, metric (faavg | famin), mean,
    stderr, n, expected, change (from AS_RUN).
    """
    if not len(frame):
        return pd.DataFrame(columns=_COLUMNS)
    paired = frame["cue"] != ""
    tested = np.where(paired, "ood_accuracy", "id_accuracy")
    as_run = np.where(paired, frame["ood_accuracy"], frame["id_accuracy"])
    chosen = [
        _accuracies(own, list(history), column, value)
        for own, column, value in zip(epochs, tested, as_run, strict=True)
    ]
    chosen = pd.DataFrame(chosen, columns=[AS_RUN, *RULES], index=frame.index, dtype=float)
    rows = []
    for (study, baseline, target), runs in frame.groupby(
        ["study", "baseline", "target"], sort=False
    ):
        if (own := chosen.loc[runs.index]).notna().any(axis=None):
            about = {
                "study": study,
                "baseline": baseline,
                "selection": describe(baseline, baselines)["selection"],
                "target": target,
            }
            rows += [
                {"rule": rule, **about, **row} for rule in own for row in _reduced(runs, own, rule)
            ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _accuracies(
    epochs: np.ndarray | None, history: list[str], column: str, as_run: float
) -> dict[str, float]:
    """An accuracy by rule; empty if the run did not record it."""
    if epochs is None:
        return {}
    epochs = epochs[~np.isnan(epochs[:, history.index(column)])]
    if not len(epochs):
        return {}
    tested = epochs[:, history.index(column)]
    kept = kept_epochs({**dict(zip(history, epochs.T, strict=True)), TESTED: tested})
    return {AS_RUN: as_run, **{rule: tested[kept[rule]] for rule in RULES if rule in kept}}


def _reduced(runs: pd.DataFrame, chosen: pd.DataFrame, rule: str) -> list[dict]:
    """The metrics of one (study, baseline, target) by a rule. chosen: these runs' accuracies, a
    column per rule."""
    acc, as_run = (accuracy_array(runs, chosen[of]) for of in (rule, AS_RUN))
    rows = []
    for metric, reduce in (("faavg", faavg), ("famin", famin))[: 1 if acc.shape[1] == 1 else 2]:
        mean, stderr, n = reduce(acc)
        rows.append(
            {
                "metric": metric,
                "mean": mean,
                "stderr": stderr,
                "n": n,
                "expected": len(acc),
                "change": mean - reduce(as_run).mean,
            }
        )
    return rows


def rule_name(rule: str, selection: str) -> str:
    """What a rule is called in tables. selection: the baseline's own rule, for AS_RUN."""
    if rule == AS_RUN:
        return f"{rule_name(selection, selection)}, as run"
    rule, _, cue = rule.partition("_cue_")
    return _NAMES.get(rule, rule) + (f" by cue {cue}" if cue else "")
