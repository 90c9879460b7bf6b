"""How many dataset samples and training seeds show an effect: from measured components of variation,
config/components.csv, which `python benchmarks/components.py` writes (docs/chance.md)."""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scipy.special import chdtri, ndtr

from diagvib.foundation.files import definition_path
from diagvib.results.uncertainty import CONFIDENCE, FEWEST, allowance, half_width

POWER = 0.8
SEEDS = (1, 3, 5)
# Of the values of dataset samples, means over their seeds.
DEVIATIONS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
# More samples than this are not counted.
MOST_SAMPLES = 200
_KIND = ["protocol", "number", "study"]
_GAIN = "gain over"
_QUANTILES = (np.arange(1000) + 0.5) / 1000


@cache
def read_components() -> pd.DataFrame:
    """A row for each protocol, number, study and binding: standard deviations between samples, seeds
    and runs, and with what command and when they were measured. number: an accuracy, or a
    difference of two, paired by sample and seed."""
    return pd.read_csv(definition_path("components.csv"))


def pooled(components: pd.DataFrame) -> pd.DataFrame:
    """By _KIND, as means over the bindings: the variances of samples and seeds, those between which
    the variance of single runs lies, `low` and `high`, and the accuracy, of a difference that of
    what is subtracted, `base`."""
    seeds, run = components["sd_seeds"] ** 2, components["sd_run"] ** 2
    # Unlike the square of sd_samples, this difference may be below 0, and its mean is unbiased.
    variances = components[_KIND].assign(
        samples=run - seeds,
        seeds=seeds,
        low=components["sd_run_low"] ** 2,
        high=components["sd_run_high"] ** 2,
        base=components["mean"],
    )
    means = variances.groupby(_KIND, sort=False).mean()
    subtracted = [
        (protocol, number.split(" - ")[-1], study) for protocol, number, study in means.index
    ]
    means["base"] = means["base"].reindex(pd.MultiIndex.from_tuples(subtracted)).to_numpy()
    return means.clip(lower=0)


def power(
    effect: float, variance: float, samples: int, base: float = 0.5, gain: bool = True
) -> float:
    """How often the 95 % interval (`sample_interval`) of a mean over samples with this variance
    excludes 0, or another number. effect: the true distance; gain: it is that of two accuracies, base and
    base + effect, paired by sample; otherwise that of one, base, from a fixed number."""
    deviation, means = np.sqrt(variance / samples), [base + effect, base] if gain else [base]
    below, above = allowance(np.clip(means, 0, 1), np.array([1, -1][: len(means)]), samples)
    spreads = np.sqrt(chdtri(samples - 1, _QUANTILES) / (samples - 1))
    edges = np.maximum(
        half_width(samples - 1) * spreads * deviation, below if gain else max(below, above)
    )
    deviation = max(deviation, 1e-9)
    return float((ndtr((effect - edges) / deviation) + ndtr((-effect - edges) / deviation)).mean())


def samples_needed(effect: float, variance: float, *accuracies: object) -> int | None:
    """The fewest dataset samples that show an effect in POWER of all cases; None if MOST_SAMPLES do
    not. accuracies: as in `power`."""
    counts = range(FEWEST, MOST_SAMPLES + 1)
    return next((n for n in counts if power(effect, variance, n, *accuracies) >= POWER), None)


def smallest_effect(variance: float, samples: int, *accuracies: object) -> float | None:
    """The effect that these samples show in POWER of all cases, to a tenth of a point; None if there
    are too few samples for an interval, or if a difference of accuracies cannot be as large.
    accuracies: as in `power`."""
    if samples < FEWEST:
        return None
    effects = np.arange(1, 1001) / 1000
    return next(
        (float(e) for e in effects if power(e, variance, samples, *accuracies) >= POWER), None
    )


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
            name = f"{_GAIN} {numbers[0]}, median of {len(gains)} methods"
            index = pd.MultiIndex.from_tuples([(protocol, name, study)], names=part.index.names)
            part = pd.concat([part[:1], pd.DataFrame([gains.median()], index)])
        parts.append(part)
    return pd.concat(parts) if parts else variances


def needed_as_measured(
    effect: float, samples: int, seeds: int, variances: pd.DataFrame
) -> Iterator[dict]:
    """For each kind of number that was measured: its components; `samples_1` and so on, the samples
    that show the effect with as many seeds each, `samples_1_low` and `samples_1_high` at the ends of
    the interval of the variance of single runs; and the effect that these samples and seeds show.
    effect: a fraction; variances: of `pooled`."""
    for names, variance in variances.iterrows():
        accuracies = variance["base"], is_gain(names[1])
        needed = {
            f"samples_{count}": samples_needed(
                effect, variance_of_means(variance, count), *accuracies
            )
            for count in SEEDS
        }
        for end in ("low", "high"):
            needed[f"samples_1_{end}"] = samples_needed(effect, variance[end], *accuracies)
        shown = smallest_effect(variance_of_means(variance, seeds), samples, *accuracies)
        sources = ("samples", "seeds")
        deviations = {f"sd_{source}": float(np.sqrt(variance[source])) for source in sources}
        yield {**dict(zip(_KIND, names, strict=True)), **deviations, **needed, "shown": shown}


def is_gain(number: str) -> bool:
    """Whether a number that was measured is a difference of two accuracies."""
    return " - " in number or number.startswith(_GAIN)


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
        "divided by k. The counts of an accuracy are for its distance from a fixed number; from a result on other "
        "samples, it takes about twice as many (docs/chance.md)."
    )
    console.print(notes if rows else f"{notes} Nothing is measured yet (config/components.csv).")


def _measured_table(rows: list[dict], samples: int, seeds: int) -> Table:
    title = "As measured on few samples; in brackets, for the 95 % interval of the spread of runs"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("protocol", no_wrap=True)
    table.add_column("result", min_width=16)
    seeds_each = " / ".join(map(str, SEEDS))
    heads = ["study", "SD of\nsamples", "SD of\nseeds", f"samples with\n{seeds_each} seeds"]
    for head in [*heads, f"{samples} x {seeds}\nshow"]:
        table.add_column(head, no_wrap=True)
    for row in rows:
        counts = " / ".join(count_text(row[f"samples_{count}"]) for count in SEEDS)
        low, high = (count_text(row[f"samples_1_{end}"]) for end in ("low", "high"))
        shown = "-" if row["shown"] is None else f"{100 * row['shown']:.1f}"
        deviations = (f"{100 * row[f'sd_{source}']:.1f}" for source in ("samples", "seeds"))
        names = (row[key] for key in _KIND)
        table.add_row(*names, *deviations, f"{counts} ({low} to {high})", shown)
    return table


def count_text(count: int | None) -> str:
    return f"> {MOST_SAMPLES}" if count is None else str(count)
