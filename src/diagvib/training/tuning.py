"""Tuning: a baseline's batch size and learning rate, chosen by validation loss without a cue (paper, A.2: on ZSO)."""

import math
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import torch
import yaml
from rich.console import Console
from rich.table import Table

from diagvib.foundation.errors import DiagvibError, Diverged
from diagvib.foundation.files import read_json, write_json, write_text
from diagvib.images.datasets import Datasets
from diagvib.methods.registry import make_baseline
from diagvib.settings.baselines import shortened
from diagvib.settings.grid import Run, make_run
from diagvib.training.batches import Batches
from diagvib.training.callbacks import training_callback
from diagvib.training.checkpoints import Checkpoint, digest
from diagvib.training.code_digest import code_digest
from diagvib.training.cuda_graphs import cuda_graphs
from diagvib.training.protocol import Protocol, out_of_memory
from diagvib.training.run import dataset_metadata, load_batches
from diagvib.training.trainer import Trainer

COLUMNS = ["baseline", "batch_size", "lr", "target", "sample", "val_loss", "selected_epoch", "epochs", "seconds",
           "status"]

# Of an entry in config/baselines, in the order in which they stand there.
ENTRY_KEYS = ("model", "method", "optimiser", "batch_size", "normalise", "augment", "selection", "max_epochs",
              "origin")


@dataclass(frozen=True)
class Candidate:
    """Settings to try."""

    batch_size: int
    lr: float

    def applied(self, settings: dict) -> dict:
        """A baseline's settings with these."""
        return {**settings, "batch_size": self.batch_size, "optimiser": {**settings["optimiser"], "lr": self.lr}}

    def __str__(self) -> str:
        return f"batch {self.batch_size}, lr {self.lr:g}"


@dataclass(frozen=True)
class Trial:
    """What all trainings of a tuning share. settings: the baseline's; runs: the study's; kept: folder of what is
    done; code: digest of what trains."""

    settings: dict
    protocol: Protocol
    device: torch.device
    candidates: list[Candidate]
    runs: list[Run]
    kept: Path
    code: str

    @property
    def study(self) -> str:
        return self.runs[0].study.upper()


def tune(baseline: str, settings: dict, tuning: dict, datasets: dict[str, Datasets], out: str | Path, kept: str | Path,
         training: dict, device: torch.device) -> Candidate:
    """Train every candidate on the tuning's study, write `out`/{baseline}.csv and .yaml, print the ranking; returns the
    best.

    A candidate's loss on a dataset is that of the weights which a run with these settings would keep, hence of the last
    phase. For vae and factor_vae this is the classifier's cross entropy on the codes, not the reconstruction, and `lr`
    is the encoder's, while `head_lr` stays: an encoder is judged by what can be read from its code, as the benchmark
    will judge it. For asr it is the classifier's on lensed images.

    settings: as in config/baselines. tuning: the configuration's section; its max_epochs, if any, replaces the
    baseline's. datasets: the study's, by target factor. kept: folder for finished and unfinished trainings; a tuning
    that was killed continues there, and one with more candidates trains only these. A candidate that diverges, or does
    not fit into the GPU's memory, is the worst. DiagvibError if a batch is larger than the training data, or all
    diverge.
    """
    runs = [make_run(baseline, tuning["study"], target, sample)
            for target in tuning["factors"] for sample in tuning["samples"]]
    candidates = [Candidate(size, float(lr)) for size, lr in product(tuning["batch_sizes"], tuning["learning_rates"])]
    fewer = {"max_epochs": tuning["max_epochs"]} if tuning["max_epochs"] else {}
    made_from = {run: dataset_metadata(datasets[run.target], run.study, run.binding, run.sample) for run in runs}
    trial = Trial({**settings, **fewer}, Protocol(**{**training, "track_test": False}), device, candidates, runs,
                  Path(kept), code_digest(settings, __name__, made_from[runs[0]]["train"]["scene"]))
    rows = [row for run in runs for row in _try_dataset(trial, run, datasets[run.target], made_from[run])]
    table = pd.DataFrame(rows)
    ranking = rank_candidates(table)
    best = _best(ranking, baseline)
    entry = shortened({**best.applied(settings),
                       "origin": _origin(trial, table, ranking, made_from[runs[0]]["train"])})
    entry = {key: entry[key] for key in ENTRY_KEYS if key in entry}
    write_text(Path(out) / f"{baseline}.csv", table[COLUMNS].to_csv(index=False))
    write_text(Path(out) / f"{baseline}.yaml",
               yaml.safe_dump({baseline: entry}, sort_keys=False, default_flow_style=None, width=118))
    _print_ranking(trial, table, ranking, Candidate(settings["batch_size"], settings["optimiser"]["lr"]))
    return best


