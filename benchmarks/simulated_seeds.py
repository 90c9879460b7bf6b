"""Coverage of intervals where each dataset sample is trained with several seeds, under the laws of
simulated_statistics.py: ours, beside a mixed model that pools both sources, and beside one that
takes all runs as independent; and of the intervals of the components. See benchmarks/README.md.

python benchmarks/simulated_seeds.py
"""

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))
# Threads for matrices this small cost far more than they save.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections.abc import Iterator  # noqa: E402
from functools import cache  # noqa: E402
from itertools import product  # noqa: E402
from typing import Annotated  # noqa: E402

import numpy as np  # noqa: E402
import typer  # noqa: E402
from result_file import save_result  # noqa: E402
from simulated_designs import AS_FITTED, World, accuracies_by_seed, truths  # noqa: E402

from diagvib.results.uncertainty import allowance, half_width, sample_interval  # noqa: E402
from diagvib.results.variation import Component, components  # noqa: E402

SAMPLES, SEEDS = (3, 5), (3, 5)
# The share of the variance between runs that seeds make.
NOISE = (0.1, 0.5, 0.9)
MEANS = ((0.02,), (0.1,), (0.5,), (0.9,), (0.99,), (0.1, 0.13), (0.5, 0.55), (0.7, 0.97))
WORLDS = {
    "as fitted": AS_FITTED,
    "samples more alike": World(worth=30),
    "logistic-normal": World(spread=1),
    "nothing shared": World(shared=0),
    "1 in 20 runs failed": World(worth=30, failed=0.05),
    "1 in 10 runs failed": World(worth=30, failed=0.1),
}
# Runs from which the true components are computed, in samples of two seeds each.
MANY = 5_000


def main(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 200,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    rows = []
    for n, seeds, noise in product(SAMPLES, SEEDS, NOISE):
        for (name, world), means in product(WORLDS.items(), MEANS):
            described = {"samples": n, "seeds": seeds, "noise": noise, "world": name}
            described |= {"means": means}
            rows.append(described | dict(_row(n, seeds, noise, means, world, times)))
            print(*rows[-1].values(), sep=" | ", flush=True)
    worlds = {name: world._asdict() for name, world in WORLDS.items()}
    save_result("seeds", "cpu", rows, out, times=times, worlds=worlds)


def _row(
    n: int, seeds: int, noise: float, means: tuple, world: World, times: int
) -> Iterator[tuple[str, float]]:
    """Coverage of each interval of a mean, or of a paired difference, and half its median width."""
    drawn = accuracies_by_seed(np.random.default_rng(n), means, (n, seeds, times), noise, world)
    first, *second = truths(means, world)
    truth, runs = first - sum(second), drawn[0] - sum(drawn[1:])
    by_sample = drawn.mean(axis=2)
    ends = {
        "ours": _as_samples(by_sample),
        "mixed": _as_samples(by_sample, _mixed(runs)),
        "all_runs": _as_samples(drawn.reshape(len(drawn), n * seeds, times)),
    }
    for name, (low, high) in ends.items():
        yield f"coverage_{name}", _share(low, truth, high)
        yield f"width_{name}", round(float(np.median(high - low) / 2), 4)
    if not second:
        exact = _exact(noise, means, world)
        for source, (_, low, high) in components(np.moveaxis(runs, -1, 0)).items():
            yield f"coverage_sd_{source}", _share(low, exact[source].value, high)


@cache
def _exact(noise: float, means: tuple, world: World) -> dict[str, Component]:
    """The true components of a cell, from many runs."""
    runs = accuracies_by_seed(np.random.default_rng(0), means, (MANY, 2, 1), noise, world)
    return components(runs[0, ..., 0])


def _share(low: np.ndarray, truth: float, high: np.ndarray) -> float:
    return round(float(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean()), 4)


def _as_samples(drawn: np.ndarray, halves: np.ndarray | None = None) -> np.ndarray:
    """Both ends of intervals, float[2, intervals], by the rule of the tables, of accuracies float[terms,
    samples, times]. halves: instead of Student's t, in each of these times; what the rule allows for
    runs unlike those drawn, near 0 and 1, stays."""
    if halves is None:
        ends = np.array([sample_interval(*drawn[..., at]) for at in range(drawn.shape[-1])]).T
        return ends[:, ~np.isnan(ends[0])]
    ends, signs = [], np.where(np.arange(len(drawn)) == 0, 1, -1)
    for terms, half in zip(np.moveaxis(drawn, -1, 0), halves, strict=True):
        means = terms.mean(axis=1)
        below, above = np.maximum(half, allowance(means, signs, terms.shape[1]))
        middle = signs @ means
        ends.append(np.clip([middle - below, middle + above], 1 - len(drawn), 1))
    return np.array(ends).T


def _mixed(runs: np.ndarray) -> np.ndarray:
    """Half the width of the interval of a mixed model's mean, float[samples, seeds, times], by
    restricted maximum likelihood: where samples differ by no more than seeds explain, all runs
    count."""
    n, seeds, _ = runs.shape
    between = seeds * runs.mean(axis=1).var(axis=0, ddof=1)
    within = runs.var(axis=1, ddof=1).mean(axis=0)
    pooled = (between * (n - 1) + within * n * (seeds - 1)) / (n * seeds - 1)
    alike = between <= within
    freedom = np.where(alike, n * seeds - 1, n - 1)
    return half_width(freedom) * np.sqrt(np.where(alike, pooled, between) / (n * seeds))


if __name__ == "__main__":
    typer.run(main)
