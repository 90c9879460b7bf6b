"""Entries of the leaderboard: leaderboard/{study}/{baseline}.json, one file for each."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import read_json, read_table, read_yaml, write_text
from diagvib.foundation.messages import say
from diagvib.foundation.validation import Name, Strict, TextLike, validated
from diagvib.provenance.tabulated import made_with
from diagvib.results.cells import CELL_COLUMNS, RUN_KEYS, cells_table, mean_per_class
from diagvib.results.metric_sets.metric_set import COLUMNS, Results, describe
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import read_runs, run_folder
from diagvib.results.tidy_tables import baseline_settings, read_tables, with_seeds
from diagvib.scenes import load_scene
from diagvib.settings.layout import RUN_FOLDER, Run, run_folder_name, run_numbers
from diagvib.settings.resolve import command_for, default_path
from diagvib.studies.known_studies import SHIPPED, KnownStudies, known_studies

FEWEST_RUNS = 3
_LINK = r"(https?://[^\s\"'<>\\^`{|}]+)?"
# Of the configuration, what results depend on besides the baseline.
_PROTOCOL = ("training", "counts", "image_size", "images")
# Of a run's part of the long table, what an entry keeps.
_COUNTED = CELL_COLUMNS[len(RUN_KEYS) :]
_WIDTH = len(_COUNTED)
_JOB = ["baseline", "study"]


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
    """One baseline on one study. runs: by {binding}/`Run.folder`; code: digests of the code that made
    them."""

    study: Name
    baseline: Name
    by: str
    link: Annotated[
        str, TextLike(_LINK, "a link begins with http:// or https://, and has no spaces")
    ] = ""
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
        dict[Annotated[str, Field(pattern=rf"^[^/]+/{RUN_FOLDER}$")], Tested], Field(min_length=1)
    ]

    @property
    def counted(self) -> bool:
        """Whether its metrics can be computed from its counts."""
        study = SHIPPED.studies.get(self.study)
        if study is None or not METRIC_SETS[study.metrics].counts_suffice:
            return False
        return all(run.cells for run in self.runs.values())


def entries(root: Path, by: str, link: str = "") -> Iterator[Entry]:
    """An entry for each baseline and study of a complete root. Those with missing runs or fewer than
    FEWEST_RUNS dataset samples are left out, with a line on standard error. DiagvibError if there
    are no tables, or they are not those of the runs."""
    tables = read_tables(root / "results/tables")
    cells = with_seeds(read_table(root / "results/tables/cells.parquet").to_pandas())
    settings = made_with(root / "results/tables")
    studies_known, runs = known_studies(settings), tables["runs"]
    baselines = baseline_settings(runs["baseline"].unique(), settings)
    for (study, baseline), study_runs in runs.groupby(["study", "baseline"], sort=False):
        if (study_runs["status"] != "ok").any() or study_runs["sample"].nunique() < FEWEST_RUNS:
            say(
                f"{study}, {baseline}: left out; it needs all its runs, on at least {FEWEST_RUNS} "
                "dataset samples or seeds"
            )
            continue
        metrics = tables["metrics"].query("study == @study and baseline == @baseline")
        if text := outdated(root, study_runs, cells, studies_known):
            raise DiagvibError(f"{root / 'results/tables'}: {text}")
        counted = cells.query("study == @study and baseline == @baseline")
        counted = counted.astype({"misled": "Int64", "trained": "Int64"})
        counts = dict(list(counted.groupby(RUN_KEYS, sort=False)))
        tested, code = {}, set()
        for run in study_runs.to_dict("records"):
            of_run = counts[tuple(run[key] for key in RUN_KEYS)][_COUNTED]
            provenance = read_json(run_folder(root / "results/runs", run) / "run.json")
            code.add(provenance["code"])
            folder = run_folder_name(run["sample"], run["seed"])
            tested[f"{run['binding']}/{folder}"] = Tested(
                predictions=provenance["files"]["predictions.parquet"],
                seed=provenance["seed"],
                cells=json.loads(of_run.to_json(orient="values")),
            )
        yield Entry(
            study=study,
            by=by,
            link=link,
            date=date.today().isoformat(),
            **describe(baseline, baselines),
            sources=sorted(set(study_runs["sources"])),
            settings=baselines[baseline],
            protocol={key: settings[key] for key in _PROTOCOL},
            metrics=_numbers(metrics, study, studies_known),
            doubts=sorted(set(study_runs["reason"].dropna()) - {""}),
            code=sorted(code),
            runs=tested,
        )


def outdated(
    root: Path, runs: pd.DataFrame, cells: pd.DataFrame, known_studies: KnownStudies
) -> str:
    """Whose runs are others than those that a root's tables were made from, and what to do; empty if
    none are. runs: rows of the table `runs`; cells: the table."""
    now = read_runs(root / "results/runs", runs.to_dict("records"), known_studies=known_studies)
    counted = _by_job(cells.merge(runs[RUN_KEYS]))
    counted_now = _by_job(now.cells.astype(cells.dtypes))
    empty = cells[:0]
    changed = [
        " on ".join(names)
        for names, _ in runs.groupby(_JOB, sort=False)
        if not counted.get(names, empty).equals(counted_now.get(names, empty))
    ]
    again = command_for(root, "diagvib tabulate")
    made_from = f"made from other runs of {some_names(changed)} than those there now"
    return f"{made_from}; make the tables again with {again}" if changed else ""


def _by_job(cells: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """The rows of each baseline on each study."""
    return {names: rows.reset_index(drop=True) for names, rows in cells.groupby(_JOB)}


def _numbers(metrics: pd.DataFrame, study: str, known_studies: KnownStudies) -> list[Number]:
    """The study's own metrics, of the rows of the table `metrics`. A mean over some of a target's
    cues, or of the bindings, says over how many."""
    names = METRIC_SETS[known_studies.studies[study].metrics].names(study, known_studies)
    study_metrics = metrics[metrics["metric"].isin(names) & (metrics["n"] >= FEWEST_RUNS)]
    study_metrics = study_metrics.reindex(columns=COLUMNS).astype({"cues": float, "n": int})
    possible = known_studies.possible_cues(study)
    binding_count = study_metrics["binding"][study_metrics["binding"] != ""].nunique()
    target_cues, cues = study_metrics["target"].map(possible), study_metrics["cues"]
    cue_counts = (
        " (" + cues.map("{:.0f}".format) + " of " + target_cues.map("{:.0f}".format) + " cues)"
    )
    mean = study_metrics["target"] + cue_counts.where((cues > 0) & (cues < target_cues), "")
    if binding_count < possible.total():
        bindings_text = f"mean of {binding_count} of {possible.total()} bindings"
        mean = mean.where(study_metrics["target"] != "", bindings_text)
    study_metrics = study_metrics.assign(
        binding=study_metrics["binding"].where(study_metrics["binding"] != "", mean)
    )
    rows = study_metrics[[*Number.model_fields]].astype(object)
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
    if path.exists() and (submitter := read_entry(path).by) != entry.by:
        raise DiagvibError(
            f"{path}: this entry is by {submitter}; rename your baseline {entry.baseline}, and run it "
            "under its new name"
        )
    text = json.dumps(entry.model_dump(mode="json"), indent=2)
    write_text(path, re.sub(r"\[\s+([^][{}]*?)\s+\]", _in_a_line, text) + "\n")
    return path


def _in_a_line(match: re.Match) -> str:
    return "[" + re.sub(r"\s*\n\s*", " ", match[1]) + "]"


def read_entry(path: Path) -> Entry:
    """An entry. DiagvibError, naming file and key, if it is not one or breaks a rule."""
    entry = validated(Entry, read_json(path), str(path))
    if path.parts[-2:] != (entry.study, f"{entry.baseline}.json"):
        raise DiagvibError(f"{path}: should be at {entry.study}/{entry.baseline}.json")
    check_entry(entry, str(path))
    return entry


def check_entry(entry: Entry, location: str) -> None:
    """DiagvibError, beginning with `location`, if test images may have chosen anything, the seeds are
    others than the given ones, the numbers are not those of the counts, or nobody submits it."""
    if not entry.by.strip():
        raise DiagvibError(f"{location}: by: the submitter's name is missing; write one")
    description = describe(entry.baseline, {entry.baseline: entry.settings})
    for key, value in description.items():
        if getattr(entry, key) != value:
            raise DiagvibError(
                f"{location}: {key} is {getattr(entry, key)!r}, but settings say {value!r}"
            )
    if not re.fullmatch("last|val_.+", entry.selection):
        raise DiagvibError(
            f"{location}: selection: {entry.selection} may use test images; choose last, or a rule on "
            "validation images"
        )
    seed = entry.protocol.get("training", {}).get("seed")
    default_seed = read_yaml(default_path())["training"]["seed"]
    numbers: dict[str, list[tuple[int, int]]] = {}
    for run, tested in zip(_runs(entry), entry.runs.values(), strict=True):
        numbers.setdefault(run.binding, []).append((run.sample, run.seed))
        # Of a study that is not ours, runs may be dataset samples or replicates on a shared dataset.
        shared_run = replace(run, shared=run.shared or entry.study not in SHIPPED.studies)
        if seed != default_seed or tested.seed not in (
            None,
            run.training_seed(default_seed),
            shared_run.training_seed(default_seed),
        ):
            raise DiagvibError(
                f"{location}: runs.{run.binding}/{run.folder}: seed {tested.seed} of training.seed {seed}; entries "
                f"are made with training.seed {default_seed}, so that nobody can choose among seeds"
            )
    for binding, pairs in numbers.items():
        samples, seeds = (len({*column}) for column in zip(*pairs, strict=True))
        if sorted(pairs) != [*product(range(samples), range(seeds))] or samples < FEWEST_RUNS:
            folders = ", ".join(run_folder_name(*pair) for pair in sorted(pairs))
            raise DiagvibError(
                f"{location}: runs of {binding} have the numbers [{folders}]; at least {FEWEST_RUNS} are needed, "
                "and all from 0 on, each with the same seeds, so that nobody can choose among them"
            )
    if entry.counted:
        _check_numbers(entry, location)


def _runs(entry: Entry) -> list[Run]:
    definition = SHIPPED.studies.get(entry.study)
    shared = definition is not None and load_scene(definition.scene).replicates == "seeds"
    names = [name.split("/") for name in entry.runs]
    numbers = [(binding, *run_numbers(folder)) for binding, folder in names]
    return [
        Run(entry.baseline, entry.study, binding, sample, shared, seed)
        for binding, sample, seed in numbers
    ]


def _check_numbers(entry: Entry, location: str) -> None:
    frame = pd.DataFrame([run.keys for run in _runs(entry)])
    rows = [
        [dict(zip(_COUNTED, row, strict=True)) for row in run.cells] for run in entry.runs.values()
    ]
    cells = cells_table(frame, rows)
    if not (cells["correct"].between(0, cells["n"]) & (cells["n"] > 0)).all():
        raise DiagvibError(f"{location}: runs: a cell has more correct images than images, or none")
    means = mean_per_class(cells, [*RUN_KEYS, "group"])
    groups = means.pivot(index=RUN_KEYS, columns="group", values="accuracy").add_suffix("_accuracy")
    frame = frame.merge(groups.reset_index(), on=RUN_KEYS).assign(status="ok")
    results = Results(frame, cells, SHIPPED, {entry.baseline: entry.settings})
    metrics = METRIC_SETS[SHIPPED.studies[entry.study].metrics].metrics(results)
    expected = {
        (number.metric, number.binding): number
        for number in _numbers(metrics, entry.study, SHIPPED)
    }
    submitted = {(number.metric, number.binding): number for number in entry.metrics}
    for key in {**expected, **submitted}:
        ours, theirs = expected.get(key), submitted.get(key)
        if ours is None or theirs is None or not same_number(ours, theirs):
            raise DiagvibError(
                f"{location}: metrics: {' '.join(key).strip()} is {theirs}, but the counts give {ours}"
            )


def same_number(number: Number, reference: Number) -> bool:
    values = (
        (getattr(number, key), getattr(reference, key)) for key in ("mean", "low", "high", "n")
    )
    return all(
        a == b or (None not in (a, b) and math.isclose(a, b, abs_tol=1e-9)) for a, b in values
    )
