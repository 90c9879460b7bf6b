"""Random search: a baseline's settings by trials, as in DomainBed (Gulrajani and Lopez-Paz, 2021),
and the trial that each selection rule would choose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.table import Table

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import print_wide
from diagvib.settings.grid import Run
from diagvib.settings.search_space import described, search_space, trial_values, with_values
from diagvib.training.selection_rules import (
    LAST,
    ORACLE,
    RULES,
    TESTED,
    is_tested,
    kept_epochs,
    tested,
    training_domain,
)
from diagvib.training.trials import Task, Trials, write_tuned

_RANGES = "tuning.random_search.ranges"


@dataclass(frozen=True)
class Trial:
    """The settings of one trial, by key; for trial 0 the baseline's own."""

    number: int
    values: dict

    def applied(self, settings: dict) -> dict:
        """A baseline's settings with those of the trial."""
        return with_values(settings, self.values) if self.number else settings

    @property
    def file(self) -> str:
        return f"trial{self.number}"

    def __str__(self) -> str:
        return f"trial {self.number}"


def search(task: Task) -> Trial:
    """Train every trial on the tuning's study, write `out`/{baseline}.csv and .yaml, print the
    ranking; returns the trial with the best accuracy on validation images of the training
    environments.

    A method without drawn settings has one trial. A killed search can be continued and gives the
    same files; one with more trials trains only the new ones. A trial that diverges, or does not
    fit into the GPU's memory, is not chosen. DiagvibError for ranges that do not fit the baseline,
    for a batch larger than the training data, or if no trial is left.
    """
    given = task.tuning["random_search"]
    space = search_space(task.settings, given["ranges"], _RANGES, task.baseline)
    count = given["trials"] if space else 1
    candidates = [
        Trial(number, trial_values(task.settings, space, given["seed"], number))
        for number in range(count)
    ]
    trials = Trials(task, candidates, f"the range of batch_size in {_RANGES}")
    outcomes = list(trials.outcomes())
    table = pd.DataFrame([row for outcome in outcomes for row in _rows(*outcome)])
    choices = choose(table, task.baseline)
    rule = training_domain(list(choices.index))
    best = candidates[choices.loc[rule, "trial"]]
    origin = (
        f"diagvib tune; highest {RULES[rule]} ({choices.loc[rule, 'score']:.4g}) on {trials.datasets()}, trial "
        f"{best.number} of a random search of {count} (seed {given['seed']}; "
        f"{'; '.join(described(space)) or 'nothing drawn'}), with "
        f"{trials.made(min(outcome['train_images'] for *_, outcome in outcomes))}"
    )
    write_tuned(task, _ordered(table, choices, list(space)), best, origin)
    _print_trials(trials, table, candidates, rule)
    _print_choices(choices)
    print(f"chosen: {best}, with the highest {RULES[rule]}")
    return best


def _rows(run: Run, trial: Trial, outcome: dict) -> Iterator[dict]:
    """A row for each rule, or a single row without a rule for a training that gave no number."""
    about = {
        "baseline": run.baseline,
        "study": run.study,
        "binding": run.binding,
        "sample": run.sample,
        "trial": trial.number,
        **trial.values,
        "status": outcome["status"],
        "epochs": outcome["epochs"],
    }
    yield from ({**about, **row} for row in rule_rows(outcome["history"]) or [{}])


def rule_rows(history: Sequence[dict]) -> list[dict]:
    """What each rule chooses in a training: rule, epoch, score, TESTED and the accuracy on each
    test group.

    history: epochs as the trainer records them. Trials are compared by the score: the rule's own
    column at its epoch; for the last epoch, the accuracy on validation images of the training
    environments.
    """
    if not history:
        return []
    columns = {
        name: np.array([row[name] for row in history], dtype=float)
        for name in history[0]
        if name != "phase"
    }
    columns[TESTED] = np.array([tested(row) for row in history])
    judged = {LAST: training_domain(list(columns)), ORACLE: TESTED}
    return [
        {
            "rule": rule,
            "epoch": history[at]["epoch"],
            "score": columns[judged.get(rule, rule)][at],
            TESTED: columns[TESTED][at],
            **{name: history[at][name] for name in history[at] if is_tested(name)},
        }
        for rule, at in kept_epochs(columns).items()
    ]


