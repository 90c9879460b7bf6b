"""`diagvib table`: one table for a paper, methods by studies, from a root's runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path

import pandas as pd

from diagvib.commands.submit import outdated
from diagvib.foundation.errors import DiagvibError, unknown_name
from diagvib.foundation.files import read_table, write_text
from diagvib.papers.notes import source_note
from diagvib.provenance.tabulated import made_with
from diagvib.results.cells import RUN_KEYS
from diagvib.results.metric_sets.metric_set import (
    BASELINE,
    NUMBERS,
    Results,
    describe,
    mean_over_studies,
    over_samples,
)
from diagvib.results.metric_sets.registry import METRIC_SETS
from diagvib.results.read_runs import run_folder
from diagvib.results.reader_tables import Table, interval, latex, markdown, narrowed, percent
from diagvib.results.tidy_tables import bare, baseline_settings, marked, read_tables, with_seeds
from diagvib.studies.known_studies import known_studies

AVERAGE = "average"
FORMATS = (".tex", ".md", ".csv")
_UNBOUNDED = {name for metric_set in METRIC_SETS.values() for name in metric_set.unbounded}


@dataclass(frozen=True)
class Choices:
    """metric: its name; by default that of the study's set of metrics (`MetricSet.summary`). spread:
    stderr, interval (95 %) or none. label: LaTeX's."""

    studies: Sequence[str] = field(default_factory=list)
    metric: str | None = None
    spread: str = "stderr"
    average: bool = True
    label: str = "tab:results"
    caption: str = ""


def methods_table(root: Path, choices: Choices) -> Table:
    """A row for each baseline, by its `title`, and a column for each study, with the best in bold.
    Descriptions that are the same in all rows are left out. DiagvibError for a study or metric
    that the root does not have."""
    frames = read_tables(root / "results/tables")
    settings = made_with(root / "results/tables")
    cells = with_seeds(read_table(root / "results/tables/cells.parquet").to_pandas())
    studies_known, runs = known_studies(settings), frames["runs"]
    for name in choices.studies:
        if name not in set(runs["study"]):
            raise unknown_name("study", name, runs["study"].unique(), str(root))
    runs = runs[runs["study"].isin(choices.studies)] if choices.studies else runs
    names = [*runs["baseline"].unique()]
    baselines = baseline_settings(names, settings)
    results = Results(runs, cells[cells["study"].isin(runs["study"])], studies_known, baselines)
    columns = _columns(results, choices)
    rows = [[*describe(name, baselines).values()] for name in names]
    best = set()
    for head, (numbers, lower_is_better, change) in columns.items():
        for name, row in zip(names, rows, strict=True):
            row.append(_text(numbers.get(name), choices.spread, change))
        best |= {(names.index(name), head) for name in _best(numbers, lower_is_better)}
    # Whoever has pulled tables alone has no runs.
    has_folder = [
        run_folder(root / "results/runs", run).exists() for run in runs.to_dict("records")
    ]
    changed = outdated(root, runs[has_folder], cells, studies_known)
    notes = [
        *filter(None, [source_note(runs, settings), changed and f"The tables were {changed}."])
    ]
    metrics = dict.fromkeys(_metric(results, study, choices) for study in runs["study"])
    unit = "" if {*metrics} <= _UNBOUNDED else ", percent"
    spread = {"stderr": "mean ± standard error", "interval": "mean and 95 % interval"}
    caption = (
        choices.caption
        or f"Methods by studies: {', '.join(metrics)}{unit}, {spread.get(choices.spread, 'mean')}"
    )
    table = Table(caption, [*BASELINE, *columns], rows, notes, label=choices.label)
    (table,) = marked([table], {**frames, "runs": runs}, studies_known)
    titled = [[_titled(row[0], baselines), *row[1:]] for row in table.rows]
    last_apart = settings.get("mine") == names[-1] and len(names) > 1
    heads = ["method" if head == "baseline" else head for head in table.heads]
    heads[BASELINE.index("method")] = "learns by"
    table = replace(table, heads=heads, rows=titled, best=frozenset(best), last_apart=last_apart)
    return narrowed(table)


Column = tuple[dict[str, dict], bool, bool]


