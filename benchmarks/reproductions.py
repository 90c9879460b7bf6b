"""How equal distributions and wrong reproductions score under the verdict's rule and pass marks, by
simulation.

    python benchmarks/reproductions.py                  # full size: minutes; writes benchmarks/results
    python benchmarks/reproductions.py --draws 20 --out /tmp

The model takes the paper's 864 numbers as the truth. The accuracy of dataset sample s in a cell is
its mean, plus an effect of the sample that all cells of a target factor share, plus noise of the
run; both are normal, and together as wide as the printed spread (a printed 0 counts as a quarter of
a point). The paper's side is five samples, their mean and spread rounded to whole percents. Our
side is other runs on the same samples, or on others. Then `comparison_table` and `agreement_table`
are applied unchanged.
"""

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from diagvib.foundation.files import write_text
from diagvib.foundation.seeding import named_generator
from diagvib.results.agreement import RULE, STATEMENTS, agreement_table
from diagvib.results.paper import PAPER_CUES, read_paper_tables
from diagvib.results.verdicts import COMPARED, KEYS, PAPER_SAMPLES, comparison_table

DRAWS = 150
CHANGE = "improvement_over_zgo"
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


class Truth:
    """The paper's numbers as the truth, and every wrong reproduction of them."""

    def __init__(self, baselines: list[str] | None = None):
        paper = read_paper_tables()
        self.paper = paper[
            paper["baseline"].isin(baselines or paper["baseline"].unique())
        ].reset_index(drop=True)
        self._all = paper.set_index(KEYS)["paper_mean"].to_dict()
        self.change = (self.paper["metric"] == CHANGE).to_numpy()
        spread = np.where(
            self.change, self.paper["paper_spread"], self.paper["paper_spread"] * PAPER_SAMPLES**0.5
        )
        self.spread = np.maximum(spread, _PRINTED_ZERO * PAPER_SAMPLES**0.5)
        self.target = pd.factorize(self.paper["target"])[0]
        self.means = self.paper["paper_mean"].to_numpy()

    def with_numbers_of(self, other: Callable) -> np.ndarray:
        """Each cell's number, or that of the (study, baseline) that `other` names for it;
        float[cells]."""
        found = self.means.copy()
        for place, cell in enumerate(self.paper.itertuples(index=False)):
            study, baseline = other(cell)
            if cell.metric != CHANGE or baseline != cell.baseline:
                metric = "faavg" if study == "zso" else cell.metric
                found[place] = self._all[study, baseline, cell.target, metric]
            elif study == "zso":
                found[place] = 0
        return found


def accuracies(
    truth: Truth, means: np.ndarray, effect: np.ndarray, share: float, rng: np.random.Generator
) -> np.ndarray:
    """float[cells, samples]. effect: of each sample on a target factor, [factors, samples]; share
    of the variance."""
    noise = rng.normal(size=(len(means), effect.shape[1]))
    drawn = means[:, None] + truth.spread[:, None] * (
        share**0.5 * effect[truth.target] + (1 - share) ** 0.5 * noise
    )
    return np.clip(drawn, np.where(truth.change, -1, 0)[:, None], 1)


def printed(truth: Truth, drawn: np.ndarray) -> pd.DataFrame:
    """What the paper would have printed for these accuracies."""
    spread = drawn.std(axis=1, ddof=1) / np.where(truth.change, 1, PAPER_SAMPLES**0.5)
    return truth.paper.assign(paper_mean=drawn.mean(axis=1).round(2), paper_spread=spread.round(2))


def compared(
    truth: Truth, drawn: np.ndarray, paper: pd.DataFrame, frame: pd.DataFrame
) -> pd.DataFrame:
    """The comparison of our accuracies float[cells, samples] with the paper's numbers."""
    n = drawn.shape[1]
    ours = truth.paper[KEYS].assign(
        mean=drawn.mean(axis=1), std=drawn.std(axis=1, ddof=1), n=n, expected=n, cues=PAPER_CUES
    )
    ours["stderr"] = ours["std"] / n**0.5
    return comparison_table(ours[~truth.change], ours[truth.change], frame, {}, paper=paper)


