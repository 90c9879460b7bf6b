"""How far the statistics can be trusted, by simulation: see benchmarks/README.md.

python benchmarks/simulated_statistics.py intervals
python benchmarks/simulated_statistics.py gaps
python benchmarks/simulated_statistics.py orders
git show 8d853e7:src/diagvib/uncertainty.py > before.py
python benchmarks/simulated_statistics.py intervals --before before.py     # that code compared with today's
"""

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests")]
# Threads for matrices this small cost far more than they save.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections.abc import Iterable, Iterator  # noqa: E402
from importlib.util import module_from_spec, spec_from_file_location  # noqa: E402
from itertools import product  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Annotated  # noqa: E402

import numpy as np  # noqa: E402
import typer  # noqa: E402
from scipy.stats import spearmanr  # noqa: E402

import simulated_designs as designs  # noqa: E402
from diagvib.bench.results import save_result  # noqa: E402
from diagvib.results import orders as ours  # noqa: E402
from diagvib.results import uncertainty  # noqa: E402
from diagvib.results.paper import read_paper_tables  # noqa: E402
from diagvib.results.verdicts import MARGIN, PAPER_SAMPLES, assumed_uncertainty  # noqa: E402

SAMPLES = (2, 3, 5, 6, 20)
ALIKE, UNLIKE = designs.normal_runs(designs.ALIKE), designs.normal_runs(designs.UNLIKE)
# Function, quantity drawn, distribution, truth.
INTERVALS = [
    ("sample_interval", "normal", designs.normal_samples, 0.5),
    ("sample_interval", "skewed", designs.skewed_samples(*designs.SKEWED), designs.SKEWED[0]),
    (
        "sample_interval",
        "very skewed",
        designs.skewed_samples(*designs.VERY_SKEWED),
        designs.VERY_SKEWED[0],
    ),
    ("crossed_interval", "normal, pairs alike", ALIKE, 0.5),
    ("crossed_interval", "normal", UNLIKE, 0.5),
    ("crossed_interval", "normal, 10 % missing", designs.with_gaps(UNLIKE, 0.1), 0.5),
    ("crossed_interval", "normal, 50 % missing", designs.with_gaps(UNLIKE, 0.5), 0.5),
    ("crossed_interval", "skewed", designs.skewed_runs(*designs.SKEWED), designs.SKEWED[0]),
    (
        "crossed_interval",
        "very skewed",
        designs.skewed_runs(*designs.VERY_SKEWED),
        designs.VERY_SKEWED[0],
    ),
]
COMPARISONS = [
    ("normal", UNLIKE, UNLIKE),
    (
        "skewed, both alike",
        designs.skewed_runs(*designs.SKEWED),
        designs.skewed_runs(*designs.SKEWED),
    ),
    (
        "skewed, one narrower",
        designs.skewed_runs(*designs.SKEWED),
        designs.skewed_runs(*designs.NARROW),
    ),
]

# Mean gap of a method and of ERM: both follow the cue equally; the method twice as much; ERM hardly
# at all.
GAP_MEANS = ((-0.3, -0.3), (-0.4, -0.2), (-0.1, -0.05))

# How alike both sides of a rank correlation are, by Pearson's.
ALIKE_ORDERS = (0, 0.5, 0.8, 0.95, 0.99)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.callback()(lambda: None)  # so that a command must be named even while there is only one


