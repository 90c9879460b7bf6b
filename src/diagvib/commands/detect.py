"""How many dataset samples and training seeds show an effect: from measured components of variation,
config/components.csv, which `python benchmarks/components.py` writes (docs/chance.md)."""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.special import nctdtr

from diagvib.foundation.files import definition_path
from diagvib.results.uncertainty import CONFIDENCE, FEWEST, half_width

POWER = 0.8
SEEDS = (1, 3, 5)
# Of the values of dataset samples, means over their seeds.
DEVIATIONS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
# More samples than this are not counted.
MOST_SAMPLES = 200
_KIND = ["protocol", "number", "study"]


@cache
def read_components() -> pd.DataFrame:
    """A row for each protocol, number, study and binding: standard deviations between samples, seeds
    and runs, and with what command and when they were measured. number: an accuracy, or a
    difference of two, paired by sample and seed."""
    return pd.read_csv(definition_path("components.csv"))


def pooled(components: pd.DataFrame) -> pd.DataFrame:
    """The variances of samples and seeds by _KIND, as means over the bindings."""
    seeds = components["sd_seeds"] ** 2
    # Unlike the square of sd_samples, this difference may be below 0, and its mean is unbiased.
    samples = components["sd_run"] ** 2 - seeds
    variances = components[_KIND].assign(samples=samples, seeds=seeds)
    return variances.groupby(_KIND, sort=False).mean().clip(lower=0)


def power(effect: float, variance: float, samples: int) -> float:
    """How often the 95 % interval of a mean over samples with this variance excludes 0. effect: the
    true mean."""
    shift = effect / np.sqrt(variance / samples) if variance else np.inf
    edge, freedom = half_width(samples - 1), samples - 1
    # nctdtr has no value for many shifts that are as large. Less than a normal's tail below -shift
    # lies below -edge.
    if shift > 30:
        return 1.0
    lower = nctdtr(freedom, shift, -edge) if shift < 6 else 0.0
    return float(1 - nctdtr(freedom, shift, edge) + lower)


def samples_needed(effect: float, variance: float) -> int | None:
    """The fewest dataset samples that show an effect in POWER of all cases; None if MOST_SAMPLES do not."""
    counts = range(FEWEST, MOST_SAMPLES + 1)
    return next((n for n in counts if power(effect, variance, n) >= POWER), None)


def smallest_effect(variance: float, samples: int) -> float | None:
    """The effect that these samples show in POWER of all cases, to a tenth of a point; None if there
    are too few samples for an interval, or if a difference of accuracies cannot be as large."""
    if samples < FEWEST:
        return None
    effects = np.arange(1, 1001) / 1000
    return next((float(e) for e in effects if power(e, variance, samples) >= POWER), None)


def variance_of_means(variances: Mapping[str, float], seeds: int) -> float:
    """Of dataset samples' means over this many seeds. variances: of samples and seeds, of `pooled`."""
    return variances["samples"] + variances["seeds"] / seeds


def needed_by_deviation(effect: float) -> dict[float, int | None]:
    """`samples_needed` where the values of dataset samples have each of DEVIATIONS. effect: a
    fraction."""
    return {deviation: samples_needed(effect, deviation**2) for deviation in DEVIATIONS}


def with_median_gains(variances: pd.DataFrame) -> pd.DataFrame:
    """The variances of `pooled`; where a protocol has more than two methods, its first, and the medians
    of those of all gains over it."""
    parts = []
    for (protocol, study), part in variances.groupby(["protocol", "study"], sort=False):
        numbers = part.index.get_level_values("number")
        gains = part[numbers.str.contains(" - ")]
        if len(gains) > 2:
            name = f"gain over {numbers[0]}, median of {len(gains)} methods"
            index = pd.MultiIndex.from_tuples([(protocol, name, study)], names=part.index.names)
            part = pd.concat([part[:1], pd.DataFrame([gains.median()], index)])
        parts.append(part)
    return pd.concat(parts) if parts else variances


def needed_as_measured(
    effect: float, samples: int, seeds: int, variances: pd.DataFrame
) -> Iterator[dict]:
    """For each kind of number that was measured: its components; `samples_1` and so on, the samples
    that show the effect with as many seeds each; and the effect that these samples and seeds show.
    effect: a fraction; variances: of `pooled`."""
    for names, variance in variances.iterrows():
        needed = {
            f"samples_{count}": samples_needed(effect, variance_of_means(variance, count))
            for count in SEEDS
        }
        shown = smallest_effect(variance_of_means(variance, seeds), samples)
        deviations = {f"sd_{source}": float(np.sqrt(variance[source])) for source in variance.index}
        yield {**dict(zip(_KIND, names, strict=True)), **deviations, **needed, "shown": shown}


def print_needed(effect: float, samples: int, seeds: int) -> None:
    """What shows an effect, a fraction, as tables for people."""
    variances = with_median_gains(pooled(read_components()))
    rows = list(needed_as_measured(effect, samples, seeds, variances))
    console = Console()
    title = (
        f"Dataset samples that show {100 * effect:g} points in {100 * POWER:.0f} % of cases "
        f"({100 * CONFIDENCE:.0f} % interval)"
    )
    table = Table("standard deviation of the samples' values", "samples", title=title)
    for deviation, count in needed_by_deviation(effect).items():
        table.add_row(f"{100 * deviation:g}", count_text(count))
    console.print(table)
    if rows:
        console.print(_measured_table(rows, samples, seeds))
    notes = (
        "In points. The value of a sample is its mean over k seeds, with the variance of samples plus that of seeds "
        "divided by k. Near 0 and 100 %, it takes more samples (docs/chance.md)."
    )
    console.print(notes if rows else f"{notes} Nothing is measured yet (config/components.csv).")


def _measured_table(rows: list[dict], samples: int, seeds: int) -> Table:
    title = "As measured, on few samples: counts may be off by a factor of two or more"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("protocol", no_wrap=True)
    table.add_column("result", min_width=16)
    seeds_each = " / ".join(map(str, SEEDS))
    heads = ["study", "SD of\nsamples", "SD of\nseeds", f"samples with\n{seeds_each} seeds"]
    for head in [*heads, f"{samples} x {seeds}\nshow"]:
        table.add_column(head, no_wrap=True)
    for row in rows:
        counts = " / ".join(count_text(row[f"samples_{count}"]) for count in SEEDS)
        shown = "-" if row["shown"] is None else f"{100 * row['shown']:.1f}"
        deviations = (f"{100 * row[f'sd_{source}']:.1f}" for source in ("samples", "seeds"))
        table.add_row(*(row[key] for key in _KIND), *deviations, counts, shown)
    return table


def count_text(count: int | None) -> str:
    return f"> {MOST_SAMPLES}" if count is None else str(count)
