"""How honest and wrong reproductions score under the verdict's rule and the joint test, by
simulation.

    python benchmarks/reproductions.py                  # full size: minutes; writes benchmarks/results
    python benchmarks/reproductions.py --draws 2 --out /tmp

The model takes the paper's 864 numbers as the truth. It is not the one that calibrates the test:
the accuracy of dataset sample s in a cell has a beta distribution with the printed mean and spread
(a printed 0 counts as a quarter of a point), its quantile is in part an effect of the sample that
all cells of a target factor share (a Gaussian copula; 0.79 is the correlation across studies in
docs/results/laptop/runs.csv), and test images add binomial noise. The paper's side is five samples,
their mean and spread rounded to whole percents. Our side is other runs on the same samples, or on
others. Then `comparison_table` and `agreement_table` are applied unchanged.
"""

from collections.abc import Callable, Iterator
from datetime import date
from itertools import starmap
from multiprocessing import Pool
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from scipy.stats import beta, norm

from diagvib.foundation.files import write_text
from diagvib.foundation.seeding import named_generator
from diagvib.papers.diagvib6 import agreement
from diagvib.papers.diagvib6.agreement import agreement_table
from diagvib.papers.diagvib6.comparability import judge_runs
from diagvib.papers.diagvib6.published import PAPER_CUES, PAPER_KEYS, read_paper_tables
from diagvib.papers.diagvib6.verdicts import (
    COMPARED,
    LEAST_SAMPLES,
    MARGIN,
    PAPER_SAMPLES,
    comparison_table,
)
from diagvib.results.reader_tables import markdown_table

# The assumptions of the simulations: the columns of `config/papers/reproductions.csv` that state
# them.
RULE = {
    "margin": MARGIN,
    "least samples": LEAST_SAMPLES,
    "level": agreement.SIGNIFICANCE,
    "tolerance": agreement.TOLERANCE,
    "shared": agreement.SHARED,
    "simulated": agreement.DRAWS,
}
DRAWS = 8
# Times as many for honest reproductions, whose false alarms are counted, and for one baseline.
HONEST_DRAWS = 3
ONE_DRAWS = 3
CHANGE = "improvement_over_zgo"
ONE = "resnet18"
# One study further towards no shortcut (from none: back).
_NEXT = {
    "zgo": "cgo-1",
    "cgo-1": "cgo-2",
    "cgo-2": "cgo-3",
    "cgo-3": "zso",
    "fgo-5": "fgo-10",
    "fgo-10": "fgo-20",
    "fgo-20": "zso",
    "zso": "cgo-3",
}
# Standard error of a cell that the paper prints as 0, in fractions.
_PRINTED_ZERO = 0.0025
_CORRELATION = 0.79
_IMAGES = 50_000  # in the test groups of five cues


class Truth:
    """The paper's numbers as the truth, and every wrong reproduction of them."""

    def __init__(self, baselines: list[str] | None = None):
        paper = read_paper_tables()
        self.paper = paper[
            paper["baseline"].isin(baselines or paper["baseline"].unique())
        ].reset_index(drop=True)
        self._all = paper.set_index(PAPER_KEYS)["paper_mean"].to_dict()
        self.change = (self.paper["metric"] == CHANGE).to_numpy()
        spread = np.where(
            self.change, self.paper["paper_spread"], self.paper["paper_spread"] * PAPER_SAMPLES**0.5
        )
        self.spread = np.maximum(spread, _PRINTED_ZERO * PAPER_SAMPLES**0.5)
        self.target = pd.factorize(self.paper["target"])[0]
        self.means = self.paper["paper_mean"].to_numpy()
        # Cells that an offset of ONE's accuracies moves.
        self.one = (self.paper["baseline"] == ONE).to_numpy() & ~self.change

    def with_numbers_of(self, **others: Callable | dict) -> np.ndarray:
        """Each cell's number, or that of the cell in which a key is replaced as a dictionary, or
        a function of the cell, says; float[cells]. ZSO has no FAMin, and no change from ZGO."""
        found = self.means.copy()
        for place, cell in enumerate(self.paper.itertuples(index=False)):
            new = {
                key: other(cell) if callable(other) else other.get(getattr(cell, key))
                for key, other in others.items()
            }
            key = cell._replace(**{name: value for name, value in new.items() if value})
            if cell.metric != CHANGE:
                metric = "faavg" if key.study == "zso" else key.metric
                found[place] = self._all[key.study, key.baseline, key.target, metric]
            elif key.study in ("chgo", "zso"):
                found[place] = self._all.get(tuple(getattr(key, name) for name in PAPER_KEYS), 0)
        return found


