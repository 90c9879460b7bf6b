"""Test accuracies under each selection rule, had it chosen the epoch of the runs, or the trial and
the epoch of random searches. Nothing is trained again."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.results.average import mean_over_studies
from diagvib.results.cells import RUN_KEYS
from diagvib.results.gaps import BASELINE, binding_names, measures_table
from diagvib.results.known_studies import KnownStudies
from diagvib.results.paper import percent
from diagvib.results.read_runs import Collected
from diagvib.results.shortcut import OOD
from diagvib.training.selection_rules import RULES, TESTED, kept_epochs

RULES_TITLE = "Accuracy under each selection rule"
RULES_NOTE = (
    "Accuracy on the test environment if the rule had chosen the epoch of each run (in random searches: the trial and "
    "its epoch), in percent: mean ± standard error over the dataset samples. The oracle looks at the test images: it is "
    "not a result but an upper bound for every rule."
)
OVER = {"runs": "Runs", "trials": "Random searches"}
_COLUMNS = [
    "over",
    "rule",
    "study",
    *BASELINE,
    "binding",
    "mean",
    "stderr",
    "low",
    "high",
    "n",
    "expected",
    "trial",
]
# What is read of a random search's training runs.
_SEARCHED = ("baseline", "study", "binding", "sample", "trial", "rule", TESTED, "chosen")


def selection_average(
    collected: Collected, searched: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> pd.DataFrame:
    """A row per rule, study, baseline and binding, for runs on studies judged by `average` and for
    random searches.

    searched: from `read_searches`. Rows with an empty binding or study are means, as in `average`.
    Columns: over (runs | trials); mean, stderr, low, high, n, expected of the test accuracy; trial
    that a search would choose. Runs that recorded no test accuracies count as missing; a baseline
    without any run that recorded them has no rows.
    """
    own = searched[
        searched["baseline"].isin(collected.frame["baseline"]) & searched["chosen"].astype(bool)
    ]
    trial = own.drop_duplicates(["baseline", "study", "rule"]).set_index(
        ["baseline", "study", "rule"]
    )["trial"]
    parts = []
    for over, values in (
        ("runs", _run_values(collected, known)),
        ("trials", _searched_values(own)),
    ):
        rules = [rule for rule in RULES if rule in values]
        noted = (
            values[rules]
            .notna()
            .any(axis=1)
            .groupby([values["study"], values["baseline"]])
            .transform("any")
        )
        values = values[noted]
        rows = pd.concat(
            [
                measures_table(values, baselines, rules),
                mean_over_studies(values, rules, baselines),
            ]
        ).rename(columns={"metric": "rule"})
        keys = pd.MultiIndex.from_frame(rows[["baseline", "study", "rule"]])
        parts.append(
            rows.assign(
                over=over,
                trial=trial.reindex(keys).to_numpy(float) if over == "trials" else np.nan,
            )[_COLUMNS]
        )
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def _run_values(collected: Collected, known: KnownStudies) -> pd.DataFrame:
    """Each run's RUN_KEYS and test accuracy by rule, for studies judged by `average`."""
    frame, history = collected.frame, collected.history
    chosen = frame["study"].isin(known.judged_by("average", frame["study"])).to_numpy()
    rows = [
        _by_rule(epochs, history)
        for epochs, of in zip(collected.selectable(), chosen, strict=True)
        if of
    ]
    found = pd.DataFrame(rows, index=frame.index[chosen], dtype=float)
    return frame.loc[chosen, RUN_KEYS].join(
        found.reindex(columns=[rule for rule in RULES if rule in found])
    )


def _by_rule(epochs: np.ndarray | None, history: Sequence[str]) -> dict[str, float]:
    """A run's test accuracy by rule; empty if not recorded."""
    column = f"{OOD}_accuracy"
    if epochs is None or column not in history:
        return {}
    epochs = epochs[~np.isnan(epochs[:, history.index(column)])]
    if not len(epochs):
        return {}
    columns = {
        **dict(zip(history, epochs.T, strict=True)),
        TESTED: epochs[:, history.index(column)],
    }
    return {rule: columns[TESTED][at] for rule, at in kept_epochs(columns).items()}


def _searched_values(own: pd.DataFrame) -> pd.DataFrame:
    """The same for searches: of the trial that each rule would choose. own: the chosen rows of
    `read_searches`."""
    roles = own["binding"].str.split("-", n=1, expand=True).reindex(columns=[0, 1]).fillna("")
    keyed = own.assign(target=roles[0], cue=roles[1])
    return keyed.pivot(index=RUN_KEYS, columns="rule", values=TESTED).reset_index()


def read_searches(folder: Path | None) -> pd.DataFrame:
    """The results of random searches that `diagvib tune` has written to a folder, if any, all
    baselines together.

    DiagvibError for a file that cannot be read; tables of grids are skipped.
    """
    parts = [pd.DataFrame(columns=_SEARCHED)]
    for path in sorted(Path(folder).glob("*.csv")) if folder else ():
        try:
            table = pd.read_csv(path)
        except (OSError, ValueError) as error:
            raise DiagvibError(
                f"{path}: not readable ({one_line(error)}); delete it and run `snakemake tuned` again"
            ) from None
        if set(_SEARCHED) <= set(table):
            parts.append(table.loc[table["rule"].notna(), list(_SEARCHED)])
    return pd.concat(parts[1:] or parts, ignore_index=True)


def rule_lines(
    ranks: pd.DataFrame, known: KnownStudies
) -> tuple[list[str], Iterator[tuple[list[str], list[dict]]]]:
    """Heads of `selection_average` for runs or for trials, and lines: labels, and each rule's row, {}
    if it has none. With several bindings, only their mean."""
    rules = [rule for rule in RULES if rule in set(ranks["rule"])]
    ranks = ranks.assign(called=binding_names(ranks))
    means = set(
        ranks.loc[ranks["binding"] == "", ["study", "baseline"]].itertuples(index=False, name=None)
    )

    def lines() -> Iterator[tuple[list[str], list[dict]]]:
        for (study, baseline, binding), own in ranks.groupby(
            ["study", "baseline", "binding"], sort=False
        ):
            if binding and (study, baseline) in means:
                continue
            row = own.iloc[0]
            names = [
                known.title(study) if study else "mean",
                baseline,
                row["method"],
                row["supervision"],
                row["called"],
            ]
            there = own.set_index("rule").to_dict("index")
            yield names, [there.get(rule, {}) for rule in rules]

    return [
        "study",
        "baseline",
        "method",
        "supervision",
        "binding",
        *(RULES[rule] for rule in rules),
    ], lines()


def rule_text(row: Mapping) -> tuple[str, str]:
    """A cell of `rule_lines`, and the trial: `75.0 ± 1.2` and `trial 7`."""
    if not row:
        return "", ""
    text = percent(row["mean"], row["stderr"], row["n"], row["expected"])
    return text, "" if row["trial"] != row["trial"] else f"trial {int(row['trial'])}"
