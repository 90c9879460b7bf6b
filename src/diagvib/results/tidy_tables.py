"""The tidy tables, in which accuracies are fractions: making, writing and reading them; and the few
numbers that are small enough for git, results/metrics/{baseline}/{study}.json. `dvc metrics show`
lists these, and `dvc metrics diff` compares them between commits without pulling any data."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.files import read_table, write_json, write_table, write_text
from diagvib.results import TIDY
from diagvib.results.calibration import SET, calibration, calibration_tables
from diagvib.results.combinations import run_warnings
from diagvib.results.metric_sets.metric_set import COLUMNS, UNTUNED, Results, concatenated
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import SELECTABLE, Collected, run_times
from diagvib.results.reader_tables import PAPER, Frames, Table, doubtful, metrics_of, untrained
from diagvib.results.saliency_shares import saliency_tables
from diagvib.results.selection import read_searches, selection_table, selection_tables
from diagvib.results.selection_price import price_tables, selection_prices
from diagvib.results.variation import COLUMNS as VARIATION
from diagvib.results.variation import variation_rows, variation_tables
from diagvib.settings.baselines import baseline_names, load_settings
from diagvib.settings.method_settings import is_trained
from diagvib.settings.resolve import command_for
from diagvib.studies.known_studies import KnownStudies

DIGITS = 4  # of the numbers for git
DOUBTFUL, UNTRAINED = "‡", "§"
OWN_OUTPUTS = "own outputs"
_MEANINGS = {
    DOUBTFUL: f"{DOUBTFUL} doubtful runs, which are listed with the missing ones",
    UNTRAINED: f"{UNTRAINED} {OWN_OUTPUTS}, not trained here",
}
_SIGNS = re.compile(f"( [{UNTUNED}{DOUBTFUL}{UNTRAINED}])+$")
_OF_BASELINE = ("baseline", "first", "second")  # the heads of columns that name one


def make_tables(
    collected: Collected,
    known_studies: KnownStudies,
    baselines: Mapping[str, dict],
    tuned: Path | None = None,
) -> Frames:
    """The tables that are made from runs alone, by name.

    `metrics` has the rows of every set, each from the runs of the studies that name it. baselines:
    name -> settings; tuned: folder of tuning results.
    """
    runs, parts, frames, variation = collected.frame, [], {}, []
    results = Results(runs, collected.cells, known_studies, baselines, collected.cue_label)
    for name, metric_set in METRIC_SETS.items():
        set_results = results.of(known_studies.judged_by(name, runs["study"]))
        set_metrics = metric_set.metrics(set_results)
        parts.append(set_metrics.assign(metric_set=name, note=set_metrics.get("note", "")))
        frames |= metric_set.tables(set_results)
        variation += variation_rows(metric_set.of_run(set_results)) if len(set_results.runs) else []
    parts.append(calibration(runs, baselines))
    metrics = concatenated(parts, COLUMNS).reindex(columns=COLUMNS)
    return {
        "runs": runs,
        "metrics": metrics.astype({"cues": float}),
        **frames,
        "selection": selection_table(collected, read_searches(tuned), known_studies, baselines),
        "selection_price": selection_prices(collected, baselines),
        "variation": pd.DataFrame(variation, columns=VARIATION),
        "run_times": run_times(collected),
    }


def with_warnings(metrics: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The table `metrics` with the column `warning`, which is in `note`, too: combinations without
    test images, doubtful runs. An empty binding is all of them, and an empty study all studies."""
    keys = ["study", "baseline", "binding"]
    warnings = {}
    for names in metrics[keys].drop_duplicates().itertuples(index=False, name=None):
        conditions = [
            runs[key].eq(name) | (name == "") for key, name in zip(keys, names, strict=True)
        ]
        warnings[names] = run_warnings(runs[np.logical_and.reduce(conditions)])
    rows = metrics[keys].itertuples(index=False, name=None)
    warning = pd.Series([warnings[names] for names in rows], metrics.index, dtype=object)
    notes = [
        "; ".join(filter(None, texts))
        for texts in zip(warning, metrics["note"].fillna(""), strict=True)
    ]
    return metrics.assign(note=notes, warning=warning)