def accuracies(
    truth: Truth, means: np.ndarray, effect: np.ndarray, share: float, rng: np.random.Generator
) -> np.ndarray:
    """float[cells, samples]. effect: of each sample on a target factor, [factors, samples]; share
    of the variance of the normal variable behind the beta distribution."""
    noise = rng.normal(size=(len(means), effect.shape[1]))
    level = norm.cdf(share**0.5 * effect[truth.target] + (1 - share) ** 0.5 * noise)
    low, width = np.where(truth.change, -1, 0)[:, None], np.where(truth.change, 2, 1)[:, None]
    mean = np.clip((means[:, None] - low) / width, 0.002, 0.998)
    most = mean * (1 - mean)
    size = most / np.minimum((truth.spread[:, None] / width) ** 2, 0.9 * most) - 1
    drawn = beta.ppf(level, mean * size, (1 - mean) * size)
    shown = rng.binomial(_IMAGES, drawn) / _IMAGES
    return np.where(truth.change[:, None], low + width * drawn, shown)


def printed(truth: Truth, drawn: np.ndarray) -> pd.DataFrame:
    """These accuracies as the paper would have printed them."""
    spread = drawn.std(axis=1, ddof=1) / np.where(truth.change, 1, PAPER_SAMPLES**0.5)
    return truth.paper.assign(paper_mean=drawn.mean(axis=1).round(2), paper_spread=spread.round(2))


def compared(
    truth: Truth, drawn: np.ndarray, paper: pd.DataFrame, frame: pd.DataFrame
) -> pd.DataFrame:
    """The comparison of our accuracies float[cells, samples] with the paper's numbers."""
    n = drawn.shape[1]
    ours = truth.paper[PAPER_KEYS].assign(
        mean=drawn.mean(axis=1), std=drawn.std(axis=1, ddof=1), n=n, expected=n, cues=PAPER_CUES
    )
    ours["stderr"] = ours["std"] / n**0.5
    judged = judge_runs(frame, [None] * len(frame), {})
    return comparison_table(ours, frame, judged, paper)


def scenarios(truth: Truth) -> Iterator[tuple[str, np.ndarray | None, dict]]:
    """Name, true means (None: U(0,1) noise), and how the samples are drawn. Those of one baseline
    among several come twice: with all baselines wrong, and with ONE wrong."""
    same, accuracy, one = {"same": True}, ~truth.change, truth.one
    yield "honest: same dataset samples", truth.means, same
    yield "honest: other dataset samples", truth.means, {}
    yield "honest: other samples, nine tenths their effect", truth.means, {"share": 0.9}
    yield "honest: other samples, half their effect", truth.means, {"share": 0.5}
    yield "honest: same samples, n = 3", truth.means, {"n": 3, **same}
    yield "honest: other samples, n = 3", truth.means, {"n": 3}
    yield "honest: same samples, n = 2", truth.means, {"n": 2, **same}
    yield f"honest: {ONE} 2 points higher", truth.means + 0.02 * one, {}
    yield "honest: all 2 points lower", truth.means - 0.02 * accuracy, {}
    wrong = {
        "shape and scale swapped": {"target": {"shape": "scale", "scale": "shape"}},
        "FGO-5 and -10 with FGO-20's numbers": {"study": {"fgo-5": "fgo-20", "fgo-10": "fgo-20"}},
        "CGO-1, 2, 3 as ZGO": {"study": {f"cgo-{k}": "zgo" for k in (1, 2, 3)}},
        "CGO-2 and CGO-3 swapped": {"study": {"cgo-2": "cgo-3", "cgo-3": "cgo-2"}},
        "the next study's numbers": {"study": _NEXT},
        "ZSO's numbers everywhere": {"study": lambda cell: "zso"},
    }
    flipped = np.where(truth.change, -truth.means, truth.means)
    famin = (truth.paper["metric"] == "famin").to_numpy()
    between = (truth.means + truth.with_numbers_of(metric=lambda cell: "faavg")) / 2
    changed = {name: truth.with_numbers_of(**others) for name, others in wrong.items()} | {
        "CHGO's sign flipped": flipped,
        "FAMin halfway to FAAvg": np.where(famin, between, truth.means),
        "accuracies a twentieth lower": np.where(accuracy, 0.95 * truth.means, truth.means),
    }
    for name, means in changed.items():
        yield name, means, {}
        if truth.paper["baseline"].nunique() > 1:
            own = (truth.paper["baseline"] == ONE).to_numpy()
            yield f"{name}, {ONE} only", np.where(own, means, truth.means), {}
    for other in ("wide_resnet50_2", "densenet161", "resnet50", "alexnet"):
        yield f"{other} sold as {ONE}", truth.with_numbers_of(baseline={ONE: other}), {}
    yield f"{ONE} 4 points higher", truth.means + 0.04 * one, {}
    yield f"{ONE} 5 points higher", truth.means + 0.05 * one, {}
    yield "five runs on one dataset sample", truth.means, {"distinct": 1}
    yield "one sample's result copied five times", truth.means, {"distinct": 0}
    yield "noise, U(0,1), n = 2", None, {"n": 2}
    yield "noise, U(0,1), n = 5", None, {}


