"""Entries of the leaderboard: leaderboard/{study}/{baseline}.json, one file for each."""

import sys
from datetime import date
from pathlib import Path

import pandas as pd
from pydantic import Field

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_json
from diagvib.foundation.validation import Strict, validated
from diagvib.results.known_studies import known_studies
from diagvib.results.metric_sets import METRIC_SETS
from diagvib.results.metric_sets.metric_set import describe
from diagvib.results.read_runs import run_folder
from diagvib.results.tables import baseline_settings, read_tables

FEWEST_RUNS = 3
# Of the configuration, what results depend on besides the baseline.
_PROTOCOL = ("training", "counts", "image_size", "images")


class Number(Strict):
    """A metric over the dataset samples, or seeds: a fraction with its 95 % interval."""

    metric: str
    binding: str = Field(description="or a target alone: the mean over its cues; empty: over all")
    mean: float
    low: float | None
    high: float | None
    n: int = Field(ge=FEWEST_RUNS)


class Entry(Strict):
    """One baseline on one study. `runs` has the digest of each run's predictions, `code` those of
    the code that made them."""

    study: str
    baseline: str
    by: str
    link: str = ""
    date: str
    model: str
    method: str
    supervision: str
    selection: str
    sources: list[str]
    settings: dict
    protocol: dict
    metrics: list[Number]
    doubts: list[str]
    code: list[str]
    runs: dict[str, str]


def submit(root: Path, by: str, link: str, out: Path) -> list[Path]:
    """Write an entry for each baseline and study of a complete root; returns their paths. Those with
    missing runs or fewer than FEWEST_RUNS dataset samples are left out, with a line on standard
    error. DiagvibError if there are no tables, or nothing can be submitted."""
    tables = read_tables(root / "results/tables")
    settings = read_json(root / "results/tables/versions.json")["settings"]
    known, runs = known_studies(settings), tables["runs"]
    baselines = baseline_settings(runs["baseline"].unique(), settings)
    written = []
    for (study, baseline), own in runs.groupby(["study", "baseline"], sort=False):
        if (own["status"] != "ok").any() or own["sample"].nunique() < FEWEST_RUNS:
            print(
                f"{study}, {baseline}: left out; it needs all its runs, on at least {FEWEST_RUNS} "
                "dataset samples or seeds",
                file=sys.stderr,
            )
            continue
        metrics = tables["metrics"]
        metrics = metrics[(metrics["study"] == study) & (metrics["baseline"] == baseline)]
        names = METRIC_SETS[metrics["metric_set"].iloc[0]].names(study, known)
        metrics = metrics[metrics["metric"].isin(names) & (metrics["n"] >= FEWEST_RUNS)]
        made = [
            (run, read_json(run_folder(root / "results/runs", run) / "run.json"))
            for run in own.to_dict("records")
        ]
        entry = Entry(
            study=study,
            by=by,
            link=link,
            date=date.today().isoformat(),
            **describe(baseline, baselines),
            sources=sorted(set(own["sources"])),
            settings=baselines[baseline],
            protocol={key: settings[key] for key in _PROTOCOL},
            metrics=[_number(row) for row in metrics.to_dict("records")],
            doubts=sorted(set(own["reason"].dropna()) - {""}),
            code=sorted({each["code"] for _, each in made}),
            runs={
                f"{run['binding']}/{run['sample']}": each["files"]["predictions.parquet"]
                for run, each in made
            },
        )
        path = out / study / f"{baseline}.json"
        write_json(path, entry.model_dump())
        written.append(path)
    if not written:
        raise DiagvibError(f"{root}: nothing in it can be submitted")
    return written


def read_entry(path: Path) -> Entry:
    """An entry. DiagvibError, naming file and key, if it is not one."""
    entry = validated(Entry, read_json(path), str(path))
    if path.parts[-2:] != (entry.study, f"{entry.baseline}.json"):
        raise DiagvibError(f"{path}: should be at {entry.study}/{entry.baseline}.json")
    return entry


def _number(row: dict) -> Number:
    low, high = (None if pd.isna(row[end]) else row[end] for end in ("low", "high"))
    about = {"metric": row["metric"], "binding": row["binding"] or row["target"]}
    return Number(**about, mean=row["mean"], low=low, high=high, n=int(row["n"]))