def marked(tables: Sequence[Table], frames: Frames, known_studies: KnownStudies) -> list[Table]:
    """The tables with a sign beside each baseline of which runs are doubtful (in the row's study, or
    that of the title, or in any, as beside a mean over studies), and each that trains nothing, and
    with the signs' meaning."""
    runs = frames["runs"]
    titles = {known_studies.title(study): study for study in runs["study"].unique()}
    signs = {DOUBTFUL: doubtful(runs), UNTRAINED: runs["baseline"].isin(untrained(frames))}
    for sign, rows in signs.items():
        pairs = {*runs.loc[rows, ["baseline", "study"]].itertuples(index=False, name=None)}
        tables = [_marked(table, titles, pairs, sign) for table in tables]
    return [_without_classes(table) for table in tables]


def _without_classes(table: Table) -> Table:
    """The table with words for the method and the selection of those that train nothing."""
    column = table.heads.index("method") if "method" in table.heads else len(table.heads)
    words = {"method": OWN_OUTPUTS, "selection": "-"}
    rows = [
        [words.get(head, cell) for head, cell in zip(table.heads, row, strict=True)]
        if row[column:] and not is_trained(row[column])
        else row
        for row in table.rows
    ]
    return replace(table, rows=rows)


def bare(name: str) -> str:
    """A baseline's name without the signs beside it."""
    return _SIGNS.sub("", name)


def _marked(
    table: Table, titles: Mapping[str, str], marked_pairs: Set[tuple[str, str]], sign: str
) -> Table:
    """titles: of studies -> their names; marked_pairs: baselines and studies with the sign."""
    # The longest first, since one title may begin another: FGO-1, FGO-10.
    names = "|".join(map(re.escape, sorted(titles, key=len, reverse=True)))
    in_title = re.findall(rf"(?<!\w)(?:{names})(?!\w)", table.title)
    begins = bool(in_title) and table.title.startswith(in_title[0])

    def mark(text: str, study: str | None = None) -> str:
        studies = [study] if study in titles else in_title if begins else titles
        name = bare(text)
        pairs = {(name, titles[title]) for title in studies}
        return f"{text} {sign}" if pairs & marked_pairs else text

    column = table.heads.index("study") if "study" in table.heads else None
    rows = [
        [
            mark(cell, None if column is None else row[column])
            if head in _OF_BASELINE and cell is not PAPER
            else cell
            for head, cell in zip(table.heads, row, strict=True)
        ]
        for row in table.rows
    ]
    heads = [mark(head) for head in table.heads]
    has_signs = (heads, rows) != (table.heads, table.rows)
    return replace(
        table, heads=heads, rows=rows, notes=[*table.notes, *[_MEANINGS[sign]] * has_signs]
    )


def result_tables(tables: Frames, known_studies: KnownStudies) -> list[Table]:
    """The tables for readers: those of each set of metrics, of saliency and of selection rules."""
    shown_tables = [
        table
        for name, metric_set in METRIC_SETS.items()
        for table in metric_set.shown(metrics_of(tables, name), tables, known_studies)
    ]
    shown_tables += saliency_tables(tables["runs"], known_studies)
    shown_tables += calibration_tables(metrics_of(tables, SET), known_studies)
    shown_tables += selection_tables(tables["selection"], known_studies)
    shown_tables += price_tables(tables["selection_price"], known_studies)
    return [*shown_tables, *variation_tables(tables["variation"], known_studies)]


def time_table(times: pd.DataFrame) -> Table:
    """For readers: how fast each baseline's runs were, by device."""
    stages = [column for column in times if column.startswith("seconds_")]
    rows = []
    groups = times.fillna({"device": "-"}).groupby(["baseline", "device"], sort=False)
    for names, group_times in groups:
        means = group_times[["images_per_second", *stages]].mean()
        texts = ["-" if mean != mean else f"{mean:,.1f}" for mean in means]
        rows.append([*names, *texts, f"{len(group_times):,}"])
    seconds = [f"{name.removeprefix('seconds_')}, s" for name in stages]
    heads = ["baseline", "device", "images/s", *seconds, "runs"]
    return Table("Mean over runs", heads, rows, section="Run times")