def scenarios(truth: Truth) -> Iterator[tuple[str, np.ndarray | None, dict]]:
    """Name, true means (None: U(0,1) noise), and how the samples are drawn."""
    yield "equal: same dataset samples", truth.means, {}
    yield "equal: other dataset samples", truth.means, {"same": False}
    yield (
        "equal: other samples, nine tenths their effect",
        truth.means,
        {"same": False, "share": 0.9},
    )
    yield "equal: same samples, n = 3", truth.means, {"n": 3}
    yield "equal: same samples, n = 2", truth.means, {"n": 2}
    yield (
        "the next study's numbers",
        truth.with_numbers_of(lambda c: (_NEXT.get(c.study, c.study), c.baseline)),
        {},
    )
    yield (
        "CGO-1, 2, 3 as ZGO",
        truth.with_numbers_of(
            lambda c: ("zgo" if c.study.startswith("cgo") else c.study, c.baseline)
        ),
        {},
    )
    yield (
        "alexnet's numbers for resnet18",
        truth.with_numbers_of(
            lambda c: (c.study, "alexnet" if c.baseline == "resnet18" else c.baseline)
        ),
        {},
    )
    yield "ZSO's numbers everywhere", truth.with_numbers_of(lambda c: ("zso", c.baseline)), {}
    yield "noise, U(0,1), n = 2", None, {"n": 2}
    yield "noise, U(0,1), n = 5", None, {}


def simulate(
    truth: Truth,
    means: np.ndarray | None,
    rng: np.random.Generator,
    draws: int,
    n: int = PAPER_SAMPLES,
    same: bool = True,
    share: float = 0.5,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Comparison and joint statements, `draws` times."""
    cells = truth.paper[["baseline", "study", "target"]].drop_duplicates()
    frame = cells.assign(status="ok", comparable=True)
    for _ in range(draws):
        effect, other = rng.normal(size=(2, truth.target.max() + 1, PAPER_SAMPLES))
        paper = printed(truth, accuracies(truth, truth.means, effect, share, rng))
        if means is None:
            drawn = rng.uniform(size=(2, len(truth.means), n))
            drawn = drawn[0] - np.where(truth.change[:, None], drawn[1], 0)
        else:
            drawn = accuracies(truth, means, (effect if same else other)[:, :n], share, rng)
        table = compared(truth, drawn, paper, frame)
        yield table, agreement_table(table)


def score(truth: Truth, name: str, means: np.ndarray | None, draws: int, **how) -> dict:
    """One row: shares of cells by verdict, of statements by subject, medians of the numbers behind
    them.

    In a wrong reproduction, statements on baselines and studies count only if their numbers differ
    from the paper's.
    """
    rng = named_generator("reproductions", name, len(truth.means))
    tables, statements = zip(*simulate(truth, means, rng, draws, **how), strict=True)
    changed = (
        np.ones(len(truth.means), bool)
        if means is None or name.startswith("equal")
        else means != truth.means
    )
    wrong = {
        "overall": ["all"],
        **{by: list(truth.paper.loc[changed, by].unique()) for by in ("baseline", "study")},
    }
    told = pd.concat(tables)["verdict"].value_counts(normalize=True)
    stated = pd.concat(statements)
    row = {
        "reproduction": name,
        **{f"cells {verdict}": round(float(told.get(verdict, 0)), 4) for verdict in COMPARED},
    }
    for by, names in wrong.items():
        shares = stated[(stated["by"] == by) & stated["name"].isin(names)][
            "statement"
        ].value_counts(normalize=True)
        row |= {
            f"{by}: {statement}": round(float(shares.get(statement, 0)), 4)
            for statement in STATEMENTS
        }
    overall = stated[stated["by"] == "overall"]
    return row | {
        f"median {column}": round(float(overall[column].abs().median()), 4)
        for column in ("mean_difference", "rms_z", "agreeing", "order")
    }


def table_of(draws: int, baselines: list[str] | None = None) -> pd.DataFrame:
    """A row for each scenario. baselines: those that ran, by default all of the paper's."""
    truth = Truth(baselines)
    return pd.DataFrame(
        [score(truth, name, means, draws, **how) for name, means, how in scenarios(truth)]
    )


def main(
    draws: Annotated[int, typer.Option(help="simulated reproductions of each kind")] = DRAWS,
    out: Annotated[Path, typer.Option(help="folder of the results")] = Path(__file__).parent
    / "results",
) -> None:
    """Simulate the verdict on right and wrong reproductions, of all nine baselines and of resnet18
    alone."""
    tables = []
    for what, baselines in (("all nine", None), ("resnet18 alone", ["resnet18"])):
        tables.append(table_of(draws, baselines).assign(baselines=what, draws=draws, **RULE))
        print(tables[-1].to_string())
    path = out / f"reproductions-cpu-{date.today().isoformat()}.csv"
    write_text(path, pd.concat(tables).to_csv(index=False))
    print(path)


if __name__ == "__main__":
    typer.run(main)
