"""How many dataset samples and training seeds show an effect: from measured components of variation,
config/components.csv, which `python benchmarks/components.py` writes (docs/chance.md)."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.special import nctdtr

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path
from diagvib.results.uncertainty import CONFIDENCE, FEWEST, half_width

POWER = 0.8
SEEDS = (1, 3, 5)
# More samples than this are not counted.
MOST_SAMPLES = 200
_KIND = ["protocol", "number", "study"]


@cache
def read_components() -> pd.DataFrame:
    """A row for each protocol, number, study and binding: standard deviations between samples, seeds
    and runs, and with what command and when they were measured. number: an accuracy, or a
    difference of two, paired by sample and seed."""
    path = definition_path("components.csv")
    components = pd.read_csv(path)
    if components.empty:
        raise DiagvibError(
            f"{path}: nothing is measured yet; `python benchmarks/components.py` adds runs"
        )
    return components


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
    if shift > 37:  # nctdtr has no value there
        return 1.0
    return float(1 - nctdtr(freedom, shift, edge) + nctdtr(freedom, shift, -edge))


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


def detection(effect: float, samples: int, seeds: int) -> Iterator[dict]:
    """For each kind of number: its components; `samples_1` and so on, the samples that show the
    effect with as many seeds each; and the effect that these samples and seeds show. effect: a
    fraction."""
    for names, variance in pooled(read_components()).iterrows():
        needed = {
            f"samples_{count}": samples_needed(
                effect, variance["samples"] + variance["seeds"] / count
            )
            for count in SEEDS
        }
        shown = smallest_effect(variance["samples"] + variance["seeds"] / seeds, samples)
        deviations = {f"sd_{source}": float(np.sqrt(variance[source])) for source in variance.index}
        yield {**dict(zip(_KIND, names, strict=True)), **deviations, **needed, "shown": shown}


def print_detection(rows: list[dict], effect: float, samples: int, seeds: int) -> None:
    """The same as a table for people."""
    title = (
        f"Dataset samples that show {100 * effect:g} points in {100 * POWER:.0f} % of cases "
        f"({100 * CONFIDENCE:.0f} % interval)"
    )
    table = Table(title=title, title_justify="left")
    heads = ["measured on", "number", "study", "between samples", "between seeds"]
    heads += [f"with {count} seed{'s' * (count > 1)}" for count in SEEDS]
    for head in [*heads, f"{samples} x {seeds} show"]:
        table.add_column(head)
    for row in rows:
        needed = (row[f"samples_{count}"] for count in SEEDS)
        counts = [f"> {MOST_SAMPLES}" if count is None else f"{count}" for count in needed]
        shown = "-" if row["shown"] is None else f"{100 * row['shown']:.1f}"
        deviations = (f"{100 * row[f'sd_{source}']:.1f}" for source in ("samples", "seeds"))
        table.add_row(*(row[key] for key in _KIND), *deviations, *counts, shown)
    console = Console()
    console.print(table)
    console.print(
        "In points. Last column: what the configuration's samples and seeds show. Measured on few samples, so each "
        "count may be off by a factor of two or more; near 0 and 100 %, intervals are wider (docs/chance.md)."
    )