@app.command()
def intervals(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 2000,
    before: Annotated[
        Path | None, typer.Option(help="Another uncertainty.py to measure as well.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    """Coverage of the 95 % intervals, and false alarms of comparisons, for baselines that are truly
    equal."""
    codes = {"today": uncertainty, **({before.stem: _load(before)} if before else {})}
    rows = [row for name, code in codes.items() for row in _measure(name, code, times)]
    save_result(
        "statistics-intervals",
        "cpu",
        rows,
        out,
        times=times,
        bindings=designs.BINDINGS,
        sample_spread=designs.SAMPLE_SPREAD,
        run_spread=designs.RUN_SPREAD,
    )


@app.command()
def gaps(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 4000,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    """How often intervals for a method's gap compared with ERM's contain the truth: of the
    difference or of the ratio.

    With 4000 simulations each, normal and skewed, for equal gaps, one twice as wide, and narrow
    ones (3, 5, 10 samples): t interval of the paired differences 0.95, 0.95 to 0.96, 0.95 to 0.96;
    percentile bootstrap of the same
    0.75 to 0.76, 0.81 to 0.84, 0.88 to 0.90; Fieller's interval of the ratio 0.95 to 1.00, 0.94 to 1.00, 0.95 to 0.98,
    but unbounded in 0.04 to 0.98, 0.00 to 0.97, 0.00 to 0.79 of them, more often the narrower ERM's gap. Hence verdicts
    rest on the t interval, and Fieller's is given if it is bounded.
    """
    rows = []
    for skewed, (mean, reference), n in product((False, True), GAP_MEANS, (3, 5, 10)):
        draw = designs.paired_gaps(mean, reference, skewed)
        for name, interval, truth in (
            ("t, difference", designs.paired_t, mean - reference),
            ("bootstrap, difference", designs.paired_bootstrap, mean - reference),
            ("Fieller, ratio", designs.ratio, mean / reference),
        ):
            widths = []

            def kept(pair, interval=interval, widths=widths):
                low, high = interval(pair)
                widths.append(high - low)
                return low, high

            covered = designs.coverage(kept, draw, truth, n, times)
            rows.append(
                {
                    "interval": name,
                    "design": "skewed" if skewed else "normal",
                    "gap": mean,
                    "reference": reference,
                    "samples": n,
                    "coverage": covered,
                    "unbounded": widths.count(float("inf")) / times,
                }
            )
            print(*rows[-1].values(), sep=" | ", flush=True)
    save_result("statistics-gaps", "cpu", rows, out, times=times)


@app.command()
def orders(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 400,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
) -> None:
    """Coverage of the intervals of rank correlations, false alarms of their tests, and how far
    cells are told apart."""
    rows = [
        *_factor_orders(times),
        *_pair_orders(times),
        *_resampled_factors(times),
        *_sample_intervals(times),
        *_won_pairs(times),
        *_close_cells(times),
    ]
    for row in rows:
        print(
            *(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()),
            sep=" | ",
        )
    save_result("statistics-orders", "cpu", rows, out, times=times)


def _factor_orders(times: int) -> Iterator[dict]:
    """Mean over the studies, for six factors, drawn again each time. The truth is the value for
    20,000 factors."""
    for studies, own, alike in product((1, 2, 8), (0.1, 0.5), ALIKE_ORDERS):
        generator = np.random.default_rng(studies)
        many = designs.alike_factors(generator, alike, own, studies, 20_000)
        truth = float(np.mean([spearmanr(*both).statistic for both in zip(*many, strict=True)]))
        drawn = (
            designs.scored_factors(designs.alike_factors(generator, alike, own, studies, 6))
            for _ in range(times)
        )
        yield {
            "what": "target factors",
            "studies": studies,
            "own": own,
            **_told(drawn, truth, alike),
        }


def _pair_orders(times: int) -> Iterator[dict]:
    """The 30 ordered pairs of six factors, drawn again each time. The truth is the mean of six
    draws of 250 factors' pairs."""
    for own, noise, alike in product((0.0, 0.5), (0.3, 1.0), ALIKE_ORDERS):
        generator = np.random.default_rng(6)
        many = [
            designs.scored_pairs(designs.alike_pairs(generator, alike, own, noise, 250))
            for _ in range(6)
        ]
        truth = float(np.mean([(first * second).sum() for [(first, second)] in many]))
        drawn = (
            designs.scored_pairs(designs.alike_pairs(generator, alike, own, noise, 6))
            for _ in range(times)
        )
        yield {"what": "pairs", "own": own, "noise": noise, **_told(drawn, truth, alike)}


def _told(drawn: Iterable[list], truth: float, alike: float) -> dict:
    """Coverage and width of the interval; where the two sides are unrelated, how often p is below
    0.05 as well."""
    drawn = [scored for scored in drawn if scored]
    found = [np.mean([(first * second).sum() for first, second in scored]) for scored in drawn]
    ends = np.array([ours.order_interval(spearman, 6) for spearman in found])
    alarms = (
        {}
        if alike
        else {"false_alarms": float(np.mean([ours.order(scored)["p"] <= 0.05 for scored in drawn]))}
    )
    return {
        "truth": truth,
        "coverage": float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()),
        "width": float(np.diff(ends).mean()),
        **alarms,
    }


def _resampled_factors(times: int) -> Iterator[dict]:
    """Other intervals of the mean over studies, for a quarter of the datasets."""
    for studies, own, alike in product((1, 2, 8), (0.1, 0.5), ALIKE_ORDERS):
        generator = np.random.default_rng(studies)
        truth = float(
            designs.mean_spearman(designs.alike_factors(generator, alike, own, studies, 20_000))
        )
        drawn = [
            designs.alike_factors(generator, alike, own, studies, 6) for _ in range(times // 4)
        ]
        for interval in (designs.bootstrap_over_factors, designs.jackknife_over_factors):
            ends = np.array([interval(one) for one in drawn if designs.scored_factors(one)])
            yield {
                "what": f"target factors, {interval.__name__}",
                "studies": studies,
                "own": own,
                "truth": truth,
                "coverage": float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()),
                "width": float(np.diff(ends).mean()),
            }


def _sample_intervals(times: int) -> Iterator[dict]:
    """Another one, t over dataset samples, each compared with the paper's order. The truth, the
    paper's resnet18 with half its spread, all of it, or three times as much, is the mean over all
    that are drawn."""
    paper = read_paper_tables().query("baseline == 'resnet18' and metric == 'faavg'")
    means, spreads = (
        paper.pivot(index="study", columns="target", values=f"paper_{name}").to_numpy()
        for name in ("mean", "spread")
    )
    for scale, n in product((0.5, 1, 3), (2, 3, 5)):
        generator, spread = (
            np.random.default_rng(n),
            scale * np.maximum(spreads, 0.005) * PAPER_SAMPLES**0.5,
        )
        drawn = np.clip(means + spread * generator.standard_normal((n * times, *means.shape)), 0, 1)
        found = np.array(
            [
                np.mean([(a * b).sum() for a, b in designs.scored_factors(np.stack([one, means]))])
                for one in drawn
            ]
        ).reshape(-1, n)
        ends = np.array([uncertainty.sample_interval(values, within=(-1, 1)) for values in found])
        truth = float(found.mean())
        yield {
            "what": "target factors, t over samples",
            "spread": scale,
            "samples": n,
            "truth": truth,
            "coverage": float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()),
            "width": float(np.diff(ends).mean()),
        }


def _won_pairs(times: int) -> Iterator[dict]:
    """Pairs that neither factor wins: how often the interval over the samples misses 1/2. Normal,
    with a spread of 0.1 for a sample; and Beta(1/2, 1/2), where one factor wins in one sample and
    the other in the next."""
    for n in (2, 3, 5):
        generator = np.random.default_rng(n)
        for design, drawn in (
            ("normal", generator.normal(0.5, 0.1, (20 * times, n))),
            ("a factor wins by sample", generator.beta(0.5, 0.5, (20 * times, n))),
        ):
            ends = np.array([uncertainty.sample_interval(values) for values in drawn])
            yield {
                "what": "pairs that neither wins",
                "design": design,
                "samples": n,
                "false_alarms": float(((ends[:, 0] > 0.5) | (ends[:, 1] < 0.5)).mean()),
            }


def _close_cells(times: int) -> Iterator[dict]:
    """Cells of resnet18 with the same distribution as the paper's, and fewer samples than a verdict
    needs: how many are close and, falsely, apart if our spread is the paper's, or larger."""
    paper = read_paper_tables().query("baseline == 'resnet18' and spread_kind == 'stderr'")
    means = paper["paper_mean"].to_numpy()
    spread = np.maximum(paper["paper_spread"].to_numpy(), 0.0025) * PAPER_SAMPLES**0.5
    for scale, n in product((1, 1.5, 2), (1, 2)):
        generator = np.random.default_rng(n)
        theirs = np.clip(
            means + spread * generator.standard_normal((times, PAPER_SAMPLES, len(means))), 0, 1
        )
        mine = np.clip(
            means + scale * spread * generator.standard_normal((times, n, len(means))), 0, 1
        ).mean(axis=1)
        half = assumed_uncertainty((theirs.std(axis=1, ddof=1) / PAPER_SAMPLES**0.5).round(2), n)
        off = np.abs(mine - theirs.mean(axis=1).round(2))
        yield {
            "what": "cells of equal distributions",
            "spread": scale,
            "samples": n,
            "close": float((off + half <= MARGIN).mean()),
            "apart": float(((off + half > MARGIN) & (off > half)).mean()),
        }


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _measure(name: str, code: ModuleType, times: int) -> list[dict]:
    rows = [
        {
            "code": name,
            "what": what,
            "design": design,
            "samples": n,
            "coverage": designs.coverage(getattr(code, what), draw, truth, n, times),
        }
        for what, design, draw, truth in INTERVALS
        for n in SAMPLES
    ]
    rows += [
        {
            "code": name,
            "what": "paired_difference",
            "design": design,
            "samples": n,
            **designs.null_comparisons(code.paired_difference, first, second, n, times),
        }
        for design, first, second in COMPARISONS
        for n in SAMPLES
    ]
    for row in rows:
        print(
            *(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()),
            sep=" | ",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    app()
