"""The interface of a set of metrics. A set needs a title, `names` and `of_run`; the rest has
defaults."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from diagvib.results.known_studies import KnownStudies
from diagvib.results.metrics import estimate
from diagvib.results.table import PAPER, Table
from diagvib.results.texts import percent
from diagvib.results.uncertainty import sample_interval

# The description of a baseline in every table.
BASELINE = ["baseline", "model", "method", "supervision", "selection"]
KEYS = ["study", *BASELINE, "binding", "target", "cue"]
NUMBERS = ["mean", "stderr", "low", "high", "n", "expected"]
# The columns of the table `metrics`. cues: the number of cues that a mean is over, where it is one.
# note: what a reader must know of the row.
COLUMNS = ["metric_set", *KEYS, "metric", *NUMBERS, "cues", "note"]
# Said of settings that are starting points, in a baseline's `origin`.
NOT_TUNED = "not tuned"


@dataclass(frozen=True)
class Results:
    """What metrics are made from. runs: as from `read_runs.collect_runs`, with an accuracy for each
    test group; cells: the long table (`cells.CELL_COLUMNS`); baselines: name -> settings."""

    runs: pd.DataFrame
    cells: pd.DataFrame
    known: KnownStudies
    baselines: Mapping[str, dict]

    def of(self, studies: Sequence[str]) -> "Results":
        """Those of some studies."""
        own = (table[table["study"].isin(studies)] for table in (self.runs, self.cells))
        return Results(*own, self.known, self.baselines)


class MetricSet:
    """title and about: the title of the set's section, and the paragraphs below it. differences:
    metric -> the metric that it is measured from, for metrics that are a difference of
    accuracies."""

    title: str
    about: ClassVar[list[str]] = []
    differences: ClassVar[Mapping[str, str]] = {}

    def names(self, study: str, known: KnownStudies) -> Sequence[str]:
        """The metrics of a study."""
        raise NotImplementedError

    def of_run(self, results: Results) -> pd.DataFrame:
        """RUN_KEYS and a column for each metric, a fraction; a row for each run, NaN if it is
        missing."""
        raise NotImplementedError

    def metrics(self, results: Results) -> pd.DataFrame:
        """The set's rows of the table `metrics`."""
        parts = [
            over_samples(
                own, self.names(str(study), results.known), results.baselines, self.differences
            )
            for study, own in self.of_run(results).groupby("study", sort=False)
        ]
        return concatenated(parts, [*KEYS, "metric", *NUMBERS])

    def tables(self, results: Results) -> dict[str, pd.DataFrame]:
        """Further tables, by names in `results.TIDY`."""
        return {}

    def shown(
        self, own: pd.DataFrame, tables: Mapping[str, pd.DataFrame], known: KnownStudies
    ) -> Iterator[Table]:
        """Tables for readers; by default one for each study, with a row for each baseline.

        own: the set's rows of the table `metrics`; tables: all tidy tables.
        """
        for study, part in of_all_bindings(own).groupby("study", sort=False):
            names = list(part["metric"].unique())
            yield Table(
                f"{part['metric_set'].iloc[0]}_{study}",
                known.title(str(study)),
                [*BASELINE, "binding", *names],
                pivot(part, [*BASELINE, "binding"], "metric", names, self.text),
                section=self.title,
                about=self.about,
            )

    def text(self, row: Mapping) -> str:
        """A number for readers."""
        numbers = (row[key] for key in ("mean", "stderr", "n", "expected"))
        return percent(*numbers, change=row["metric"] in self.differences)


