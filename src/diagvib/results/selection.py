"""What other selection rules would have given, from the test accuracies that runs recorded after every epoch
(`training.track_test`). Nothing is trained again."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from diagvib.results.metrics import accuracy_array, faavg, famin
from diagvib.results.read_runs import NOTED

# The oracle looks at the test images: not a result, but an upper bound for all rules.
HISTORY = [*NOTED, "id_accuracy", "ood_accuracy"]
AS_RUN = "val_loss"  # the protocol's own (paper, Sec. A.2)
RULES = {AS_RUN: "lowest validation loss, as run", "val_accuracy": "highest validation accuracy",
         "last": "last epoch", "oracle": "best on the test group itself, an oracle"}
_COLUMNS = ["rule", "study", "baseline", "target", "metric", "mean", "stderr", "n", "expected", "change"]


def selection_table(frame: pd.DataFrame, epochs: Sequence[np.ndarray | None], history: Sequence[str] = HISTORY
                    ) -> pd.DataFrame:
    """FAAvg and FAMin had each of the RULES chosen the epoch; no rows if no run recorded its test accuracies.

    frame: from `read_runs.collect_runs`; epochs: float[epochs, history] of each of its rows, None for missing runs. All
    rules use the same runs, those that recorded them. Without cues: P_i on the only group, as faavg. Columns: rule,
    study, baseline, target, metric (faavg | famin), mean, stderr, n, expected, change (from the rule as run).
    """
    if not len(frame):
        return pd.DataFrame(columns=_COLUMNS)
    paired = frame["cue"] != ""
    tested = np.where(paired, "ood_accuracy", "id_accuracy")
    as_run = np.where(paired, frame["ood_accuracy"], frame["id_accuracy"])
    chosen = [_accuracies(own, list(history), column, value)
              for own, column, value in zip(epochs, tested, as_run, strict=True)]
    chosen = pd.DataFrame(chosen, columns=list(RULES), index=frame.index, dtype=float)
    rows = []
    for (study, baseline, target), runs in frame.groupby(["study", "baseline", "target"], sort=False):
        if (own := chosen.loc[runs.index]).notna().any(axis=None):
            rows += [{"rule": rule, "study": study, "baseline": baseline, "target": target, **row}
                     for rule in RULES for row in _reduced(runs, own, rule)]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _accuracies(epochs: np.ndarray | None, history: list[str], column: str, as_run: float) -> dict[str, float]:
    """An accuracy by rule; empty if the run did not record it. Ties go to the earliest epoch."""
    if epochs is None:
        return {}
    tested = epochs[:, history.index(column)]
    noted = ~np.isnan(tested)
    if not noted.any():
        return {}
    tested, validated = tested[noted], epochs[noted, history.index("val_accuracy")]
    return {AS_RUN: as_run, "val_accuracy": tested[validated.argmax()], "last": tested[-1], "oracle": tested.max()}


def _reduced(runs: pd.DataFrame, chosen: pd.DataFrame, rule: str) -> list[dict]:
    """The metrics of one (study, baseline, target) by a rule. chosen: these runs' accuracies, a column per rule."""
    acc, as_run = (accuracy_array(runs, chosen[of]) for of in (rule, AS_RUN))
    rows = []
    for metric, reduce in (("faavg", faavg), ("famin", famin))[:1 if acc.shape[1] == 1 else 2]:
        mean, stderr, n = reduce(acc)
        rows.append({"metric": metric, "mean": mean, "stderr": stderr, "n": n, "expected": len(acc),
                     "change": mean - reduce(as_run).mean})
    return rows