def write_tidy(tables: Frames, collected: Collected, out: Path) -> None:
    """As CSV and Parquet; an empty field is a missing number. The seed of runs is left out where all
    have the first, as before there were others (`with_seeds`)."""
    large = {"cells": collected.cells, "history": collected.history.drop(columns=SELECTABLE)}
    unwritten = [] if collected.frame["seed"].any() else ["seed"]
    for name, table in {**tables, **large}.items():
        table = table.drop(columns=unwritten, errors="ignore")
        if name in tables:
            write_text(out / f"{name}.csv", table.to_csv(index=False, float_format="%.10g"))
        content = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        write_table(out / f"{name}.parquet", content, {"table": name})


def baseline_settings(names: Iterable[str], settings: dict) -> dict[str, dict]:
    """Every baseline's settings: as configured, otherwise as in `config/baselines`; {} for an
    unknown one. Runs that were made with others do not count (`provenance.finished`)."""
    configured = {entry["name"]: entry["settings"] for entry in settings.get("baselines", [])}
    shipped = set(baseline_names())
    return {
        name: configured.get(name) or (load_settings(name) if name in shipped else {})
        for name in names
    }


def read_tables(tables: Path) -> Frames:
    """The tidy tables by name. DiagvibError if one is missing or damaged."""
    frames = {}
    for name in TIDY:
        path = tables / f"{name}.parquet"
        try:
            frames[name] = with_seeds(read_table(path).to_pandas())
        except DiagvibError as error:
            again = command_for(tables.parents[1], "diagvib tabulate")
            raise DiagvibError(f"{one_line(error)}; run {again}") from None
    return frames


def read_history(tables: Path, by: str, name: str) -> pd.DataFrame:
    """Every recorded epoch of the runs of one baseline or study, as in `read_runs.Collected`."""
    selected = pc.field(by) == name
    return with_seeds(read_table(tables / "history.parquet").filter(selected).to_pandas())


def with_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """A table that has a row for each run, or several, with the number of the run's seed."""
    if "sample" in table and "seed" not in table:
        table.insert(table.columns.get_loc("sample") + 1, "seed", 0)
    return table


def write_scores(metrics: pd.DataFrame, known_studies: KnownStudies, out: Path) -> None:
    """One JSON file for each baseline and study, and none of others. metrics: the tidy table."""
    out.mkdir(parents=True, exist_ok=True)  # a stage's output, even if empty
    stale_files = set(out.glob("*/*.json"))
    for (baseline, study), study_metrics in metrics.groupby(["baseline", "study"], sort=False):
        if study:
            names = METRIC_SETS[study_metrics["metric_set"].iloc[0]].names(study, known_studies)
            path = out / baseline / f"{study}.json"
            write_json(path, scores(study_metrics, names))
            stale_files.discard(path)
    for path in stale_files:
        path.unlink()


def scores(study_metrics: pd.DataFrame, names: list[str]) -> dict[str, float]:
    """Each metric, mean over the target factors, and over the bindings as in the table; left out if
    one of the factors has none. Where a paper has numbers: agreeing, the share of the decided cells
    that agree, and decided, their number."""
    mean = study_metrics["binding"].eq("") | (study_metrics["binding"].nunique() == 1)
    values = study_metrics[mean & study_metrics["metric"].isin(names)].groupby(
        "metric", sort=False
    )["mean"]
    values = values.agg(lambda means: means.mean(skipna=False)).dropna()
    values_by_metric = {metric: round(float(value), DIGITS) for metric, value in values.items()}
    decided = study_metrics["verdict"].isin(["agrees", "differs"])
    if decided.any():
        agreeing = (study_metrics.loc[decided, "verdict"] == "agrees").mean()
        values_by_metric |= {
            "agreeing": round(float(agreeing), DIGITS),
            "decided": int(decided.sum()),
        }
    return values_by_metric
