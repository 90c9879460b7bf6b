"""Coverage of every interval that the tables print, and false alarms of every verdict, under a law
fitted to the published runs; and of means and paired differences near 0 and 1 under other laws, beside Student's
t. See benchmarks/README.md.

python benchmarks/simulated_statistics.py
"""

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))
# Threads for matrices this small cost far more than they save.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections.abc import Iterator  # noqa: E402
from itertools import product  # noqa: E402
from typing import Annotated  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import typer  # noqa: E402
from result_file import save_result  # noqa: E402
from scipy.special import expit, logit  # noqa: E402
from simulated_designs import (  # noqa: E402
    AS_FITTED,
    CHANCE,
    FITTED,
    World,
    accuracies,
    share,
    truths,
)

from diagvib.papers.diagvib6.verdicts import MARGIN, PAPER_SAMPLES, _tell, _uncertainty  # noqa: E402
from diagvib.papers.whac_a_mole.against_erm import judge_gap  # noqa: E402
from diagvib.results.metric_sets.cue_strength import half_way  # noqa: E402
from diagvib.results.uncertainty import half_width, sample_interval  # noqa: E402

SAMPLES = (3, 5, 10)
EDGE_SAMPLES = (3, 5, 10, 20)
MEANS = (0.001, 0.003, 0.01, 0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 0.97, 0.997)
# The means of a target's five cues, from the middle one, in logits.
CUES = np.array([-1.4, -0.7, 0, 0.7, 1.4])
DIFFERENCES = (
    (0.003, 0.05), (0.05, 0.3), (0.4, 0.5), (0.5, 0.5), (0.3, 0.99), (0.7, 0.97), (0.85, 0.97),
    (0.97, 0.97), (0.97, 0.99), (0.99, 0.997), (0.997, 0.997),
)  # fmt: skip
# Accuracy where the cue misleads and in distribution, of a method and of ERM.
GAPS = (
    (0.6, 0.97, 0.6, 0.97), (0.6, 0.97, 0.8, 0.97), (0.9, 0.97, 0.9, 0.97), (0.9, 0.97, 0.6, 0.95),
    (0.97, 0.99, 0.97, 0.99), (0.99, 0.997, 0.9, 0.99), (0.997, 0.997, 0.997, 0.997),
)  # fmt: skip
# Of dose-response curves: accuracy without counter-examples and without a shortcut, the share of counter-examples half-way
# between them, and how steeply, in logits per e-fold, accuracy rises there.
CURVES = (
    (0.003, 0.95, 0.002, 1.5), (0.003, 0.95, 0.01, 1.5), (0.003, 0.95, 0.05, 1.5), (0.003, 0.95, 0.05, 4),
    (0.003, 0.95, 0.2, 1.5), (0.003, 0.99, 0.02, 4), (0.3, 0.95, 0.05, 1.5), (0.6, 0.9, 0.05, 1.5), (0.02, 0.4, 0.1, 1.5),
    (0.02, 0.4, 0.9, 1.5),
)  # fmt: skip
# Samples that differ more than the fitted ones: in the law, as if each were this many images.
WIDE = 3
COUNTER_EXAMPLES = np.array([0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
# Of curves that end with their own reference: without any relation, the cue misleads in two thirds of the images.
WITH_REFERENCE = np.array([0, 0.01, 0.05, 0.2, 2 / 3])
# Near 0 and 1, and where neither: means, and pairs of them.
EDGES = (
    (0.01,), (0.02,), (0.05,), (0.1,), (0.5,), (0.9,), (0.98,), (0.99,),
    (0.003, 0.01), (0.01, 0.02), (0.02, 0.02), (0.02, 0.05), (0.03, 0.1), (0.1, 0.13), (0.05, 0.15), (0.1, 0.1),
    (0.5, 0.55), (0.9, 0.93), (0.95, 0.95), (0.97, 0.99), (0.99, 0.99),
)  # fmt: skip
WORLDS = {
    "as fitted": AS_FITTED,
    "10,000 test images": World(images=10_000),
    "30 test images": World(images=30),
    "samples more alike": World(worth=30),
    "logistic-normal": World(spread=1),
    "more shared": World(shared=0.95),
    "nothing shared": World(shared=0),
    "1 in 20 runs failed": World(worth=30, failed=0.05),
    "1 in 10 runs failed": World(worth=30, failed=0.1),
}
# How far ours are from the paper's mean, in points; more than MARGIN must not be called agreement.
OFF = (0, 0.06)


def main(
    times: Annotated[int, typer.Option(min=1, help="Simulated datasets per figure.")] = 1500,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = REPOSITORY
    / "benchmarks/results",
    edges: Annotated[bool, typer.Option(help="Also means and differences near 0 and 1.")] = True,
) -> None:
    if edges:
        rows = [row for n in EDGE_SAMPLES for row in _edges(n, times)]
        worlds = {name: world._asdict() for name, world in WORLDS.items()}
        save_result("edges", "cpu", rows, out, times=times, chance=CHANCE, worlds=worlds)
    rows = []
    for n in SAMPLES:
        for simulate in (_accuracies, _differences, _gaps, _half_ways, _cells):
            for row in simulate(n, times):
                rows.append({"samples": n, **row})
                print(*rows[-1].values(), sep=" | ", flush=True)
    save_result("statistics", "cpu", rows, out, times=times, world=AS_FITTED._asdict())


def _edges(n: int, times: int) -> Iterator[dict]:
    """Means and paired differences, with Student's t interval beside ours. Where the means are equal,
    what is not covered is a false alarm."""
    for (name, world), means in product(WORLDS.items(), EDGES):
        drawn = accuracies(np.random.default_rng(n), means, (n, times), world)
        first, *second = truths(means, world)
        truth = first - sum(second)
        each = drawn[0] - sum(drawn[1:])
        half = half_width(n - 1) * each.std(axis=0, ddof=1) / n**0.5
        ends = np.array([sample_interval(*drawn[..., at]) for at in range(times)]).T
        printed = ~np.isnan(ends[0])
        covered = (ends[0] <= truth + 1e-9) & (truth - 1e-9 <= ends[1])
        print(n, name, *means, sep=" | ", flush=True)
        yield {
            "samples": n,
            "what": "difference" if second else "mean",
            "world": name,
            "means": means,
            "truth": round(float(truth), 4),
            "coverage": float(covered[printed].mean()),
            "coverage_t": float((abs(each.mean(axis=0) - truth) <= half + 1e-9).mean()),
            "width": float(np.median((ends[1] - ends[0])[printed]) / 2),
            "width_t": float(np.median(half)),
        }


def _accuracies(n: int, times: int) -> Iterator[dict]:
    """P_ij; FAAvg and FAMin over five cues; a mean over thirty bindings as different as these."""
    for mean in MEANS:
        generator = np.random.default_rng(n)
        five, thirty = expit(logit(mean) + CUES), expit(logit(mean) + np.tile(CUES, 6))
        many = accuracies(generator, five, (200_000,)).min(axis=0).mean()
        cues = accuracies(generator, five, (n, times))
        for what, values, truth in (
            ("P_ij", accuracies(generator, [mean], (n, times))[0], mean),
            ("FAAvg", cues.mean(axis=0), five.mean()),
            ("FAMin", cues.min(axis=0), many),
            (
                "mean over bindings",
                accuracies(generator, thirty, (n, times)).mean(0),
                thirty.mean(),
            ),
        ):
            yield {
                "what": what,
                "mean": round(float(truth), 4),
                "coverage": share(sample_interval, values, truth),
            }


def _differences(n: int, times: int) -> Iterator[dict]:
    """Two baselines, or two studies, on the same dataset samples."""
    for means in DIFFERENCES:
        drawn = accuracies(np.random.default_rng(n), means, (n, times))
        covered = share(lambda pair: sample_interval(*pair), drawn, means[0] - means[1])
        yield {"what": "paired difference", "means": means, "coverage": covered}


def _gaps(n: int, times: int) -> Iterator[dict]:
    for means in GAPS:
        drawn = accuracies(np.random.default_rng(n), means, (n, times))
        gap, reference = means[0] - means[1], means[2] - means[3]
        judged = [judge_gap(drawn[..., at]) for at in range(times)]
        ends = {"gap": share(lambda four: sample_interval(*four[:2]), drawn, gap)}
        ends["gap minus ERM's"] = share(
            lambda four: sample_interval([four[0], four[3]], [four[1], four[2]]),
            drawn,
            gap - reference,
        )
        for what, covered in ends.items():
            yield {"what": what, "means": means, "coverage": covered}
        wrong = {"worse"} if gap > reference else {"better"} if gap < reference else set()
        wrong = wrong or {"worse", "better"}
        yield {
            "what": "verdict on a gap",
            "means": means,
            "false_alarms": float(np.mean([one["verdict"] in wrong for one in judged])),
        }


def _half_ways(n: int, times: int) -> Iterator[dict]:
    """Half-way strengths, whose truth is that of the mean curve, interpolated as ours; also with
    samples that differ more than the published ones. A third of the draws."""
    for (floor, top, middle, steep), worth, shares in product(
        CURVES, (FITTED, WIDE), (COUNTER_EXAMPLES, WITH_REFERENCE)
    ):
        with np.errstate(divide="ignore"):
            means = floor + (top - floor) * expit(steep * np.log(shares / middle))
        own = shares is WITH_REFERENCE
        means = [top, *(means[:-1] if own else means)]

        def found_in(drawn: np.ndarray, shares=shares, own=own) -> tuple[float, float, float]:
            """Of a curve behind its reference; with its own reference, that is its last point."""
            return half_way(shares, np.append(drawn[1:], drawn[:own], axis=0), drawn[0])

        truth = found_in(np.array(means)[:, None])[0]
        shape, generator = (n, times // 3), np.random.default_rng(n)
        drawn = np.moveaxis(accuracies(generator, means, shape, World(worth)), -1, 0)
        each = [found_in(one) for one in drawn]
        found, low, high = np.array([one for one in each if not np.isnan(one[0])]).T
        yield {
            "what": "half-way strength" + (", own reference" if own else ""),
            "curve": (floor, top, middle, steep),
            "worth": worth,
            "truth": str(truth),
            "coverage": float(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean()),
            "within_half_and_double": float(((found >= truth / 2) & (found <= truth * 2)).mean()),
            "bounded": float(((low > 0) & (high < 1)).mean()),
        }


def _cells(n: int, times: int) -> Iterator[dict]:
    """FAAvg beside a paper's of five other samples, printed in whole percents: how often equal
    means differ, and how often means that are more than MARGIN apart agree."""
    for mean in MEANS:
        for off in OFF:
            generator, ours = np.random.default_rng(n), mean + off if mean < 0.5 else mean - off
            mine, theirs = (
                accuracies(generator, [one], (samples, times))[0]
                for one, samples in ((ours, n), (mean, PAPER_SAMPLES))
            )
            rows = pd.DataFrame(
                {
                    "ours": mine.mean(axis=0),
                    "stderr": mine.std(axis=0, ddof=1) / n**0.5,
                    "n": n,
                    "paper_mean": theirs.mean(axis=0).round(2),
                    "paper_spread": (theirs.std(axis=0, ddof=1) / PAPER_SAMPLES**0.5).round(2),
                    "spread_kind": "stderr",
                }
            )
            cells = zip(rows["ours"] - rows["paper_mean"], _uncertainty(rows), strict=True)
            told = [_tell(n, n, *cell)[0] for cell in cells]
            wrong = "agrees" if off > MARGIN else "differs"
            yield {
                "what": f"cell {wrong}, means {100 * off:.0f} points apart",
                "mean": mean,
                "false_alarms": float(np.mean([verdict == wrong for verdict in told])),
            }


if __name__ == "__main__":
    typer.run(main)