def choose(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """For each rule, the trial that it would choose, with its score and test accuracy, averaged
    over the datasets.

    table: a row for each training and rule. Ties go to the trial with the lower number. A trial
    that lacks a number on any dataset is excluded. DiagvibError if all are.
    """
    failed = set(table.loc[table["status"] != "ok", "trial"])
    whole = table[~table["trial"].isin(failed)]
    if not len(whole):
        raise DiagvibError(
            f"tune {baseline}: no trial ends with a score on every dataset; narrow {_RANGES}"
        )
    rows = []
    for rule in [rule for rule in RULES if rule in set(whole["rule"])]:
        means = whole[whole["rule"] == rule].groupby("trial")[["score", TESTED]].mean()
        trial = means["score"].idxmin() if rule == "val_loss" else means["score"].idxmax()
        rows.append({"rule": rule, "trial": int(trial), **means.loc[trial]})
    return pd.DataFrame(rows).set_index("rule")


def _ordered(table: pd.DataFrame, choices: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The table to write; `chosen` is true for the trial that a rule would choose."""
    groups = [name for name in table if is_tested(name) and name != TESTED]
    columns = [
        "baseline",
        "study",
        "binding",
        "sample",
        "trial",
        *keys,
        "status",
        "epochs",
        "rule",
        "epoch",
        "score",
        TESTED,
        *groups,
    ]
    chosen = table["rule"].map(choices["trial"]) == table["trial"]
    return table[columns].astype({"epochs": "Int64", "epoch": "Int64"}).assign(chosen=chosen)


def _print_trials(
    trials: Trials, table: pd.DataFrame, candidates: Sequence[Trial], rule: str
) -> None:
    """Every trial with its settings and each rule's score, best first; test accuracy at the epoch
    of `rule`."""
    means = (
        table.groupby(["trial", "rule"])[["score", TESTED]]
        .agg(lambda values: values.mean(skipna=False))
        .unstack()
    )
    rules = [name for name in RULES if name != LAST and name in set(table["rule"])]
    shown = Table(
        title=f"{trials.task.baseline}: random search on {trials.datasets()}, highest {RULES[rule]} first, "
        "with the test accuracy at that epoch",
        title_justify="left",
    )
    for head in (
        "trial",
        *(key.rpartition(".")[2] for key in candidates[0].values),
        *(RULES[name] for name in rules),
        "test accuracy",
    ):
        shown.add_column(head, justify="right")
    failed = set(table.loc[table["status"] != "ok", "trial"])
    scores = {
        one.number: means.loc[one.number, ("score", rule)]
        for one in candidates
        if one.number not in failed
    }
    for one in sorted(candidates, key=lambda one: (-scores.get(one.number, -np.inf), one.number)):
        numbers = (
            [_text(means.loc[one.number, ("score", name)], name) for name in rules]
            + [_text(means.loc[one.number, (TESTED, rule)])]
            if one.number in scores
            else ["no number"]
        )
        shown.add_row(
            f"{one.number}{'' if one.number else ' (now)'}",
            *(
                f"{value:g}" if isinstance(value, float) else str(value)
                for value in one.values.values()
            ),
            *numbers,
        )
    print_wide(shown)


def _print_choices(choices: pd.DataFrame) -> None:
    shown = Table(title="What each rule would choose", title_justify="left")
    for head in ("rule", "trial", "score", "test accuracy"):
        shown.add_column(head, justify="left" if head == "rule" else "right")
    for row in choices.itertuples():
        shown.add_row(
            RULES[row.Index], str(row.trial), _text(row.score, row.Index), _text(row.test_accuracy)
        )
    print_wide(shown)


def _text(value: float, rule: str = "") -> str:
    return (
        "-" if value != value else f"{value:.4f}" if rule == "val_loss" else f"{100 * value:.1f} %"
    )