def concatenated(parts: Iterable[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Those of the tables that have rows, one after the other."""
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def over_samples(
    values: pd.DataFrame,
    names: Sequence[str],
    baselines: Mapping[str, dict],
    differences: Mapping[str, str],
) -> pd.DataFrame:
    """A row per study, baseline, binding and metric: mean, stderr, low, high (95 %), n, expected.

    values: from `MetricSet.of_run`. The unit is the dataset sample. If a baseline has several
    bindings, rows with an empty binding are the mean over them: within each sample first (it counts
    only if it has them all), then over the samples.
    """
    rows = []
    for (study, baseline), own in values.reindex(columns=dict.fromkeys([*values, *names])).groupby(
        ["study", "baseline"], sort=False
    ):
        about = {"study": study, **describe(baseline, baselines)}
        for (binding, target, cue), part in by_binding(own):
            for metric in names:
                found = by_sample(part, metric)
                mean, stderr, n = estimate(found)
                low, high = sample_interval(*terms(part, metric, differences))
                numbers = (mean, stderr, low, high, n, len(found))
                keys = {"binding": binding, "target": target, "cue": cue, "metric": metric}
                rows.append({**about, **keys, **dict(zip(NUMBERS, numbers, strict=True))})
    return pd.DataFrame(rows, columns=[*KEYS, "metric", *NUMBERS])


def by_binding(own: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """The runs of each binding; then, if there are several, all of them."""
    yield from own.groupby(["binding", "target", "cue"], sort=False)
    if own["binding"].nunique() > 1:
        yield ("", "", ""), own


def by_sample(own: pd.DataFrame, metric: str) -> pd.Series:
    """The mean over all runs of each dataset sample; NaN if one is missing."""
    groups = own[metric].astype(float).groupby(own["sample"])
    return groups.agg(lambda values: values.mean(skipna=False))


def terms(own: pd.DataFrame, metric: str, differences: Mapping[str, str]) -> list[pd.Series]:
    """The accuracies by sample whose difference a metric is; of another metric, itself."""
    found = by_sample(own, metric)
    if metric not in differences:
        return [found]
    inside = by_sample(own, differences[metric])
    return [found + inside, inside]


def of_all_bindings(rows: pd.DataFrame) -> pd.DataFrame:
    """Of baselines with several bindings, only the rows of their mean. The column `binding` becomes
    what tables call it: its name, `mean of all`, or `mean of 2 of 6` for a baseline that has fewer
    than others on the same study."""
    named = rows[rows["binding"] != ""]
    own = named.groupby(["study", "baseline"])["binding"].nunique()
    of = named.groupby("study")["binding"].nunique()
    means = {
        key: "mean of all" if count == of[key[0]] else f"mean of {count} of {of[key[0]]}"
        for key, count in own.items()
    }
    keys = [*zip(rows["study"], rows["baseline"], rows["binding"], strict=True)]
    several = {key[:2] for key in keys if not key[2]}
    shown = [not key[2] or key[:2] not in several for key in keys]
    called = [binding or means.get((*key,), "mean of all") for *key, binding in keys]
    return rows.assign(binding=called).loc[pd.Series(shown, rows.index, dtype=bool)]


def pivot(
    rows: pd.DataFrame,
    by: Sequence[str],
    across: str,
    columns: Sequence[str],
    text: Callable[[Mapping], str],
) -> list[list[str]]:
    """Texts: a line per combination of `by`, and a text for each value of the column `across`;
    below it the paper's numbers, if there are any."""
    lines = []
    for names, own in rows.groupby(list(by), sort=False):
        there = {row[across]: row for row in own.to_dict("records")}
        lines.append([*names, *(text(there[key]) if key in there else "" for key in columns)])
        printed = [there.get(key, {}).get("printed", "") for key in columns]
        if any(printed):
            lines.append([PAPER, *[""] * (len(by) - 1), *printed])
    return lines


def describe(baseline: str, baselines: Mapping[str, dict]) -> dict[str, str]:
    """A baseline's name, model, method, the supervision of its method, and its selection rule."""
    settings = baselines.get(baseline, {})
    method = part_of(settings, "method")
    return {
        "baseline": baseline,
        "model": str(part_of(settings, "model").get("name", "")),
        "method": str(method.get("name", "")),
        "supervision": str(method.get("supervision", "")),
        "selection": str(settings.get("selection", "val_loss")),
    }


def part_of(settings: Mapping, key: str) -> Mapping:
    """A baseline's model or method with its options; empty if a run made by others recorded
    anything else."""
    return settings[key] if isinstance(settings.get(key), Mapping) else {}
