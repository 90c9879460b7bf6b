"""Entries of the leaderboard: leaderboard/{study}/{baseline}.json, one file for each."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, read_table, read_yaml, write_text
from diagvib.foundation.messages import say
from diagvib.foundation.validation import Name, Strict, text_like, validated
from diagvib.results.cells import CELL_COLUMNS, RUN_KEYS, cells_table, mean_per_class
from diagvib.results.known_studies import SHIPPED, KnownStudies, known_studies
from diagvib.results.metric_sets import METRIC_SETS
from diagvib.results.metric_sets.metric_set import COLUMNS, Results, describe
from diagvib.results.read_runs import read_runs, run_folder
from diagvib.results.tables import baseline_settings, read_tables
from diagvib.scenes import load_scene
from diagvib.settings.config import command_for, default_path
from diagvib.settings.grid import Run

FEWEST_RUNS = 3
_LINK = r"(https?://[^\s\"'<>\\^`{|}]+)?"
# Of the configuration, what results depend on besides the baseline.
_PROTOCOL = ("training", "counts", "image_size", "images")
# Of a run's part of the long table, what an entry keeps.
_COUNTED = CELL_COLUMNS[len(RUN_KEYS) :]
_WIDTH = len(_COUNTED)


class Number(Strict):
    """A metric over the dataset samples, or seeds: a fraction with its 95 % interval."""

    metric: str
    binding: str
    """a binding; or a target: the mean over its cues; or empty, or "mean of 2 of 15 bindings": the
    mean over all, or over some"""
    mean: float
    low: float | None
    high: float | None
    n: int = Field(ge=FEWEST_RUNS)


class Tested(Strict):
    """A run: the digest of its predictions, its training seed, and the counts from which metrics are
    computed, as rows of `cells` without the run's names."""

    predictions: str
    seed: int | None = None
    cells: list[Annotated[list[str | int | None], Field(min_length=_WIDTH, max_length=_WIDTH)]] = (
        Field([])
    )


class Entry(Strict):
    """One baseline on one study. runs: by {binding}/{sample}; code: digests of the code that made
    them."""

    study: Name
    baseline: Name
    by: str
    link: text_like(_LINK, "a link begins with http:// or https://, and has no spaces") = ""
    date: Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$")]
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
    runs: Annotated[
        dict[Annotated[str, Field(pattern=r"^[^/]+/[0-9]+$")], Tested], Field(min_length=1)
    ]

    @property
    def counted(self) -> bool:
        """Whether its metrics can be computed from its counts."""
        own = SHIPPED.studies.get(self.study)
        beyond = own is None or own.metrics == "watermark"  # which needs more than counts
        return not beyond and all(run.cells for run in self.runs.values())


def entries(root: Path, by: str, link: str = "") -> Iterator[Entry]:
    """An entry for each baseline and study of a complete root. Those with missing runs or fewer than
    FEWEST_RUNS dataset samples are left out, with a line on standard error. DiagvibError if there
    are no tables, or they are not those of the runs."""
    tables = read_tables(root / "results/tables")
    cells = read_table(root / "results/tables/cells.parquet").to_pandas()
    settings = read_json(root / "results/tables/versions.json")["settings"]
    known, runs = known_studies(settings), tables["runs"]
    baselines = baseline_settings(runs["baseline"].unique(), settings)
    for (study, baseline), own in runs.groupby(["study", "baseline"], sort=False):
        if (own["status"] != "ok").any() or own["sample"].nunique() < FEWEST_RUNS:
            say(
                f"{study}, {baseline}: left out; it needs all its runs, on at least {FEWEST_RUNS} "
                "dataset samples or seeds"
            )
            continue
        metrics = tables["metrics"].query("study == @study and baseline == @baseline")
        cells_now = read_runs(
            root / "results/runs", own.to_dict("records"), known_studies=known
        ).cells
        counted = cells.query("study == @study and baseline == @baseline").reset_index(drop=True)
        if not counted.equals(cells_now.reset_index(drop=True).astype(cells.dtypes)):
            raise DiagvibError(
                f"{root / 'results/tables'}: made from other runs of {baseline} on {study} than those "
                f"there now; make the tables again with {command_for(root, 'diagvib tabulate')}"
            )
        counted = counted.astype({"misled": "Int64", "trained": "Int64"})
        counts = dict(list(counted.groupby(RUN_KEYS, sort=False)))
        tested, code = {}, set()
        for run in own.to_dict("records"):
            of_run = counts[tuple(run[key] for key in RUN_KEYS)][_COUNTED]
            made = read_json(run_folder(root / "results/runs", run) / "run.json")
            code.add(made["code"])
            tested[f"{run['binding']}/{run['sample']}"] = Tested(
                predictions=made["files"]["predictions.parquet"],
                seed=made["seed"],
                cells=json.loads(of_run.to_json(orient="values")),
            )
        yield Entry(
            study=study,
            by=by,
            link=link,
            date=date.today().isoformat(),
            **describe(baseline, baselines),
            sources=sorted(set(own["sources"])),
            settings=baselines[baseline],
            protocol={key: settings[key] for key in _PROTOCOL},
            metrics=_numbers(metrics, study, known),
            doubts=sorted(set(own["reason"].dropna()) - {""}),
            code=sorted(code),
            runs=tested,
        )


