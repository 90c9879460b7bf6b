"""The set of metrics `accuracy`: each test group's mean per-class accuracy and worst cell, for any
roles and groups."""

from collections.abc import Iterator, Mapping

import pandas as pd

from diagvib.results.cells import mean_per_class, worst_cell
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metrics import estimate
from diagvib.results.paper import interval, percent
from diagvib.results.uncertainty import sample_interval

MEASURES = {"mean_per_class": mean_per_class, "worst_cell": worst_cell}
_TITLES = {"mean_per_class": "mean per-class accuracy", "worst_cell": "worst cell"}
ACCURACY_TITLE = "Accuracy by test group"
ACCURACY_NOTE = (
    "The mean of the classes' accuracies, and the accuracy of each sample's worst cell, in percent: mean "
    "± standard error over the dataset samples, with the 95 % interval."
)
KEYS = ["study", "baseline", "binding", "target", "cue", "group", "environment"]
COLUMNS = [*KEYS, "metric", "mean", "stderr", "low", "high", "n", "expected"]


def accuracy_tables(
    runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> dict[str, pd.DataFrame]:
    """One table, `accuracy`: a row per study, baseline, binding, test group, environment (where
    named) and metric.

    mean, stderr, low, high (95 %) and n over the dataset samples; expected: the number
    there should be. An empty environment means all of them together. The worst cell is determined
    within each sample.
    """
    return {"accuracy": pd.DataFrame(_rows(runs, cells, known), columns=COLUMNS)}


def _rows(runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies) -> Iterator[dict]:
    by = ["study", "baseline", "binding", "sample", "group"]
    together = {name: _values(measure(cells, by), by) for name, measure in MEASURES.items()}
    apart = {
        name: _values(measure(cells, [*by, "environment"]), [*by, "environment"])
        for name, measure in MEASURES.items()
    }
    for keys, own in runs.groupby(KEYS[:5], sort=False):
        study, baseline, binding = keys[:3]
        for group in known.studies[study].groups:
            for environment in ("", *known.tested_in(study, group)):
                for metric, values in (apart if environment else together).items():
                    at = (group, environment) if environment else (group,)
                    found = [
                        values.get((study, baseline, binding, sample, *at))
                        for sample in own["sample"]
                    ]
                    yield {
                        **dict(zip(KEYS, (*keys, group, environment), strict=True)),
                        "metric": metric,
                        **_over_samples(pd.Series(found, dtype=float)),
                        "expected": len(own),
                    }


def _values(table: pd.DataFrame, by: list[str]) -> dict[tuple, float]:
    return dict(zip(table[by].itertuples(index=False, name=None), table["accuracy"], strict=True))


def _over_samples(values: pd.Series) -> dict[str, float]:
    mean, stderr, n = estimate(values)
    low, high = sample_interval(values)
    return {"mean": mean, "stderr": stderr, "low": low, "high": high, "n": n}


def accuracy_lines(
    accuracy: pd.DataFrame, known: KnownStudies
) -> tuple[list[str], list[list[str]]]:
    """Heads and texts of the table `accuracy`: a line per binding, group and environment, two
    columns per metric."""
    apart = accuracy["environment"].ne("").any()
    lines = []
    for keys, own in accuracy.groupby(KEYS, sort=False):
        study, baseline, binding, *_, group, environment = keys
        found = own.set_index("metric").loc[list(MEASURES)]
        texts = [
            text
            for row in found.itertuples()
            for text in (
                percent(row.mean, row.stderr, row.n, row.expected),
                interval(row.low, row.high),
            )
        ]
        lines.append(
            [
                known.title(study),
                baseline,
                binding,
                group,
                *([environment or "all"] if apart else []),
                *texts,
            ]
        )
    heads = ["study", "baseline", "binding", "group", *(["environment"] if apart else [])]
    return [
        *heads,
        *(head for title in _TITLES.values() for head in (title, "95 % interval")),
    ], lines
