"""Where the spread of a number comes from: dataset samples, training seeds on the same images, or
both, as in a single run."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtri, fdtri

from diagvib.results.cells import RUN_KEYS
from diagvib.results.metric_sets.metric_set import by_binding
from diagvib.results.reader_tables import Table
from diagvib.results.uncertainty import CONFIDENCE, FEWEST
from diagvib.studies.known_studies import KnownStudies

SOURCES = ("samples", "seeds", "run")
_ENDS = ("", "_low", "_high")
_NO_SPREAD = 1e-9
SPREADS = [f"sd_{source}{end}" for source in SOURCES for end in _ENDS]
COLUMNS = ["study", "baseline", "binding", "metric", "mean", "n", "seeds", *SPREADS]
TITLE = "Where the spread comes from"
_INTRODUCTION = (
    "Standard deviations in points, with 95 % intervals: of a dataset sample's accuracy, were it trained with every seed; "
    "of the seeds on the same images; and of a single run, which has both. The standard error of a mean over n samples "
    "with k seeds each is the root of (samples² + seeds² / k) / n: further seeds lower the second part alone."
)
_OUTSIDE = (1 - CONFIDENCE) / 2


class Component(NamedTuple):
    """Standard deviations and their 95 % intervals."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def grid(runs: pd.DataFrame, metric: str) -> np.ndarray:
    """float[samples, seeds]: the means over all bindings, without samples that lack a run."""
    by = [runs["sample"], runs["seed"]]
    means = runs[metric].astype(float).groupby(by).agg(lambda values: values.mean(skipna=False))
    return means.unstack().dropna().to_numpy()


def components(values: np.ndarray) -> dict[str, Component]:
    """The sources of spread of float[..., samples, seeds]; NaN where there is only one sample or seed.
    With fewer than FEWEST samples, only that of seeds has an interval.

    One-way analysis of variance with random samples. Intervals: chi-square for seeds, Williams (1962)
    and Tukey for samples, Graybill and Wang (1980) for a run. They take both sources as normal, and
    are too narrow near 0 and 1: benchmarks/README.md.
    """
    samples, seeds = values.shape[-2:]
    missing = np.full(values.shape[:-2], np.nan)
    if samples < 2 or seeds < 2:
        return dict.fromkeys(SOURCES, Component(missing, missing, missing))
    # How much seeds matter differs between samples, so that each counts once for them, too.
    freedom = np.array([samples - 1, samples - 1])
    between = seeds * values.mean(axis=-1).var(axis=-1, ddof=1)
    within = values.var(axis=-1, ddof=1).mean(axis=-1)
    below, above = (chdtri(freedom, share) / freedom for share in (_OUTSIDE, 1 - _OUTSIDE))
    ratio_below, ratio_above = (fdtri(*freedom, share) for share in (1 - _OUTSIDE, _OUTSIDE))
    parts = np.array([between / seeds, within * (1 - 1 / seeds)])
    run = parts.sum(axis=0)
    variances = {
        "samples": (
            (between - within) / seeds,
            (between - within * ratio_below) / seeds / below[0],
            (between - within * ratio_above) / seeds / above[0],
        ),
        "seeds": (within, within / below[1], within / above[1]),
        "run": (
            run,
            run - np.linalg.norm((1 - 1 / below) * parts.T, axis=-1).T,
            run + np.linalg.norm((1 / above - 1) * parts.T, axis=-1).T,
        ),
    }
    # No number between 0 and 1 spreads more, and no difference of two.
    greatest = 0.5 if values.min() >= 0 and values.max() <= 1 else 1
    sources = {}
    for source, parts in variances.items():
        value, low, high = np.sqrt(np.clip(parts, 0, greatest**2))
        # Values that are all equal say nothing of others.
        all_equal = high < _NO_SPREAD
        sources[source] = Component(
            value, np.where(all_equal, np.nan, low), np.where(all_equal, np.nan, high)
        )
    if samples < FEWEST:
        for source in ("samples", "run"):
            sources[source] = Component(sources[source].value, missing, missing)
    return sources


def variation_rows(values: pd.DataFrame) -> Iterator[dict]:
    """COLUMNS of each study, baseline, binding (empty: the mean over several) and metric; nothing
    for runs with one seed. values: from `MetricSet.of_run`. n: samples with all their runs."""
    if not values["seed"].any():
        return
    metrics = [name for name in values if name not in RUN_KEYS]
    for (study, baseline), baseline_values in values.groupby(["study", "baseline"], sort=False):
        for (binding, *_), runs in by_binding(baseline_values):
            for metric in metrics:
                accuracies = grid(runs, metric)
                if accuracies.size:
                    names = {"study": study, "baseline": baseline, "binding": binding}
                    numbers = (metric, accuracies.mean(), *accuracies.shape)
                    sources = components(accuracies)
                    spreads = (float(end) for source in SOURCES for end in sources[source])
                    row = zip(COLUMNS[3:], (*numbers, *spreads), strict=True)
                    yield {**names, **dict(row)}


def variation_sentence(variation: pd.DataFrame) -> str:
    """The mean of each source over all bindings and metrics; empty with one seed."""
    rows = variation[(variation["binding"] != "") & variation["sd_seeds"].notna()]
    if rows.empty:
        return ""
    samples, seeds = (100 * np.sqrt((rows[f"sd_{name}"] ** 2).mean()) for name in SOURCES[:2])
    numbers = f"these {len(rows)} numbers have" if len(rows) > 1 else "this number has"
    return (
        f"Between dataset samples, {numbers} a standard deviation of {samples:.1f} points, "
        f"between training seeds on the same images one of {seeds:.1f} (root mean squares)."
    )


def variation_tables(variation: pd.DataFrame, known_studies: KnownStudies) -> Iterator[Table]:
    """For readers: a table with a row for each study, baseline, binding and metric."""
    rows = [
        [
            known_studies.title(row["study"]),
            row["baseline"],
            row["binding"] or "mean of all",
            row["metric"],
            f"{100 * row['mean']:z.1f}",
            *(_text(row, source) for source in SOURCES),
            f"{row['n']} x {row['seeds']}",
        ]
        for row in variation.to_dict("records")
    ]
    heads = ["study", "baseline", "binding", "metric", "mean", "between samples", "between seeds"]
    heads += ["a single run", "samples x seeds"]
    yield Table("Standard deviations", heads, rows, [], TITLE, [_INTRODUCTION], folded=True)


def _text(row: Mapping, source: str) -> str:
    """`4.1 (2.6 to 9.9)`, in points."""
    value, low, high = (100 * row[f"sd_{source}{end}"] for end in _ENDS)
    if value != value:
        return "-"
    return f"{value:.1f}" + (f" ({low:.1f} to {high:.1f})" if low == low else "")