def _numbers(metrics: pd.DataFrame, study: str, known: KnownStudies) -> list[Number]:
    """The study's own metrics, of the rows of the table `metrics`. A mean over some of a target's
    cues, or of the bindings, says over how many."""
    names = METRIC_SETS[known.studies[study].metrics].names(study, known)
    own = metrics[metrics["metric"].isin(names) & (metrics["n"] >= FEWEST_RUNS)]
    own = own.reindex(columns=COLUMNS).astype({"cues": float, "n": int})
    possible, there = known.possible_cues(study), own["binding"][own["binding"] != ""].nunique()
    every, cues = own["target"].map(possible), own["cues"]
    few = " (" + cues.map("{:.0f}".format) + " of " + every.map("{:.0f}".format) + " cues)"
    mean = own["target"] + few.where((cues > 0) & (cues < every), "")
    if there < possible.total():
        some = f"mean of {there} of {possible.total()} bindings"
        mean = mean.where(own["target"] != "", some)
    own = own.assign(binding=own["binding"].where(own["binding"] != "", mean))
    rows = own[[*Number.model_fields]].astype(object)
    return [Number(**row) for row in rows.where(rows.notna(), None).to_dict("records")]


def submit(
    root: Path, by: str, link: str, out: Path, write: Callable[[Entry, Path], Path]
) -> list[Path]:
    """Write the entries of a root to `out`, each checked; returns their paths. DiagvibError if
    nothing can be submitted."""
    written = []
    for entry in entries(root, by, link):
        check_entry(entry, f"{entry.study}, {entry.baseline}")
        written.append(write(entry, out))
    if not written:
        raise DiagvibError(
            f"{root}: nothing in it can be submitted; first complete all runs of a baseline on a study"
        )
    return written


def write_entry(entry: Entry, out: Path) -> Path:
    """Write {out}/{study}/{baseline}.json; a run's cells take a line each. DiagvibError if it would
    replace an entry by someone else."""
    path = out / entry.study / f"{entry.baseline}.json"
    if path.exists() and (other := read_entry(path).by) != entry.by:
        raise DiagvibError(
            f"{path}: this entry is by {other}; rename your baseline {entry.baseline}, and run it "
            "under its new name"
        )
    text = json.dumps(entry.model_dump(mode="json"), indent=2)
    write_text(path, re.sub(r"\[\s+([^][{}]*?)\s+\]", _in_a_line, text) + "\n")
    return path


def _in_a_line(found: re.Match) -> str:
    return "[" + re.sub(r"\s*\n\s*", " ", found[1]) + "]"


def read_entry(path: Path) -> Entry:
    """An entry. DiagvibError, naming file and key, if it is not one or breaks a rule."""
    entry = validated(Entry, read_json(path), str(path))
    if path.parts[-2:] != (entry.study, f"{entry.baseline}.json"):
        raise DiagvibError(f"{path}: should be at {entry.study}/{entry.baseline}.json")
    check_entry(entry, str(path))
    return entry


