"""Tuning: a baseline's settings, chosen by trials on validation images. The trials are a grid of
batch sizes and learning rates (paper, A.2: on ZSO), or drawn at random as in DomainBed (Gulrajani
and Lopez-Paz, 2021)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import print_rows
from diagvib.settings.layout import Run
from diagvib.settings.ranges import Range, described, distinct_trials, present, search_space
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
from diagvib.training.trials import Task, Trial, outcomes

_RANGES = "tuning.random_search.ranges"
LOSS = "val_loss"


def tune(task: Task) -> Trial:
    """Train every trial on the tuning's study, write `out`/{baseline}.csv and .yaml, print the
    ranking; returns the best.

    A killed tuning continues, and one with more trials trains only the new ones. A trial that
    diverges, or does not fit into the GPU's memory, is not chosen. DiagvibError for ranges that do
    not fit the baseline, for a batch larger than the training data, or if no trial is left.
    """
    search = task.tuning.random_search
    task, trials, description = candidates(task)
    trained = list(outcomes(task, trials))
    rows = [
        row
        for run, trial, outcome in trained
        for row in _rows(run, trials.index(trial), trial, outcome, bool(search))
    ]
    table = pd.DataFrame(rows)
    choices = choose(table, task.baseline)
    rule = training_domain(list(choices.index)) if search else LOSS
    number, score = choices.loc[rule, "trial"], choices.loc[rule, "score"]
    best, criterion = trials[number], f"{'highest' if search else 'lowest'} {RULES[rule]}"
    origin = (
        f"diagvib tune; {criterion} ({score:.4g}) on {task.on_datasets()}, {best.name} {description}, with "
        f"{task.training_amount(min(outcome['train_images'] for *_, outcome in trained))}"
    )
    # `chosen`: the trial that a rule would choose.
    winners = table["rule"].map(choices["trial"]) == table["trial"]
    whole_numbers = {"epochs": "Int64", "epoch": "Int64"}
    task.write(table.astype(whole_numbers).assign(chosen=winners), best, origin)
    print_ranking(task, table, trials, rule, criterion)
    if search:
        _print_choices(choices)
    print(f"chosen: {best.name}, with the {criterion}")
    if not search:
        _print_edges(best, trials)
    return best


def candidates(task: Task) -> tuple[Task, list[Trial], str]:
    """The task as it is trained, its trials, and where these are from. DiagvibError for trials that
    validation images cannot compare."""
    if search := task.tuning.random_search:
        space = search_space(task.job.settings, search.ranges, _RANGES, task.baseline)
        trials = drawn_trials(task, space)
        described_space = "; ".join(described(space)) or "nothing drawn"
        origin = f"of a random search of {len(trials)} (seed {search.seed}; {described_space})"
    else:
        trials = grid(task.tuning.batch_sizes, task.tuning.learning_rates)
        sizes, rates = (", ".join(f"{v:g}" for v in values) for values in _tried(trials).values())
        origin = f"among batch sizes {sizes} and learning rates {rates}"
        untracked = replace(task.job.protocol, track_test=False)
        task = replace(task, job=replace(task.job, protocol=untracked))
    for trial in trials:
        if trial.applied(task.job.settings)["method"].get("images") == "validation":
            raise DiagvibError(
                f"tune {task.baseline}: method.images: validation fits the head to the images by "
                "which trials would be compared; tune it with images: training, and copy its settings"
            )
    return task, trials, origin


def drawn_trials(task: Task, space: Mapping[str, Range]) -> list[Trial]:
    """The trials of a random search: the first has the baseline's own settings. A method without
    drawn settings has no other, and choices alone as many as there are combinations."""
    search = task.tuning.random_search
    values = distinct_trials(task.job.settings, space, search.seed, search.trials if space else 1)
    return [
        Trial(f"trial {number}", f"trial{number}", trial_settings, own=number == 0)
        for number, trial_settings in enumerate(values)
    ]


def grid(batch_sizes: Sequence[int], rates: Sequence[float]) -> list[Trial]:
    """A trial for each batch size and learning rate. Of equally good ones the first is chosen: that
    with the larger batch, which is faster, then with the smaller learning rate."""
    return [
        Trial(
            f"batch {size}, lr {lr:g}",
            f"batch{size}-lr{lr!r}",
            {"batch_size": size, "optimiser.lr": lr},
        )
        for size, lr in product(sorted(batch_sizes, reverse=True), sorted(map(float, rates)))
    ]


def _tried(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Setting -> its values in these trials, sorted."""
    return {key: sorted({trial.values[key] for trial in trials}) for key in trials[0].values}


