"""Test accuracies under each selection rule, had it chosen the epoch of the runs, or the trial and
the epoch of random searches: from the accuracies that runs recorded after every epoch
(`training.track_test`). Nothing is trained again."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.results.cells import RUN_KEYS
from diagvib.results.metric_sets.metric_set import (
    KEYS,
    NO_INTERVAL,
    NUMBERS,
    concatenated,
    describe,
    mean_over_studies,
    numbers,
    of_all_bindings,
    over_samples,
    pivot,
)
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.metrics import accuracy_array, faavg, famin
from diagvib.results.read_runs import SELECTABLE, Collected
from diagvib.results.reader_tables import Table, of_samples, points
from diagvib.results.uncertainty import estimate
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import ID, OOD
from diagvib.training.selection_rules import LAST, ORACLE, RULES, TESTED, kept_epochs

AS_RUN = "as_run"  # by the baseline's own rule, whichever it is
# The rules for studies judged by `shortcut`.
PLAIN = ["val_loss", "val_accuracy", LAST, ORACLE]
COLUMNS = ["over", "rule", *KEYS, "metric", *NUMBERS, "change", "trial"]
TITLE = "Accuracy under each selection rule"
INTRODUCTION = [
    "Accuracy where the cue misleads (in random searches on studies without a test group `ood`: the mean of all test "
    "groups) if the rule had chosen the epoch of each run (in random searches: the trial and its epoch), in percent: "
    "mean ± standard error over the {samples}. In brackets: the change from the rule as run, in points, or the "
    "trial. The oracle looks at the test images: it is not a result but an upper bound for every rule."
]
_OVER = {"runs": "Runs", "trials": "Random searches"}
# The columns that are read of a random search's training runs.
_SEARCHED = ("baseline", "study", "binding", "sample", "trial", "rule", TESTED, "chosen")


def selection_table(
    collected: Collected,
    searched: pd.DataFrame,
    known_studies: KnownStudies,
    baselines: Mapping[str, dict],
) -> pd.DataFrame:
    """A row per rule, study, baseline and metric, for runs and for random searches.

    searched: from `read_searches`. COLUMNS: over (runs | trials); rule, also AS_RUN. On studies
    judged by `shortcut`: faavg and famin of each target, and change, the difference from AS_RUN on
    the same samples. On those judged by `average`: the accuracy of each binding, and means as in
    the table `metrics`; trial, the one that a search would choose. All rules use the same runs:
    those that recorded their test accuracies. A baseline without any has no rows.
    """
    values = run_values(collected)
    plain, several = (
        values[values["study"].isin(known_studies.judged_by(name, values["study"]))]
        for name in ("shortcut", "average")
    )
    compared_trials = searched[
        searched["baseline"].isin(collected.frame["baseline"]) & searched["chosen"].astype(bool)
    ]
    trials = _means(_searched_values(compared_trials), baselines).assign(over="trials")
    keys = ["baseline", "study", "rule"]
    trial = compared_trials.drop_duplicates(keys)[[*keys, "trial"]].astype({"trial": float})
    trials = trials.merge(trial, how="left", on=keys)
    runs = pd.DataFrame(_over_cues(plain, baselines), columns=COLUMNS)
    parts = [runs, _means(several, baselines).assign(over="runs"), trials]
    return concatenated(parts, COLUMNS).reindex(columns=COLUMNS)


def run_values(collected: Collected) -> pd.DataFrame:
    """RUN_KEYS, and each run's test accuracy by rule: on `ood`, without cues on `id`."""
    as_run, history = _tested(collected.frame), collected.history
    history = history.assign(**{TESTED: _tested(history)})
    recorded = history[history[SELECTABLE] & history[TESTED].notna()]
    rows = {
        run: {rule: epochs[TESTED].iloc[position] for rule, position in kept_epochs(epochs).items()}
        | {AS_RUN: as_run[run]}
        for run, epochs in recorded.groupby(level=0)
    }
    values = pd.DataFrame.from_dict(rows, "index", columns=[*RULES, AS_RUN])
    return collected.frame[RUN_KEYS].join(values.astype(float))


def _tested(table: pd.DataFrame) -> np.ndarray:
    """The accuracies that count, of runs or epochs."""
    groups = table.reindex(columns=[f"{ID}_accuracy", f"{OOD}_accuracy"]).astype(float)
    return np.where(table["cue"] == "", *groups.to_numpy().T)


def _over_cues(values: pd.DataFrame, baselines: Mapping[str, dict]) -> Iterator[dict]:
    for (study, baseline, target), runs in values.groupby(
        ["study", "baseline", "target"], sort=False
    ):
        if runs[AS_RUN].isna().all():
            continue
        description = {"over": "runs", "study": study, "target": target, "binding": "", "cue": ""}
        description |= describe(baseline, baselines)
        as_run = {}
        for rule in (AS_RUN, *PLAIN):
            acc = accuracy_array(runs, rule)
            # With a single cue, both metrics are the same.
            for metric, reduce in (("faavg", faavg), ("famin", famin))[: min(acc.shape[-1], 2)]:
                rule_values = reduce(acc)
                changes = rule_values.samples - as_run.setdefault(metric, rule_values.samples)
                row = {"rule": rule, "metric": metric, "change": estimate(changes).mean}
                yield description | row | numbers(rule_values, NO_INTERVAL)