def check_entry(entry: Entry, where: str) -> None:
    """DiagvibError, beginning with `where`, if test images may have chosen anything, the seeds are
    others than the given ones, the numbers are not those of the counts, or nobody submits it."""
    if not entry.by.strip():
        raise DiagvibError(f"{where}: by: who submits is missing; write a name")
    about = describe(entry.baseline, {entry.baseline: entry.settings})
    for key, value in about.items():
        if getattr(entry, key) != value:
            raise DiagvibError(
                f"{where}: {key} is {getattr(entry, key)!r}, but settings say {value!r}"
            )
    if not re.fullmatch("last|val_.+", entry.selection):
        raise DiagvibError(
            f"{where}: selection: {entry.selection} may use test images; choose last, or a rule on "
            "validation images"
        )
    seed = entry.protocol.get("training", {}).get("seed")
    usual = read_yaml(default_path())["training"]["seed"]
    numbers: dict[str, list[int]] = {}
    for run, tested in zip(_runs(entry), entry.runs.values(), strict=True):
        numbers.setdefault(run.binding, []).append(run.sample)
        # Of a study that is not ours, runs may be dataset samples or replicates on a shared dataset.
        other = replace(run, shared=run.shared or entry.study not in SHIPPED.studies)
        if seed != usual or tested.seed not in (None, run.seed(usual), other.seed(usual)):
            raise DiagvibError(
                f"{where}: runs.{run.binding}/{run.sample}: seed {tested.seed} of training.seed {seed}; entries "
                f"are made with training.seed {usual}, so that nobody can choose among seeds"
            )
    for binding, own in numbers.items():
        if sorted(own) != list(range(len(own))) or len(own) < FEWEST_RUNS:
            raise DiagvibError(
                f"{where}: runs of {binding} have the numbers {sorted(own)}; at least {FEWEST_RUNS} are needed, "
                "and all from 0 on, so that nobody can choose among them"
            )
    if entry.counted:
        _check_numbers(entry, where)


def _runs(entry: Entry) -> list[Run]:
    own = SHIPPED.studies.get(entry.study)
    shared = own is not None and load_scene(own.scene).replicates == "seeds"
    names = [name.split("/") for name in entry.runs]
    return [Run(entry.baseline, entry.study, name, int(number), shared) for name, number in names]


def _check_numbers(entry: Entry, where: str) -> None:
    frame = pd.DataFrame([run.keys for run in _runs(entry)])
    rows = [
        [dict(zip(_COUNTED, row, strict=True)) for row in run.cells] for run in entry.runs.values()
    ]
    cells = cells_table(frame, rows)
    if not (cells["correct"].between(0, cells["n"]) & (cells["n"] > 0)).all():
        raise DiagvibError(f"{where}: runs: a cell has more correct images than images, or none")
    found = mean_per_class(cells, [*RUN_KEYS, "group"])
    groups = found.pivot(index=RUN_KEYS, columns="group", values="accuracy").add_suffix("_accuracy")
    frame = frame.merge(groups.reset_index(), on=RUN_KEYS).assign(status="ok")
    results = Results(frame, cells, SHIPPED, {entry.baseline: entry.settings})
    made = METRIC_SETS[SHIPPED.studies[entry.study].metrics].metrics(results)
    wanted = {(one.metric, one.binding): one for one in _numbers(made, entry.study, SHIPPED)}
    given = {(one.metric, one.binding): one for one in entry.metrics}
    for key in {**wanted, **given}:
        ours, theirs = wanted.get(key), given.get(key)
        if ours is None or theirs is None or not _alike(ours, theirs):
            raise DiagvibError(
                f"{where}: metrics: {' '.join(key).strip()} is {theirs}, but the counts give {ours}"
            )


def _alike(one: Number, other: Number) -> bool:
    both = ((getattr(one, key), getattr(other, key)) for key in ("mean", "low", "high", "n"))
    return all(a == b or (None not in (a, b) and math.isclose(a, b, abs_tol=1e-9)) for a, b in both)
