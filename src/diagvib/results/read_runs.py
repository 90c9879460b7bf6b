"""Runs read back: every expected run is read, or is a hole that says why. One pass over the files."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.progress import track

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import METADATA_KEY, open_parquet, read_json, read_metadata
from diagvib.foundation.parallel import in_processes
from diagvib.settings.grid import RUN_FILES
from diagvib.studies.study import GROUPS
from diagvib.training.accuracy import accuracy_by_code

# Columns of a run's epochs; the last two only if `training.track_test` asked for them.
_NOTED = [f"{group}_accuracy" for group in GROUPS]
HISTORY = ["epoch", "train_loss", "train_accuracy", "val_loss", "val_accuracy", *_NOTED]
RUN_KEYS = ["baseline", "study", "binding", "target", "cue", "sample"]
# So many make up for the start of a process.
RUNS_A_PROCESS = 1000
# What run.json holds, as far as it is read.
_MADE = {"settings": dict, "training": dict, "versions": dict, "seconds": dict, "device": str, "precision": str,
         "seed": int, "images_per_second": int | float}
_KINDS = {dict: "mapping", str: "text", int: "whole number", int | float: "number"}
_RUN_COLUMNS = [*RUN_KEYS, "status", "reason", "id_accuracy", "id_n", "ood_accuracy", "ood_n", "sources", "comparable"]


@dataclass(frozen=True)
class Collected:
    """What was found: `frame` as of `collect_runs`; per row what made the run, and its epochs (None for holes)."""

    frame: pd.DataFrame
    made: list[dict | None]
    epochs: list[np.ndarray | None]


def run_folder(runs: Path, run: dict) -> Path:
    return Path(runs) / run["baseline"] / run["study"] / run["binding"] / str(run["sample"])


def collect_runs(runs: Path, expected: Iterable[dict], threads: int = 1) -> pd.DataFrame:
    """One row per expected run, whether it is there or not.

    expected: dicts with baseline, study, pair, target, cue (None without correlation), sample. threads: the most
    processes that read.
    Columns: those (cue empty without correlation), status (ok | missing | damaged), reason, id_accuracy, id_n,
    ood_accuracy, ood_n, sources, comparable.
    Accuracies are computed again from the predictions; a run whose metrics.json says otherwise is damaged.
    """
    return read_runs(runs, expected, threads).frame


def read_runs(runs: Path, expected: Iterable[dict], threads: int = 1) -> Collected:
    """Every expected run with its settings, times and epochs; arguments and frame as for `collect_runs`."""
    expected = list(expected)
    found = in_processes(partial(_read_run, Path(runs)), expected, threads, RUNS_A_PROCESS)
    rows, made, epochs = [], [], []
    for run, (row, run_made, run_epochs) in zip(expected, _progress(found, len(expected)), strict=True):
        rows.append({**{k: run[k] for k in RUN_KEYS}, "cue": run["cue"] or "", "reason": "", **row})
        made.append(run_made)
        epochs.append(run_epochs)
    frame = pd.DataFrame(rows, columns=_RUN_COLUMNS)
    numbers = {column: "float64" for column in _RUN_COLUMNS if column.endswith(("_accuracy", "_n"))}
    return Collected(frame.astype(numbers), made, epochs)


def _progress(found: Iterable, total: int) -> Iterable:
    return track(found, "reading runs", total, console=Console(stderr=True), transient=True,
                 disable=not sys.stderr.isatty())


def _read_run(runs: Path, run: dict) -> tuple[dict, dict | None, np.ndarray | None]:
    folder = run_folder(runs, run)
    absent = [name for name in RUN_FILES if not (folder / name).exists()]
    if absent:
        unfinished = folder.exists() and len(absent) < len(RUN_FILES)
        return {"status": "missing", "reason": f"unfinished: no {absent[0]}" if unfinished else "not run"}, None, None
    try:
        accuracies = _accuracies(folder, run)
        made, epochs = _read_made(folder / "run.json"), read_history(folder / "history.jsonl")
        # Whose pictures they are; whether they can be shown is for the figures to find out.
        with _reading(folder / "exhibits.parquet") as path:
            _check_names(path, read_metadata(path), run)
        return {"status": "ok", **accuracies}, made, epochs
    except DiagvibError as error:
        return {"status": "damaged", "reason": one_line(str(error).replace(f"{folder}/", ""))}, None, None


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    """Whatever goes wrong with a file becomes a DiagvibError that names it: a file of another's making may hold
    anything, and one run must not end all tables."""
    try:
        yield path
    except DiagvibError:
        raise
    except Exception as error:
        raise DiagvibError(f"{path}: damaged ({type(error).__name__}: {one_line(error)}); delete this folder and run "
                           "again") from None


def _read_made(path: Path) -> dict:
    """A run's run.json. DiagvibError for a value that tables could not be made from."""
    made = read_json(path)
    for key, kind in _MADE.items():
        if made.get(key) is not None and not isinstance(made[key], kind):
            raise DiagvibError(f"{path}: {key} is {made[key]!r}, which is no {_KINDS[kind]}; delete this folder and "
                               "run again")
    for stage, seconds in (made.get("seconds") or {}).items():
        if not isinstance(seconds, int | float):
            raise DiagvibError(f"{path}: seconds.{stage} is {seconds!r}, which is no number; delete this folder and "
                               "run again")
    return made