def _columns(results: Results, choices: Choices) -> dict[str, Column]:
    """By head: the numbers of each baseline, whether less is better, and whether they are changes."""
    columns, parts = {}, []
    for study in results.runs["study"].unique():
        of_study, metric = results.of([study]), _metric(results, study, choices)
        metric_set = METRIC_SETS[results.known_studies.studies[study].metrics]
        values = metric_set.of_run(of_study)
        if metric not in values:
            metrics = [name for name in values if name not in RUN_KEYS]
            raise unknown_name("metric", metric, metrics, study)
        if choices.metric is None and values[metric].isna().all():  # as without cues
            values = values.assign(**{metric: values.get("id_accuracy")})
        extents = metric_set.differences, metric_set.bounds
        numbers = over_samples(values, [metric], results.baselines, *extents)
        if metric in _UNBOUNDED:  # not in percent
            numbers[NUMBERS[:4]] /= 100
        change = metric in {*metric_set.differences, *metric_set.bounds}
        kind = metric in metric_set.lower_is_better, change
        rows = _by_baseline(numbers, values)
        columns[results.known_studies.title(study)] = rows, *kind
        parts.append(
            values[[*RUN_KEYS, metric]].rename(columns={metric: AVERAGE}).assign(kind=str(kind))
        )
    together = pd.concat(parts, ignore_index=True)
    if choices.average and len(parts) > 1 and together["kind"].nunique() == 1:
        head = AVERAGE if AVERAGE not in columns else "average of the studies"
        columns[head] = _averages(together, results, columns), *kind
    return columns


def _metric(results: Results, study: str, choices: Choices) -> str:
    metric_set = METRIC_SETS[results.known_studies.studies[study].metrics]
    names = metric_set.names(study, results.known_studies)
    return choices.metric or metric_set.summary or names[0]


def _by_baseline(numbers: pd.DataFrame, values: pd.DataFrame) -> dict[str, dict]:
    """Of each baseline, the row of the mean over its bindings, or of the only one; bindings: how many
    these are, as `1 of 3`, if there are others. values: of the runs."""
    rows, bindings = {}, values.groupby("baseline")["binding"].unique()
    total = values["binding"].nunique()
    for row in numbers.to_dict("records"):
        count = len(bindings[row["baseline"]])
        row["bindings"] = f"{count} of {total} bindings" if count < total else ""
        if row["baseline"] not in rows or row["binding"] == "":
            rows[row["baseline"]] = row
    return rows


def _averages(
    values: pd.DataFrame, results: Results, columns: Mapping[str, Column]
) -> dict[str, dict]:
    """The mean over studies of baselines that have them all; with its spread, if they have the same
    bindings."""
    paired = _by_baseline(mean_over_studies(values, [AVERAGE], results.baselines), values)
    averages = {}
    for name in values["baseline"].unique():
        rows = [numbers.get(name, {"n": 0, "expected": 1}) for numbers, *_ in columns.values()]
        if all(row["n"] == row["expected"] for row in rows):
            mean = sum(row["mean"] for row in rows) / len(rows)
            plain = {"mean": mean, "stderr": 0.0, "n": 2, "expected": 2, "spread": False}
            row = paired.get(name, plain)
            bindings = next(filter(None, (row["bindings"] for row in rows)), "")
            row = row if isclose(row["mean"], mean) else plain
            averages[name] = row | {"bindings": bindings}
    return averages


def _best(numbers: Mapping[str, dict], lower_is_better: bool) -> list[str]:
    """The complete baselines, with all bindings, whose printed mean is best, if there are several."""
    means = {
        name: round(100 * row["mean"], 1) * (-1 if lower_is_better else 1)
        for name, row in numbers.items()
        if row["n"] == row["expected"] and row["mean"] == row["mean"] and not row["bindings"]
    }
    return [name for name, mean in means.items() if len(means) > 1 and mean == max(means.values())]


def _text(row: Mapping | None, spread: str, change: bool) -> str:
    if row is None or not row["n"]:
        return "-"
    mean, notes = f"{100 * row['mean']:z.1f}", [*filter(None, [row["bindings"]])]
    if spread == "stderr" and row.get("spread", True):
        text = percent(row["mean"], row["stderr"], row["n"], row["expected"], change)
        return " ".join([text, *(f"({note})" for note in notes)])
    notes += [f"n = {row['n']:.0f} of {row['expected']:.0f}"] * (row["n"] < row["expected"])
    if spread == "interval" and row.get("spread", True):
        notes = [interval(row["low"], row["high"], change), *notes]
    return f"{mean} ({'; '.join(notes)})" if notes else mean


def _titled(text: str, baselines: Mapping[str, dict]) -> str:
    """A baseline's title in place of its name, before its signs."""
    name = bare(text)
    return baselines[name].get("title", name) + text[len(name) :]


def write_table(root: Path, choices: Choices, out: Path) -> Table:
    """Write the table as LaTeX, Markdown or CSV, by the file's ending. DiagvibError for another."""
    if out.suffix not in FORMATS:
        raise DiagvibError(f"{out}: the extension must be one of {', '.join(FORMATS)}")
    table = methods_table(root, choices)
    if out.suffix == ".csv":
        frame = pd.DataFrame(table.rows, columns=table.heads)
        text = frame.to_csv(index=False, lineterminator="\n")
    else:
        needed = "% needs \\usepackage{booktabs}"
        lines = markdown(table) if out.suffix == ".md" else [needed, *latex(table, "")]
        text = "\n".join(lines) + "\n"
    write_text(out, text)
    return table