def rank_candidates(table: pd.DataFrame) -> pd.DataFrame:
    """One row per candidate, best first: batch_size, lr, mean_loss, mean_rank, failed (trainings without a number).

    The mean validation loss over all datasets decides. It weighs a factor by how much there is to lose on it, so hard
    factors (texture, shape) speak louder than those that every candidate learns; mean_rank, the place among the
    candidates averaged over datasets (1 is best), gives each the same weight and decides between equal means. Then the
    larger batch comes first, which is faster, then the smaller learning rate. A training that gave no number has an
    infinite loss and shares the last place.
    """
    loss = table["val_loss"].astype(float).fillna(math.inf)
    rank = loss.groupby([table["target"], table["sample"]]).rank()
    grouped = table.assign(loss=loss, rank=rank, failed=table["status"] != "ok").groupby(["batch_size", "lr"])
    ranking = grouped.agg(mean_loss=("loss", "mean"), mean_rank=("rank", "mean"), failed=("failed", "sum"))
    return ranking.reset_index().sort_values(["mean_loss", "failed", "mean_rank", "batch_size", "lr"],
                                             ascending=[True, True, True, False, True], ignore_index=True)


def _best(ranking: pd.DataFrame, baseline: str) -> Candidate:
    first = ranking.iloc[0]
    if not math.isfinite(first["mean_loss"]):
        raise DiagvibError(f"tune {baseline}: no candidate ends with a validation loss on every dataset; add lower "
                           "values to tuning.learning_rates, or smaller ones to tuning.batch_sizes")
    return Candidate(int(first["batch_size"]), float(first["lr"]))


def _try_dataset(trial: Trial, run: Run, datasets: Datasets, metadata: dict) -> list[dict]:
    """A row per candidate. The images are loaded once, and only if a candidate is not finished yet."""
    folder, rows, splits = trial.kept / run.target / str(run.sample), [], None
    for candidate in trial.candidates:
        settings = candidate.applied(trial.settings)
        made_by = digest({"run": asdict(run), "settings": settings, "protocol": asdict(trial.protocol),
                          "device": trial.device.type, "precision": trial.protocol.on(trial.device),
                          "images": metadata, "code": trial.code, "torch": torch.__version__})
        name = f"batch{candidate.batch_size}-lr{candidate.lr!r}"
        result, checkpoint = folder / f"{name}.json", Checkpoint(folder / f"{name}.pt", made_by)
        outcome = read_json(result) if result.exists() else {}
        if outcome.get("digest") != made_by:
            splits = splits or _load(trial, run, datasets)
            outcome = {"digest": made_by, **_train(trial, run, candidate, settings, splits, checkpoint)}
            if outcome["status"] != "out of memory":  # which may be another process's doing
                write_json(result, outcome)
        checkpoint.remove()
        rows.append({"baseline": run.baseline, **asdict(candidate), "target": run.target, "sample": run.sample,
                     **outcome})
    return rows


def _load(trial: Trial, run: Run, datasets: Datasets) -> tuple[Batches, Batches]:
    train = load_batches(datasets, run, "train", trial.device, settings=trial.settings)
    largest = max(candidate.batch_size for candidate in trial.candidates)
    if largest > len(train):
        raise DiagvibError(f"{datasets.place(run.sample, 'train')}: batch size {largest} is more than the "
                           f"{len(train)} training images; lower tuning.batch_sizes, or raise counts.train and render "
                           "again")
    return train, load_batches(datasets, run, "val", trial.device, like=train)


