"""Tuning: a baseline's batch size and learning rate, chosen by validation loss without a cue
(paper, A.2: on ZSO), or settings drawn at random (`random_search`)."""

import math
from dataclasses import replace
from itertools import product

import pandas as pd

from diagvib.foundation.errors import DiagvibError
from diagvib.training.random_search import search
from diagvib.training.trials import Task, Trial, outcomes, print_trials

COLUMNS = [
    "baseline",
    "batch_size",
    "lr",
    "target",
    "sample",
    "val_loss",
    "selected_epoch",
    "epochs",
    "seconds",
    "status",
]


def tune(task: Task) -> Trial:
    """Train every trial on the tuning's study, write `out`/{baseline}.csv and .yaml, print the
    ranking; returns the best.

    A killed tuning continues, and one with more trials trains only the new ones. A trial that
    diverges, or does not fit into the GPU's memory, is not chosen. DiagvibError for ranges that do
    not fit the baseline, for a batch larger than the training data, or if no trial is left.
    """
    return search(task) if task.tuning.random_search else _try_grid(task)


def _try_grid(task: Task) -> Trial:
    """A trial's loss on a dataset is that of the weights which a run with these settings would
    keep, hence of the last phase. For vae and factor_vae this is the classifier's cross entropy on
    the codes, not the reconstruction, and `lr` is the encoder's, while `head_lr` is fixed: an
    encoder is judged by what can be read from its code, as the benchmark will judge it. For asr it
    is the classifier's on lensed images."""
    tuning = task.tuning
    grid = [(size, float(lr)) for size, lr in product(tuning.batch_sizes, tuning.learning_rates)]
    trials = [grid_trial(*place) for place in grid]
    untracked = replace(task, protocol=replace(task.protocol, track_test=False))
    table = pd.DataFrame(
        [
            {
                "baseline": run.baseline,
                "batch_size": trial.values["batch_size"],
                "lr": trial.values["optimiser.lr"],
                "target": run.target,
                "sample": run.sample,
                **outcome,
            }
            for run, trial, outcome in outcomes(untracked, trials)
        ]
    )
    ranking = ranked(table)
    if not math.isfinite(ranking["mean_loss"][0]):
        raise DiagvibError(
            f"tune {task.baseline}: no candidate ends with a validation loss on every dataset; add "
            "lower values to tuning.learning_rates, or smaller ones to tuning.batch_sizes"
        )
    best = trials[grid.index((ranking["batch_size"][0], ranking["lr"][0]))]
    sizes, rates = (", ".join(f"{v:g}" for v in table[c].unique()) for c in ("batch_size", "lr"))
    origin = (
        f"diagvib tune; lowest mean validation loss ({ranking['mean_loss'][0]:.4g}) on "
        f"{task.on_datasets()} among batch sizes {sizes} and learning rates {rates}, with "
        f"{task.made(table['train_images'].min())}"
    )
    task.write(table[COLUMNS], best, origin)
    _print_ranking(task, table, ranking)
    print(f"chosen: {best.name}, with the lowest mean validation loss")
    for what, values in (("batch_size", tuning.batch_sizes), ("lr", tuning.learning_rates)):
        value = ranking[what][0]
        if len(set(values)) > 1 and value in (min(values), max(values)):
            end = "lowest" if value == min(values) else "highest"
            print(f"{what} {value:g} is the {end} tried: a better one may be outside the grid")
    return best


def grid_trial(batch_size: int, lr: float) -> Trial:
    values = {"batch_size": batch_size, "optimiser.lr": lr}
    return Trial(f"batch {batch_size}, lr {lr:g}", f"batch{batch_size}-lr{lr!r}", values)


def ranked(table: pd.DataFrame) -> pd.DataFrame:
    """One row per place on the grid, best first: batch_size, lr, mean_loss, failed (training runs
    without a number).

    The mean validation loss over all datasets decides; it weighs a factor by how much can be lost
    on it, so hard factors (texture, shape) count more than those that every trial learns. Of equal
    means the one that failed less often, then the larger batch, which is faster, then the smaller
    learning rate comes first. A training without a number has an infinite loss.
    """
    loss = table["val_loss"].astype(float).fillna(math.inf)
    grouped = table.assign(loss=loss, failed=table["status"] != "ok").groupby(["batch_size", "lr"])
    ranking = grouped.agg(mean_loss=("loss", "mean"), failed=("failed", "sum")).reset_index()
    return ranking.sort_values(
        ["mean_loss", "failed", "batch_size", "lr"],
        ascending=[True, True, False, True],
        ignore_index=True,
    )


def _print_ranking(task: Task, table: pd.DataFrame, ranking: pd.DataFrame) -> None:
    """Every place on the grid with its validation loss on each factor, the mean over dataset
    samples."""
    loss = table.assign(val_loss=table["val_loss"].astype(float).fillna(math.inf)).pivot_table(
        values="val_loss", index=["batch_size", "lr"], columns="target", sort=False
    )
    own = (task.settings["batch_size"], task.settings["optimiser"]["lr"])
    print_trials(
        f"{task.baseline}: validation loss on {task.study}, lowest mean first",
        ("batch", "lr", "mean", *loss.columns),
        [
            (
                row.batch_size,
                f"{row.lr:g}{' (now)' if (row.batch_size, row.lr) == own else ''}",
                *map(_text, (row.mean_loss, *loss.loc[row.batch_size, row.lr])),
            )
            for row in ranking.itertuples()
        ],
    )


def _text(loss: float) -> str:
    return f"{loss:.4f}" if math.isfinite(loss) else "no number"
