"""Would anything in the numbers show that somebody kept the best of k seeds, or of k reproductions, by
their test images? By simulation, as in reproductions.py.

    python benchmarks/chosen_runs.py

Two signs are tried, each with a threshold that 5 % of the honest reproductions pass that pass it
most often: the mean over all accuracies lies too high above the paper's, and the spread between
dataset samples is too small beside the paper's. An honest reproduction may be on the paper's
samples or on others, and up to two points better. The columns `mean too high` and `spread too small` of
the result have the share of reproductions that each sign finds; `gained` the points by which
choosing raises the mean.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from reproductions import ONE, ONE_DRAWS, Truth, accuracies, printed
from result_file import save_result

from diagvib.foundation.seeding import named_generator
from diagvib.papers.diagvib6.agreement import TOLERANCE
from diagvib.papers.diagvib6.verdicts import PAPER_SAMPLES

SIGNS = ("mean too high", "spread too small")
HONEST = ("same samples", "other samples", "same samples, better", "other samples, better")
# What is chosen, of so many.
CHOSEN = ("seed of each run", "reproduction", "dataset samples")
BEST_OF = (3, 5)
# Baselines, and the share of the variance between runs that dataset samples make; the rest is that of
# seeds.
CASES = ((None, 0.79), ((ONE,), 0.96), ((ONE,), 0.79), ((ONE,), 0.5))
DRAWS = 80
_LEVEL = 0.05


def main(
    draws: Annotated[
        int, typer.Option(min=20, help="Reproductions of each kind, of all nine baselines.")
    ] = DRAWS,
    out: Annotated[Path, typer.Option(help="Folder of the JSON result.")] = Path(__file__).parent
    / "results",
) -> None:
    rows = [
        row
        for baselines, share in CASES
        for row in reproductions(baselines, share, draws * (ONE_DRAWS if baselines else 1))
    ]
    print(pd.DataFrame(rows).round(3).to_string(index=False))
    save_result("chosen-runs", "cpu", rows, out, draws=draws, level=_LEVEL, tolerance=TOLERANCE)


def reproductions(baselines: tuple[str] | None, share: float, draws: int) -> Iterator[dict]:
    """A row for each kind of reproduction, honest or chosen."""
    truth = Truth(baselines and [*baselines])
    several = truth.paper["baseline"].nunique() > 1
    named = {"baselines": "all nine" if several else ONE, "share": share}
    honest = {kind: _signs(truth, share, draws, kind, 1) for kind in HONEST}
    edges = np.max([np.quantile(signs, 1 - _LEVEL, axis=0) for signs in honest.values()], axis=0)
    plain = honest["same samples"][:, 0].mean()
    for kind, signs in honest.items():
        yield {**named, "kept": f"honest: {kind}", "of": 1, "draws": draws} | _found(
            signs, edges, plain
        )
    for kind, count in product(CHOSEN, BEST_OF):
        signs = _signs(truth, share, draws, kind, count)
        yield {**named, "kept": f"the best {kind}", "of": count, "draws": draws} | _found(
            signs, edges, plain
        )


def _found(signs: np.ndarray, edges: np.ndarray, plain: float) -> dict[str, float]:
    shares = (signs > edges).mean(axis=0).round(4).tolist()
    gained = round(100 * float(signs[:, 0].mean() - plain), 2)
    return dict(zip(SIGNS, shares, strict=True)) | {"gained": gained}


def _signs(truth: Truth, share: float, draws: int, kind: str, count: int) -> np.ndarray:
    """float[draws, signs], each greater where it speaks more for a choice."""
    rng, signs = named_generator("chosen", kind, count, share, len(truth.means)), []
    cells = ~truth.change
    for _ in range(draws):
        effect = rng.normal(size=(truth.target.max() + 1, PAPER_SAMPLES))
        paper = printed(truth, accuracies(truth, truth.means, effect, share, rng))
        drawn = _kept(truth, share, kind, count, effect, rng)[cells]
        spread = drawn.std(axis=1, ddof=1) / PAPER_SAMPLES**0.5
        theirs = paper["paper_spread"].to_numpy()[cells]
        difference = drawn.mean(axis=1) - paper["paper_mean"].to_numpy()[cells]
        ratio = np.sqrt((theirs**2).sum() / (spread**2).sum())
        signs.append((difference.mean(), ratio))
    return np.array(signs)


def _kept(
    truth: Truth,
    share: float,
    kind: str,
    count: int,
    effect: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Our accuracies, float[cells, samples]. effect: of the paper's samples."""
    means = truth.means + np.where(truth.change, 0, TOLERANCE * kind.endswith("better"))
    if kind == "dataset samples":
        effect = rng.normal(size=(len(effect), PAPER_SAMPLES * count))
        drawn = accuracies(truth, means, effect, share, rng)
        best = np.argsort(drawn[~truth.change].mean(axis=0))[-PAPER_SAMPLES:]
        return drawn[:, best]
    if kind.startswith("other"):
        effect = rng.normal(size=effect.shape)
    several = np.stack([accuracies(truth, means, effect, share, rng) for _ in range(count)])
    if kind == "reproduction":
        return several[several[:, ~truth.change].mean(axis=(1, 2)).argmax()]
    return several.max(axis=0)  # also of honest ones, which have one


if __name__ == "__main__":
    typer.run(main)
