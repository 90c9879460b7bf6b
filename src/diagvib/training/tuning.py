"""Tuning: a baseline's batch size and learning rate, chosen by validation loss without a cue
(paper, A.2: on ZSO)."""

import math
from dataclasses import asdict, dataclass, replace
from itertools import product

import pandas as pd
from rich.table import Table

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import print_wide
from diagvib.training.trials import Task, Trials, write_tuned

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


@dataclass(frozen=True)
class Candidate:
    """Settings to try."""

    batch_size: int
    lr: float

    def applied(self, settings: dict) -> dict:
        """A baseline's settings with those of the candidate."""
        return {
            **settings,
            "batch_size": self.batch_size,
            "optimiser": {**settings["optimiser"], "lr": self.lr},
        }

    @property
    def file(self) -> str:
        return f"batch{self.batch_size}-lr{self.lr!r}"

    def __str__(self) -> str:
        return f"batch {self.batch_size}, lr {self.lr:g}"


def tune(task: Task) -> Candidate:
    """Train every candidate on the tuning's study, write `out`/{baseline}.csv and .yaml, print the
    ranking; returns the best.

    A candidate's loss on a dataset is that of the weights which a run with these settings would
    keep, hence of the last phase. For vae and factor_vae this is the classifier's cross entropy on
    the codes, not the reconstruction, and `lr` is the encoder's, while `head_lr` is fixed: an
    encoder is judged by what can be read from its code, as the benchmark will judge it. For asr it
    is the classifier's on lensed images.

    A killed tuning continues, and one with more candidates trains only the new ones. A candidate
    that diverges, or does not fit into the GPU's memory, ranks last. DiagvibError if a batch is
    larger than the training data, or if all diverge.
    """
    tuning, baseline = task.tuning, task.baseline
    candidates = [
        Candidate(size, float(lr))
        for size, lr in product(tuning["batch_sizes"], tuning["learning_rates"])
    ]
    trials = Trials(
        replace(task, protocol=replace(task.protocol, track_test=False)),
        candidates,
        "tuning.batch_sizes",
    )
    table = pd.DataFrame(
        [
            {
                "baseline": baseline,
                **asdict(candidate),
                "target": run.target,
                "sample": run.sample,
                **outcome,
            }
            for run, candidate, outcome in trials.outcomes()
        ]
    )
    ranking = rank_candidates(table)
    best = _best(ranking, baseline)
    write_tuned(task, table[COLUMNS], best, _origin(trials, table, ranking))
    _print_ranking(
        trials,
        table,
        ranking,
        Candidate(task.settings["batch_size"], task.settings["optimiser"]["lr"]),
    )
    return best


def rank_candidates(table: pd.DataFrame) -> pd.DataFrame:
    """One row per candidate, best first: batch_size, lr, mean_loss, mean_rank, failed (training
    runs without a number).

    The mean validation loss over all datasets decides. It weighs a factor by how much can be lost
    on it, so hard factors (texture, shape) count more than those that every candidate learns;
    mean_rank, the rank among the candidates averaged over datasets (1 is best), gives each the same
    weight and decides between equal means. Then the larger batch, which is faster, comes first,
    then the smaller learning rate. A training without a number has an infinite loss and shares the
    last rank.
    """
    loss = table["val_loss"].astype(float).fillna(math.inf)
    rank = loss.groupby([table["target"], table["sample"]]).rank()
    grouped = table.assign(loss=loss, rank=rank, failed=table["status"] != "ok").groupby(
        ["batch_size", "lr"]
    )
    ranking = grouped.agg(
        mean_loss=("loss", "mean"), mean_rank=("rank", "mean"), failed=("failed", "sum")
    )
    return ranking.reset_index().sort_values(
        ["mean_loss", "failed", "mean_rank", "batch_size", "lr"],
        ascending=[True, True, True, False, True],
        ignore_index=True,
    )


def _best(ranking: pd.DataFrame, baseline: str) -> Candidate:
    first = ranking.iloc[0]
    if not math.isfinite(first["mean_loss"]):
        raise DiagvibError(
            f"tune {baseline}: no candidate ends with a validation loss on every dataset; add lower "
            "values to tuning.learning_rates, or smaller ones to tuning.batch_sizes"
        )
    return Candidate(int(first["batch_size"]), float(first["lr"]))


def _origin(trials: Trials, table: pd.DataFrame, ranking: pd.DataFrame) -> str:
    """The origin of the values, for config/baselines; the same for the same tuning."""
    batch_sizes, rates = (
        ", ".join(f"{v:g}" for v in table[c].unique()) for c in ("batch_size", "lr")
    )
    return (
        f"diagvib tune; lowest mean validation loss ({ranking.iloc[0]['mean_loss']:.4g}) on {trials.datasets()} "
        f"among batch sizes {batch_sizes} and learning rates {rates}, with "
        f"{trials.made(table['train_images'].min())}"
    )


def _print_ranking(
    trials: Trials, table: pd.DataFrame, ranking: pd.DataFrame, now: Candidate
) -> None:
    """Print every candidate with its validation loss on each factor (mean over dataset samples),
    and the choice."""
    loss = table.assign(val_loss=table["val_loss"].astype(float).fillna(math.inf)).pivot_table(
        values="val_loss", index=["batch_size", "lr"], columns="target", sort=False
    )
    shown = Table(
        title=f"{table['baseline'][0]}: validation loss on {trials.study}, lowest mean first",
        title_justify="left",
    )
    for head in ("batch", "lr", "mean", "mean rank", *loss.columns):
        shown.add_column(head, justify="right", no_wrap=True)
    for row in ranking.itertuples(index=False):
        candidate = Candidate(row.batch_size, row.lr)
        shown.add_row(
            str(row.batch_size),
            f"{row.lr:g}{' (now)' if candidate == now else ''}",
            _text(row.mean_loss),
            f"{row.mean_rank:.2f}",
            *(_text(value) for value in loss.loc[row.batch_size, row.lr]),
        )
    print_wide(shown)
    print("\n".join(_remarks(trials, ranking)))


def _text(loss: float) -> str:
    return f"{loss:.4f}" if math.isfinite(loss) else "no number"


def _remarks(trials: Trials, ranking: pd.DataFrame) -> list[str]:
    """Which candidate is chosen, whether ranks agree, and whether better ones may be outside the
    grid."""
    best = _best(ranking, trials.task.baseline)
    lines = [f"chosen: {best}, with the lowest mean validation loss"]
    by_rank = ranking.loc[ranking["mean_rank"].idxmin()]
    other = Candidate(int(by_rank["batch_size"]), float(by_rank["lr"]))
    lines.append(
        "it also has the lowest mean rank"
        if other == best
        else f"{other} has the lowest mean rank: the factors disagree, and the hard ones decide the mean"
    )
    for what, value, tried in (
        ("lr", best.lr, [c.lr for c in trials.candidates]),
        ("batch", best.batch_size, [c.batch_size for c in trials.candidates]),
    ):
        if len(set(tried)) > 1 and value in (min(tried), max(tried)):
            end = "lowest" if value == min(tried) else "highest"
            lines.append(
                f"{what} {value:g} is the {end} tried: a better one may be outside the grid"
            )
    return lines