def simulate(
    truth: Truth,
    means: np.ndarray | None,
    rng: np.random.Generator,
    draws: int,
    n: int = PAPER_SAMPLES,
    same: bool = False,
    share: float = _CORRELATION,
    distinct: int = PAPER_SAMPLES,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Comparison and joint statement, `draws` times. same: our samples are the paper's; distinct:
    1 for runs that share one dataset sample, 0 for copies of one run."""
    cells = truth.paper[["baseline", "study", "target"]].drop_duplicates()
    frame = cells.assign(status="ok", comparable=True)
    for _ in range(draws):
        effect, other = rng.normal(size=(2, truth.target.max() + 1, PAPER_SAMPLES))
        paper = printed(truth, accuracies(truth, truth.means, effect, share, rng))
        ours = (effect if same else other)[:, :n]
        if distinct <= 1:
            ours = np.repeat(ours[:, :1], n, axis=1)
        if means is None:
            drawn = rng.uniform(size=(2, len(truth.means), n))
            drawn = drawn[0] - np.where(truth.change[:, None], drawn[1], 0)
        else:
            drawn = accuracies(truth, means, ours, share, rng)
        if distinct == 0:
            drawn = np.repeat(drawn[:, :1], n, axis=1)
        table = compared(truth, drawn, paper, frame)
        yield table, agreement_table(table)


def score(baselines: list[str] | None, name: str, means, draws: int, how: dict) -> dict:
    """One row: shares of cells by verdict, the share of joint statements that the results differ,
    the median of p, and the group that is most often the furthest off."""
    truth = Truth(baselines)
    rng = named_generator("reproductions", name, len(truth.means))
    tables, statements = zip(*simulate(truth, means, rng, draws, **how), strict=True)
    told = pd.concat(tables)["verdict"].value_counts(normalize=True)
    joint = pd.DataFrame([stated.loc[0] for stated in statements])
    worst = pd.Series(
        [
            stated.loc[(stated["score"] / stated["usual"]).idxmax(), ["by", "name"]].str.cat(
                sep=": "
            )
            for stated in statements
        ]
    )
    return {
        "reproduction": name,
        **{f"cells {verdict}": round(float(told.get(verdict, 0)), 4) for verdict in COMPARED},
        "differs": round(float((joint["statement"] == "differs").mean()), 4),
        "median p": round(float(joint["p"].median()), 3),
        "furthest off": worst.mode()[0],
        "draws": draws,
    }


def table_of(draws: int, baselines: list[str] | None = None, processes: int = 1) -> pd.DataFrame:
    """A row for each scenario. baselines: those that ran, by default all of the paper's."""
    rows = [
        (baselines, name, means, draws * (HONEST_DRAWS if name.startswith("honest") else 1), how)
        for name, means, how in scenarios(Truth(baselines))
    ]
    if processes == 1:
        return pd.DataFrame(starmap(score, rows))
    with Pool(processes) as pool:
        return pd.DataFrame(pool.starmap(score, rows, chunksize=1))


def markdown(rows: pd.DataFrame) -> str:
    """The table of docs/agreement.md: a row for each reproduction but those that were found in every
    draw, columns for each choice of baselines."""
    found = {
        (row["baselines"], row["reproduction"]): [
            f"{100 * row['cells agrees']:.1f} / {100 * row['cells differs']:.1f}",
            f"{100 * row['differs']:.0f} %",
        ]
        for _, row in rows.iterrows()
    }
    of = rows["baselines"].unique()
    heads = [f"{name}: {column}" for name in of for column in ("agree / differ", "together")]
    missed = rows.groupby("reproduction", sort=False)["differs"].min() < 1
    lines = [
        [name, *(cell for one in of for cell in found.get((one, name), ["", ""]))]
        for name in missed.index[missed]
    ]
    return "\n".join(markdown_table(["reproduction", *heads], lines))


def main(
    draws: Annotated[int, typer.Option(help="simulated wrong reproductions of each kind")] = DRAWS,
    processes: Annotated[int, typer.Option(help="processes at once")] = 2,
    out: Annotated[Path, typer.Option(help="folder of the results")] = Path(__file__).parent
    / "results",
) -> None:
    """Simulate the verdict on honest and wrong reproductions, of all nine baselines and of resnet18
    alone."""
    tables = []
    for what, baselines in (("all nine", None), ("resnet18 alone", [ONE])):
        draws *= ONE_DRAWS if baselines else 1
        tables.append(table_of(draws, baselines, processes).assign(baselines=what, **RULE))
    rows = pd.concat(tables)
    print(markdown(rows))
    path = out / f"reproductions-cpu-{date.today().isoformat()}.csv"
    write_text(path, rows.to_csv(index=False))
    print(path)


if __name__ == "__main__":
    typer.run(main)