def _accuracies(folder: Path, run: dict) -> dict:
    groups = GROUPS if run["cue"] else GROUPS[:1]
    with _reading(folder / "predictions.parquet") as path:
        table = _read_predictions(path, ["group", run["target"], "prediction"])
        noted = _metadata(table, path)
        _check_names(path, noted, run)
        result = {key: noted.get(key) for key in ("sources", "comparable")}
        if not isinstance(result["sources"], str) or not isinstance(result["comparable"], bool):
            raise DiagvibError(f"{path}: does not say what sources it was made from; delete this folder and run again")
        codes = _codes(table, run["target"], path)
        found = {group: _group_accuracy(*codes, group, path) for group in groups}
    with _reading(folder / "metrics.json") as path:
        metrics = read_json(path)
        _check_names(path, metrics, run)
        for group, (accuracy, n) in found.items():
            _check_agreement(path, metrics, group, accuracy, n)
            result |= {f"{group}_accuracy": accuracy, f"{group}_n": n}
    return result


def _read_predictions(path: Path, columns: list[str]) -> pa.Table:
    # Class names stay codes into a dictionary: four times faster than strings, and there are 11,070 files to read.
    with open_parquet(path, read_dictionary=columns) as file:
        for column in columns:
            if column not in file.schema_arrow.names:
                raise DiagvibError(f"{path}: lacks column {column}; delete this folder and run again")
        return file.read(columns=columns, use_threads=False).unify_dictionaries()


def _codes(table: pa.Table, target: str, path: Path) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray]:
    """Code of each group; then per image its group's code, its label's, and whether the prediction is right."""
    if any(table[column].null_count for column in table.column_names):
        raise DiagvibError(f"{path}: an image lacks its group, {target} or prediction; "
                           "delete this folder and run again")
    columns = [table[column].combine_chunks() for column in ("group", target, "prediction")]
    columns = [c if pa.types.is_dictionary(c.type) else c.dictionary_encode() for c in columns]
    group, label, prediction = (column.indices.to_numpy(zero_copy_only=False) for column in columns)
    names = [column.dictionary.to_pylist() for column in columns]
    as_label = np.array([names[1].index(name) if name in names[1] else -1 for name in names[2]], dtype=np.int64)
    return {name: code for code, name in enumerate(names[0])}, group, label, as_label[prediction] == label


def _group_accuracy(known: dict, group: np.ndarray, label: np.ndarray, right: np.ndarray, name: str,
                    path: Path) -> tuple[float, int]:
    at = group == known.get(name, -1)
    if not at.any():
        raise DiagvibError(f"{path}: holds no image of group {name}; delete this folder and run again")
    return float(accuracy_by_code(label[at], right[at]).mean()), int(at.sum())