def _means(values: pd.DataFrame, baselines: Mapping[str, dict]) -> pd.DataFrame:
    """The mean accuracy of each rule that was recorded, by binding, study and over all."""
    rules = [rule for rule in RULES if rule in values and values[rule].notna().any()]
    values = values.groupby(["study", "baseline"]).filter(
        lambda values: values[rules].notna().any(axis=None)
    )
    rows = concatenated(
        [over_samples(values, rules, baselines, {}), mean_over_studies(values, rules, baselines)],
        [*KEYS, "metric", *NUMBERS],
    )
    return rows.rename(columns={"metric": "rule"}).assign(metric="accuracy")


def _searched_values(trials: pd.DataFrame) -> pd.DataFrame:
    """The same for searches: of the trial that each rule would choose. trials: the chosen rows
    of `read_searches`."""
    roles = trials["binding"].astype("str").str.extract("(?P<target>[^-]*)-?(?P<cue>.*)")
    trials = trials.join(roles).assign(seed=0)
    return trials.pivot(index=RUN_KEYS, columns="rule", values=TESTED).reset_index()


def read_searches(folder: Path | None) -> pd.DataFrame:
    """The results of random searches that `diagvib tune` has written to a folder, if any, all
    baselines together.

    DiagvibError for a file that cannot be read; tables of grids are skipped.
    """
    parts = []
    for path in sorted(folder.glob("*.csv")) if folder else ():
        try:
            names = dict.fromkeys(_SEARCHED[:3], "str")  # which may be 007, or nan
            table = pd.read_csv(path, dtype=names, keep_default_na=False, na_values="")
        except (OSError, ValueError) as error:
            raise DiagvibError(
                f"{path}: not readable ({one_line(error)}); delete it and run `snakemake tuned` again"
            ) from None
        if set(_SEARCHED) <= set(table):
            parts.append(table.loc[table["rule"].notna(), list(_SEARCHED)])
    return concatenated(parts, _SEARCHED)


def selection_tables(selection: pd.DataFrame, known_studies: KnownStudies) -> Iterator[Table]:
    """For readers: of studies judged by `shortcut` a table for each metric; of those judged by
    `average` one of runs and one of random searches."""
    plain = selection[selection["metric"] != "accuracy"]
    for metric, rows in plain[plain["rule"] != plain["selection"]].groupby("metric", sort=False):
        factors = {f: f for f in known_studies.factors(rows["study"]) if f in set(rows["target"])}
        names = [rule_name(*keys) for keys in zip(rows["rule"], rows["selection"], strict=True)]
        change = rows["change"].mask(rows["rule"] == AS_RUN)
        rows = rows.assign(study=rows["study"].map(known_studies.title), change=change, rule=names)
        lines = pivot(rows, "target", factors, _text, ["study", "baseline", "rule"])
        title = METRIC_SETS["shortcut"].heads[metric]
        yield Table(title, *lines, [], TITLE, INTRODUCTION, folded=True)
    for over, rows in selection[selection["metric"] == "accuracy"].groupby("over", sort=False):
        rules = {rule: head for rule, head in RULES.items() if rule in set(rows["rule"])}
        rows = of_all_bindings(rows)
        rows = rows.assign(
            study=[known_studies.title(name) if name else "mean" for name in rows["study"]]
        )
        labels = ["study", "baseline", "method", "supervision", "binding"]
        lines = pivot(rows, "rule", rules, _text, labels)
        yield Table(_OVER[over], *lines, [], TITLE, INTRODUCTION)


def selection_sentence(selection: pd.DataFrame, known_studies: KnownStudies) -> str:
    """What another rule than the runs' own would change most; empty if nothing was recorded."""
    of_rules = ~selection["rule"].isin([AS_RUN, ORACLE]) & selection["change"].notna()
    changes = selection[of_rules & (selection["metric"] == "faavg")]
    if changes.empty:
        return ""
    largest = changes.loc[changes["change"].abs().idxmax()]
    if abs(largest["change"]) < 0.0005:
        return "No other rule changes an accuracy."
    verb = "gain" if largest["change"] >= 0 else "cost"
    return (
        f"Choosing the epoch by another rule would {verb} {largest['baseline']} at most "
        f"{100 * abs(largest['change']):.1f} points: {rule_name(largest['rule'], '')}, "
        f"{known_studies.title(largest['study'])}, target {largest['target']} "
        f"(the largest of {len(changes)} measured changes)."
    )


def _text(row: Mapping) -> str:
    """A number; in brackets, the change from the rule as run, or the trial."""
    text, change, trial = of_samples(row), row["change"], row["trial"]
    if change == change:
        return f"{text} ({points(change)})"
    return f"{text} (trial {trial:.0f})" if trial == trial else text


def rule_name(rule: str, selection: str) -> str:
    """A rule's name in tables. selection: the baseline's own rule, for AS_RUN."""
    if rule == AS_RUN:
        return f"{rule_name(selection, selection)}, as run"
    rule, _, cue = rule.partition("_cue_")
    return RULES.get(rule, rule) + (f" by cue {cue}" if cue else "")
