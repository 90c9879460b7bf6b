"""The interface of a set of metrics. A set needs a title, `names` and `of_run`; the rest has
defaults."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.hooks import check_hooks
from diagvib.results.cells import RUN_KEYS
from diagvib.results.reader_tables import PAPER, Frames, Table, of_samples
from diagvib.results.uncertainty import Estimate, estimate, sample_interval
from diagvib.studies.known_studies import KnownStudies

# The description of a baseline in every table.
BASELINE = ["baseline", "model", "method", "supervision", "selection"]
KEYS = ["study", *BASELINE, "binding", "target", "cue"]
NUMBERS = ["mean", "stderr", "low", "high", "n", "expected"]
# The columns of the table `metrics`. images: of a group's accuracy, the number of test images of a
# dataset sample; if the target classes have unequally many, the number at which equal classes would
# give the mean over classes the same standard error, were all equally well recognised. cues: the
# number of cues that a mean is over, where it is one. note: what a reader must know of the row.
COLUMNS = ["metric_set", *KEYS, "metric", *NUMBERS, "images", "cues", "note"]
_ROUNDING = 1e-9
# Said of settings that are starting points, in a baseline's `origin`.
NOT_TUNED = "not tuned"
UNTUNED = "†"
NO_INTERVAL = (np.nan, np.nan)


@dataclass(frozen=True)
class Results:
    """The material of metrics. runs: as from `read_runs.read_runs`, with an accuracy for each
    test group; cells: the long table (`cells.CELL_COLUMNS`); baselines: name -> settings;
    cue_label: as of `read_runs.Collected`."""

    runs: pd.DataFrame
    cells: pd.DataFrame
    known_studies: KnownStudies
    baselines: Mapping[str, dict]
    cue_label: Sequence[Mapping[str, Set[str]] | None] = ()

    def of(self, studies: Sequence[str]) -> "Results":
        """Those of some studies."""
        frames = (table[table["study"].isin(studies)] for table in (self.runs, self.cells))
        return Results(*frames, self.known_studies, self.baselines, self.cue_label)


@dataclass
class Finding:
    """A sentence, and bars: what each is the accuracy of, and its value. section: the title of the
    section that it belongs to; intervals: of the bars that have one, their 95 % intervals."""

    section: str
    text: str
    chance: float
    accuracies: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


class MetricSet:
    """title and introduction: the title of the set's section, and the paragraphs below it. differences:
    metric -> the metric that it is measured from, for metrics that are a difference of
    accuracies. bounds: metrics that are neither accuracies nor such differences -> the least and the
    greatest value that they may have. heads: metric -> its head in tables, if that is not its name.
    lower_is_better: metrics of which a lower value is better; where results are shared. of_group:
    test group -> the metric that is its accuracy, if its name is not `{group}_accuracy`. summary: the
    metric of `diagvib table`; by default the first of `names`."""

    title: str
    introduction: Sequence[str] = ()
    differences: ClassVar[Mapping[str, str]] = {}
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}
    heads: ClassVar[Mapping[str, str]] = {}
    lower_is_better: ClassVar[Collection[str]] = ()
    of_group: ClassVar[Mapping[str, str]] = {}
    summary = ""

    def __init_subclass__(cls) -> None:
        check_hooks(cls, MetricSet, "metric set")

    @property
    def unbounded(self) -> set[str]:
        """Those of `bounds` that may be greater than 1."""
        return {name for name, (_, greatest) in self.bounds.items() if greatest > 1}

    def names(self, study: str, known_studies: KnownStudies) -> Sequence[str]:
        """The metrics of a study."""
        raise NotImplementedError

    def of_run(self, results: Results) -> pd.DataFrame:
        """RUN_KEYS and a column for each metric, a fraction; a row for each run, NaN if it is
        missing."""
        raise NotImplementedError

    def metrics(self, results: Results) -> pd.DataFrame:
        """The set's rows of the table `metrics`."""
        parts, tested = [], set(results.cells["study"])
        for study, study_values in self.of_run(results).groupby("study", sort=False):
            names = self.names(study, results.known_studies)
            if study in tested:
                self._check_values(study_values, names)
            extents = self.differences, self.bounds
            parts.append(over_samples(study_values, names, results.baselines, *extents))
        rows = concatenated(parts, [*KEYS, "metric", *NUMBERS])
        return rows.merge(
            group_images(results.cells, self.of_group), how="left", on=[*_RUNS, "metric"]
        )

    def _check_values(self, values: pd.DataFrame, names: Sequence[str]) -> None:
        """DiagvibError for a metric without a column, and for a number that it cannot have."""
        location = f"metric set {type(self).__module__}:{type(self).__name__}"
        for name in names:
            if name not in values:
                columns = some_names([*values.columns.drop(RUN_KEYS, errors="ignore")])
                raise DiagvibError(
                    f"{location}: `names` lists {name}, which `of_run` has no column for; its "
                    f"columns: {columns}"
                )
            minimum, maximum = self.bounds.get(name, (-1 if name in self.differences else 0, 1))
            column = values[name].astype(float)
            inside = column.between(minimum - _ROUNDING, maximum + _ROUNDING) | column.isna()
            if not inside.all():
                run = values[~inside].iloc[0]
                keys = (
                    f"{run['baseline']}, {run['study']}, {run['binding']}, sample {run['sample']}"
                )
                raise DiagvibError(
                    f"{location}: {name} is {run[name]:g} ({keys}), which is not between {minimum:g} and "
                    f"{maximum:g}; list its least and greatest possible values in `bounds`"
                )

    def of_predictions(self, path: Path, target: str) -> dict[str, float]:
        """Columns of a run in the table `runs` that counts do not give. path: of its predictions."""
        return {}

    @property
    def counts_suffice(self) -> bool:
        """Whether the metrics follow from the long table of counts."""
        return type(self).of_predictions is MetricSet.of_predictions

    def tables(self, results: Results) -> Frames:
        """Further tables, by the names that `studies.metric_needs.METRICS` lists for the set."""
        return {}

    def shown(
        self, metric_rows: pd.DataFrame, tables: Frames, known_studies: KnownStudies
    ) -> Iterator[Table]:
        """Tables for readers; by default one for each study, with a row for each baseline.

        metric_rows: the set's of the table `metrics`; tables: all tidy tables.
        """
        for study, part in of_all_bindings(metric_rows).groupby("study", sort=False):
            names = {name: self.heads.get(name, name) for name in part["metric"].unique()}
            yield Table(
                known_studies.title(study),
                *pivot(part, "metric", names, self.text),
                section=self.title,
                introduction=self.introduction,
            )

    def paper_number(self, row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
        """What a paper has for a row of the table `metrics`: paper, a fraction; printed, as it prints
        it; perhaps a note. {} where none has a number, or runs are made otherwise. settings: of the
        row's baseline."""
        return {}

    def paper_numbers(
        self, rows: Sequence[Mapping], known_studies: KnownStudies, baselines: Mapping[str, dict]
    ) -> list[dict]:
        """`paper_number` of each of the set's rows, in the order of the table."""
        return [
            self.paper_number(row, known_studies, baselines.get(row["baseline"], {}))
            for row in rows
        ]

    def findings(self, tables: Frames, known_studies: KnownStudies) -> Iterator[Finding]:
        """What the tables show: on the page, the first of all sets comes at the top, and others in
        their sections. tables: all tidy tables."""
        return iter(())

    def sentences(self, tables: Frames, known_studies: KnownStudies) -> dict[str, list[str]]:
        """Title of a section of the page -> the sentences with which it begins."""
        return {}

    def text(self, row: Mapping) -> str:
        """A number for readers."""
        return of_samples(row, row["metric"] in {*self.differences, *self.bounds})


_RUNS = ["study", "baseline", "binding"]


def group_images(cells: pd.DataFrame, of_group: Mapping[str, str]) -> pd.DataFrame:
    """The mean of `images`, as in COLUMNS, by _RUNS and metric, the group's accuracy. of_group: as
    in `MetricSet`."""
    run = [*_RUNS, "sample", "seed", "group"]
    classes = cells.groupby([*run, "target_class"], sort=False)["n"].sum()
    shares = (1 / classes).groupby(run, sort=False)
    images = (shares.size() ** 2 / shares.sum()).round(6).rename("images")
    means = images.groupby([*_RUNS, "group"], sort=False).mean().reset_index()
    metric = means["group"].map(lambda name: of_group.get(name, f"{name}_accuracy"))
    return means.assign(metric=metric).drop(columns="group")


def concatenated(parts: Iterable[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Those of the tables that have rows, one after the other."""
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def over_samples(
    values: pd.DataFrame,
    names: Sequence[str],
    baselines: Mapping[str, dict],
    differences: Mapping[str, str],
    unbounded: Mapping[str, tuple[float, float]] | None = None,
) -> pd.DataFrame:
    """A row per study, baseline, binding and metric: mean, stderr, low, high (95 %), n, expected.

    values: from `MetricSet.of_run`; differences, bounds: as in `MetricSet`. The unit is the dataset
    sample. If a baseline has several bindings, rows with an empty binding are the mean over them:
    within each sample first (it counts only if it has them all, with all seeds), then over the
    samples.
    """
    rows = []
    values = values.reindex(columns=dict.fromkeys([*values, *names]))
    for (study, baseline), baseline_values in values.groupby(["study", "baseline"], sort=False):
        description = {"study": study, **describe(baseline, baselines)}
        for (binding, target, cue), part in by_binding(baseline_values):
            for metric in names:
                keys = {"binding": binding, "target": target, "cue": cue, "metric": metric}
                bounds = (unbounded or {}).get(metric)
                ends = sample_interval(*terms(part, metric, differences), bounds=bounds)
                rows.append(
                    {**description, **keys, **numbers(estimate(by_sample(part, metric)), ends)}
                )
    return pd.DataFrame(rows, columns=[*KEYS, "metric", *NUMBERS])


def mean_over_studies(
    values: pd.DataFrame, names: Sequence[str], baselines: Mapping[str, dict]
) -> pd.DataFrame:
    """`over_samples` of the runs' values over all studies, for baselines and bindings that have
    them all; no rows if there is only one study."""
    studies = values["study"].nunique()
    has_all = values.groupby(["baseline", "binding"])["study"].transform("nunique") == studies
    complete = values[has_all].assign(study="") if studies > 1 else values[:0]
    return over_samples(complete, names, baselines, {})


def numbers(estimate_: Estimate, ends: tuple[float, float] | None = None) -> dict[str, float]:
    """NUMBERS of an estimate over all configured dataset samples. ends: of the 95 % interval; by
    default, that of an accuracy."""
    mean, stderr, n = estimate_
    ends = sample_interval(estimate_.samples) if ends is None else ends
    return dict(zip(NUMBERS, (mean, stderr, *ends, n, len(estimate_.samples)), strict=True))


def by_binding(values: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """The runs of each binding; then, if there are several, all of them."""
    yield from values.groupby(["binding", "target", "cue"], sort=False)
    if values["binding"].nunique() > 1:
        yield ("", "", ""), values


def by_sample(runs: pd.DataFrame, metric: str) -> pd.Series:
    """The mean over all runs of each dataset sample; NaN if one is missing."""
    groups = runs[metric].astype(float).groupby(runs["sample"])
    return groups.agg(lambda values: values.mean(skipna=False))


def terms(values: pd.DataFrame, metric: str, differences: Mapping[str, str]) -> list[pd.Series]:
    """The accuracies by sample whose difference a metric is; of another metric, itself."""
    means = by_sample(values, metric)
    if metric not in differences:
        return [means]
    inside = by_sample(values, differences[metric])
    return [means + inside, inside]


def of_all_bindings(rows: pd.DataFrame) -> pd.DataFrame:
    """Of baselines with several bindings, only the rows of their mean. The column `binding` becomes
    what tables call it: its name, `mean of all`, or `mean of 2 of 6` for a baseline that has fewer
    than others on the same study."""
    bindings = rows["binding"].where(rows["binding"] != "")
    baseline_count = bindings.groupby([rows["study"], rows["baseline"]]).transform("nunique")
    study_count = bindings.groupby(rows["study"]).transform("nunique")
    fewer = "mean of " + baseline_count.astype(str) + " of " + study_count.astype(str)
    called = bindings.fillna(fewer.where(baseline_count < study_count, "mean of all"))
    return rows.assign(binding=called)[bindings.isna() | (baseline_count == 1)]


def pivot(
    rows: pd.DataFrame,
    across: str,
    columns: Mapping[str, str],
    text: Callable[[Mapping], str],
    by: Sequence[str] = (*BASELINE, "binding"),
) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table: a row per combination of `by`, and a text for each value of the
    column `across`; below it the paper's numbers, if there are any. columns: value -> head."""
    lines = []
    for names, line_rows in rows.groupby(list(by), sort=False):
        cells = {row[across]: row for row in line_rows.to_dict("records")}
        lines.append([*names, *(text(cells[key]) if key in cells else "" for key in columns)])
        printed = [cells.get(key, {}).get("printed", "") for key in columns]
        if any(printed):
            lines.append([PAPER, *[""] * (len(by) - 1), *printed])
    return [*by, *columns.values()], lines


def describe(baseline: str, baselines: Mapping[str, dict]) -> dict[str, str]:
    """A baseline's name, model, method, the supervision of its method, and its selection rule."""
    settings = baselines.get(baseline, {})
    method = settings.get("method") or {}
    return {
        "baseline": baseline,
        "model": (settings.get("model") or {}).get("name", ""),
        "method": method.get("name", ""),
        "supervision": method.get("supervision", ""),
        "selection": settings.get("selection", "val_loss"),
    }


def untuned_notes(baselines: Mapping[str, dict]) -> dict[str, str]:
    """Baseline -> NOT_TUNED if its settings are starting points, else an empty text."""
    return {
        name: NOT_TUNED
        if NOT_TUNED in baseline_settings.get("origin", "") and "settings" not in baseline_settings
        else ""
        for name, baseline_settings in baselines.items()
    }