def _metadata(table: pa.Table, path: Path) -> dict:
    try:
        return json.loads(table.schema.metadata[METADATA_KEY])
    except (KeyError, TypeError, ValueError):
        raise DiagvibError(f"{path}: names no run in its metadata; delete this folder and run again") from None


def _check_names(path: Path, noted: dict, run: dict) -> None:
    for key in ("baseline", "study", "binding", "sample"):
        if noted.get(key) != run[key]:
            raise DiagvibError(f"{path}: says {key} {noted.get(key)}, but lies in the folder of {key} {run[key]}; "
                               "delete this folder and run again")


def _check_agreement(path: Path, metrics: dict, group: str, accuracy: float, n: int) -> None:
    noted = metrics.get("groups", {}).get(group, {})
    if noted.get("n") != n or abs(noted.get("accuracy", np.inf) - accuracy) > 1e-6:
        raise DiagvibError(f"{path}: {group} accuracy {noted.get('accuracy')} (n = {noted.get('n')}) disagrees with "
                           f"the predictions, {accuracy:.6f} (n = {n}); delete this folder and run again")


def read_history(path: Path) -> np.ndarray:
    """A run's epochs, float32[epochs, HISTORY], NaN for what it did not note. DiagvibError for a damaged file."""
    try:
        rows = json.loads("[" + ",".join(path.read_text(encoding="utf-8").splitlines()) + "]")
        found = [[row.get(key, np.nan) if key in _NOTED else row[key] for key in HISTORY] for row in rows]
        epochs = np.array(found, dtype=np.float32).reshape(-1, len(HISTORY))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DiagvibError(f"{path}: damaged ({one_line(error)}); delete this folder and run again") from None
    if not len(epochs) or not np.isfinite(epochs[:, 0]).all():
        raise DiagvibError(f"{path}: holds no epochs, or some without a number; delete this folder and run again")
    return epochs


def history_table(collected: Collected) -> pd.DataFrame:
    """Every recorded epoch: the run's keys and HISTORY, empty what was not noted."""
    there = [i for i, epochs in enumerate(collected.epochs) if epochs is not None]
    lengths = [len(collected.epochs[i]) for i in there]
    keys = collected.frame[RUN_KEYS].iloc[np.repeat(there, lengths)].reset_index(drop=True) if there else \
        collected.frame[RUN_KEYS].iloc[:0]
    values = np.concatenate([collected.epochs[i] for i in there]) if there else np.zeros((0, len(HISTORY)), np.float32)
    return pd.concat([keys, pd.DataFrame(values, columns=HISTORY)], axis=1).astype({"epoch": "int64"})


def run_times(collected: Collected) -> pd.DataFrame:
    """One row per finished run: images_per_second and seconds per stage, as its run.json says."""
    keys = ["baseline", "study", "binding", "sample"]
    rows = [{**dict(zip(keys, names, strict=True)), "device": made.get("device"),
             "images_per_second": made.get("images_per_second"),
             **{f"seconds_{stage}": value for stage, value in (made.get("seconds") or {}).items()}}
            for names, made in zip(collected.frame[keys].itertuples(index=False, name=None), collected.made,
                                   strict=True) if made is not None]
    return pd.DataFrame(rows or {key: [] for key in keys})


def versions(collected: Collected) -> dict:
    """What made the finished runs: every version, device, precision and seed that occurs; settings per baseline."""
    seen: dict[str, set] = {}
    settings: dict[str, dict] = {}
    for baseline, made in zip(collected.frame["baseline"], collected.made, strict=True):
        if made is None:
            continue
        facts = {**(made.get("versions") or {}), **{k: made.get(k) for k in ("device", "precision", "seed")}}
        for name, value in facts.items():
            seen.setdefault(name, set()).add(str(value))
        settings.setdefault(baseline, made.get("settings") or {})
    return {"versions": {name: sorted(values) for name, values in sorted(seen.items())}, "baselines": settings}