def _train(trial: Trial, run: Run, candidate: Candidate, settings: dict, splits: tuple[Batches, Batches],
           checkpoint: Checkpoint) -> dict:
    """One training's outcome. seconds: those since it was started or continued."""
    number = trial.runs.index(run) * len(trial.candidates) + trial.candidates.index(candidate) + 1
    name = f"{run.name}, {candidate} ({number} of {len(trial.runs) * len(trial.candidates)})"
    train, val = splits
    outcome = {"val_loss": None, "selected_epoch": None, "epochs": None}
    started = time.perf_counter()
    try:
        method = make_baseline(settings, len(train.annotations.classes), train.pixels.shape[1], trial.protocol.seed)
        with training_callback(name) as callback:
            fitted = Trainer(method, train, val, run, trial.protocol).fit(
                checkpoint, callback, graphs=cuda_graphs(trial.device))
        outcome = {"val_loss": fitted.val_loss, "selected_epoch": fitted.selected_epoch, "epochs": len(fitted.history)}
        status = "ok"
        says = f"validation loss {fitted.val_loss:.4f}, epoch {fitted.selected_epoch} of {outcome['epochs']}"
    except Diverged:
        status, says = "diverged", "diverged"
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        status, says = "out of memory", "does not fit into the GPU's memory"
    seconds = time.perf_counter() - started
    print(f"{name}: {says}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return {**outcome, "seconds": round(seconds, 2), "status": status, "train_images": len(train)}


def _origin(trial: Trial, table: pd.DataFrame, ranking: pd.DataFrame, images: dict) -> str:
    """Where the values come from, for config/baselines; the same for the same tuning."""
    factors, samples = (", ".join(str(v) for v in table[c].unique()) for c in ("target", "sample"))
    batch_sizes, rates = (", ".join(f"{v:g}" for v in table[c].unique()) for c in ("batch_size", "lr"))
    epochs = trial.settings.get("max_epochs", trial.protocol.max_epochs)
    return (f"diagvib tune; lowest mean validation loss ({ranking.iloc[0]['mean_loss']:.4g}) on {trial.study} ("
            f"{factors}; dataset sample {samples}) among batch sizes {batch_sizes} and learning rates {rates}, with "
            f"{table['train_images'].min()} training images of {images['image_shape'][0]} pixels from "
            f"{images['sources']} sources and {epochs} epochs")


def _print_ranking(trial: Trial, table: pd.DataFrame, ranking: pd.DataFrame, now: Candidate) -> None:
    """Every candidate with its validation loss on each factor (mean over dataset samples), and what decided."""
    loss = table.assign(val_loss=table["val_loss"].astype(float).fillna(math.inf)).pivot_table(
        values="val_loss", index=["batch_size", "lr"], columns="target", sort=False)
    shown = Table(title=f"{table['baseline'][0]}: validation loss on {trial.study}, lowest mean first",
                  title_justify="left")
    for head in ("batch", "lr", "mean", "mean rank", *loss.columns):
        shown.add_column(head, justify="right", no_wrap=True)
    for row in ranking.itertuples(index=False):
        candidate = Candidate(row.batch_size, row.lr)
        shown.add_row(str(row.batch_size), f"{row.lr:g}{' (now)' if candidate == now else ''}", _text(row.mean_loss),
                      f"{row.mean_rank:.2f}", *(_text(value) for value in loss.loc[row.batch_size, row.lr]))
    console = Console()
    # Into a file or pipe a table keeps its width instead of being cut at 80 columns.
    Console(width=console.width if console.is_terminal else 140).print(shown)
    print("\n".join(_remarks(trial, ranking)))


def _text(loss: float) -> str:
    return f"{loss:.4f}" if math.isfinite(loss) else "no number"


def _remarks(trial: Trial, ranking: pd.DataFrame) -> list[str]:
    """Which candidate is chosen, whether ranks agree, and whether better ones may lie outside of the grid."""
    best = _best(ranking, trial.runs[0].baseline)
    lines = [f"chosen: {best}, of lowest mean validation loss"]
    by_rank = ranking.loc[ranking["mean_rank"].idxmin()]
    other = Candidate(int(by_rank["batch_size"]), float(by_rank["lr"]))
    lines.append("it has the lowest mean rank too" if other == best else
                 f"the lowest mean rank has {other}: the factors do not agree, the hard ones decide the mean")
    for what, value, tried in (("lr", best.lr, [c.lr for c in trial.candidates]),
                               ("batch", best.batch_size, [c.batch_size for c in trial.candidates])):
        if len(set(tried)) > 1 and value in (min(tried), max(tried)):
            end = "lowest" if value == min(tried) else "highest"
            lines.append(f"{what} {value:g} is the {end} tried: a better one may lie beyond")
    return lines
