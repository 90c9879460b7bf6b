"""Random search: a baseline's settings by trials, as in DomainBed (Gulrajani and Lopez-Paz, 2021),
and the trial that each selection rule would choose."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError
from diagvib.settings.grid import Run
from diagvib.settings.search_space import described, search_space, trial_values
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
from diagvib.training.trials import Task, Trial, outcomes, print_trials

_RANGES = "tuning.random_search.ranges"


def search(task: Task) -> Trial:
    """The trial with the best accuracy on validation images of the training environments. A method
    without drawn settings has one trial."""
    given = task.tuning.random_search
    space = search_space(task.settings, given.ranges, _RANGES, task.baseline)
    count = given.trials if space else 1
    trials = [
        Trial(
            f"trial {number}",
            f"trial{number}",
            trial_values(task.settings, space, given.seed, number),
            own=number == 0,
        )
        for number in range(count)
    ]
    trained = list(outcomes(task, trials))
    rows = [
        row
        for run, trial, outcome in trained
        for row in _rows(run, trials.index(trial), trial, outcome)
    ]
    table = pd.DataFrame(rows)
    choices = choose(table, task.baseline)
    rule = training_domain(list(choices.index))
    number, score = choices.loc[rule, "trial"], choices.loc[rule, "score"]
    origin = (
        f"diagvib tune; highest {RULES[rule]} ({score:.4g}) on {task.on_datasets()}, trial "
        f"{number} of a random search of {count} (seed {given.seed}; "
        f"{'; '.join(described(space)) or 'nothing drawn'}), with "
        f"{task.made(min(outcome['train_images'] for *_, outcome in trained))}"
    )
    task.write(_ordered(table, choices, list(space)), trials[number], origin)
    _print_search(task, table, trials, rule)
    _print_choices(choices)
    print(f"chosen: trial {number}, with the highest {RULES[rule]}")
    return trials[number]


def _rows(run: Run, number: int, trial: Trial, outcome: dict) -> Iterator[dict]:
    """A row for each rule, or a single row without a rule for a training that gave no number."""
    about = {
        "baseline": run.baseline,
        "study": run.study,
        "binding": run.binding,
        "sample": run.sample,
        "trial": number,
        **trial.values,
        "status": outcome["status"],
        "epochs": outcome["epochs"],
    }
    yield from ({**about, **row} for row in rule_rows(outcome["history"]) or [{}])


def rule_rows(history: Sequence[dict]) -> list[dict]:
    """Each rule's choice in a training: rule, epoch, score, TESTED and the accuracy on each test
    group.

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


def _print_search(task: Task, table: pd.DataFrame, trials: Sequence[Trial], rule: str) -> None:
    """Every trial with its settings, its score by `rule` and the test accuracy at that epoch, best
    first."""
    failed = table[table["status"] != "ok"]["trial"]
    scores = (
        table[(table["rule"] == rule) & ~table["trial"].isin(failed)]
        .groupby("trial")[["score", TESTED]]
        .mean()
        .reindex(range(len(trials)))
    )
    print_trials(
        f"{task.baseline}: random search on {task.on_datasets()}, highest {RULES[rule]} first",
        ("trial", *trials[0].values, RULES[rule], "test accuracy"),
        [
            (
                f"{number}{'' if number else ' (now)'}",
                *trials[number].values.values(),
                "no number" if np.isnan(score) else _text(score),
                _text(tested),
            )
            for number, score, tested in scores.sort_values(
                "score", ascending=False, kind="stable"
            ).itertuples()
        ],
    )


def _print_choices(choices: pd.DataFrame) -> None:
    print_trials(
        "What each rule would choose",
        ("rule", "trial", "score", "test accuracy"),
        [
            (RULES[row.Index], row.trial, _text(row.score, row.Index), _text(row.test_accuracy))
            for row in choices.itertuples()
        ],
    )


def _text(value: float, rule: str = "") -> str:
    return (
        "-" if value != value else f"{value:.4f}" if rule == "val_loss" else f"{100 * value:.1f} %"
    )