def _rows(run: Run, number: int, trial: Trial, outcome: dict, search: bool) -> Iterator[dict]:
    """A training's rows: of a search one for each rule, of a grid the loss of the weights that a run
    with these settings would keep, hence of the last phase. For vae and factor_vae this is the
    classifier's cross entropy on the codes, so that an encoder is judged by what can be read from
    its code, as the benchmark will judge it. A training that gave no number has a single row without
    a rule."""
    trial_columns = {
        **run.names,
        "trial": number,
        **trial.values,
        "status": outcome["status"],
        "epochs": outcome["epochs"],
    }
    selected_row = {"rule": LOSS, "epoch": outcome["selected_epoch"], "score": outcome["val_loss"]}
    rows = rule_rows(outcome["history"]) if search else [selected_row] if outcome["history"] else []
    yield from ({**trial_columns, **row} for row in rows or [{}])


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
    score_columns = {LAST: training_domain(list(columns)), ORACLE: TESTED}
    return [
        {
            "rule": rule,
            "epoch": history[epoch_index]["epoch"],
            "score": columns[score_columns.get(rule, rule)][epoch_index],
            TESTED: columns[TESTED][epoch_index],
            **{
                name: history[epoch_index][name] for name in history[epoch_index] if is_tested(name)
            },
        }
        for rule, epoch_index in kept_epochs(columns).items()
    ]


def _whole(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of trials that have a number on every dataset."""
    return table[~table["trial"].isin(table.loc[table["status"] != "ok", "trial"])]


def choose(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """For each rule, the trial that it would choose, with its score and test accuracy, averaged
    over the datasets.

    table: a row for each training and rule. Ties go to the trial with the lower number. A trial
    that lacks a number on any dataset is excluded. DiagvibError if all are.
    """
    complete = _whole(table)
    if not len(complete):
        raise DiagvibError(
            f"tune {baseline}: no trial ends with a score on every dataset; try other settings in "
            "the section `tuning`, such as lower learning rates"
        )
    rows = []
    for rule in [rule for rule in RULES if rule in set(complete["rule"])]:
        of_rule = complete[complete["rule"] == rule].reindex(columns=["trial", "score", TESTED])
        means = of_rule.groupby("trial").mean()
        trial = means["score"].idxmin() if rule == LOSS else means["score"].idxmax()
        rows.append({"rule": rule, "trial": int(trial), **means.loc[trial]})
    return pd.DataFrame(rows).set_index("rule")


def print_ranking(
    task: Task, table: pd.DataFrame, trials: Sequence[Trial], rule: str, criterion: str
) -> None:
    """Every trial with its settings, its score by `rule` on each dataset and on all, and the test
    accuracy at that epoch, best first."""
    ranking = _whole(table).reindex(columns=["trial", "binding", "rule", "score", TESTED])
    ranking = ranking[ranking["rule"] == rule]
    scores = ranking.pivot_table("score", "trial", "binding", sort=False)
    means = ranking.groupby("trial")[["score", TESTED]].mean().reindex(range(len(trials)))
    ranked = means.sort_values("score", ascending=rule == LOSS, kind="stable")
    now = [present(task.job.settings, key) for key in trials[0].values]
    print_rows(
        f"{task.baseline}: {criterion} on {task.study} first",
        ("trial", *trials[0].values, RULES[rule], "test accuracy", *scores),
        [
            (
                f"{number}{' (now)' if [*trials[number].values.values()] == now else ''}",
                *trials[number].values.values(),
                "no number" if np.isnan(score) else _text(score, rule),
                _text(accuracy),
                *(_text(score, rule) for score in scores.reindex([number]).to_numpy()[0]),
            )
            for number, score, accuracy in ranked.itertuples()
        ],
    )


def _print_choices(choices: pd.DataFrame) -> None:
    print_rows(
        "What each rule would choose",
        ("rule", "trial", "score", "test accuracy"),
        [
            (RULES[row.Index], row.trial, _text(row.score, row.Index), _text(row.test_accuracy))
            for row in choices.itertuples()
        ],
    )


def _print_edges(best: Trial, trials: Sequence[Trial]) -> None:
    for key, tried in _tried(trials).items():
        value = best.values[key]
        if len(tried) > 1 and value in (tried[0], tried[-1]):
            end = "lowest" if value == tried[0] else "highest"
            print(f"{key} {value:g} is the {end} tried: a better one may be outside the grid")


def _text(value: float, rule: str = "") -> str:
    return "-" if value != value else f"{value:.4f}" if rule == LOSS else f"{100 * value:.1f} %"
