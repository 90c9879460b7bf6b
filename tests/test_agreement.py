"""The joint statement, by simulation: equal distributions are reproduced, and no wrong reproduction
is."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from diagvib.foundation.seeding import named_generator
from diagvib.results.agreement import (
    MARKS,
    RULE,
    agreement_table,
    missed_marks,
    order_agreement,
    simulated_reproductions,
)

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import reproductions

DRAWS = 5


@pytest.fixture(scope="module")
def truth():
    return reproductions.Truth(["resnet18", "alexnet"])


def stated(truth, means, **how) -> pd.DataFrame:
    """The statements on resnet18, one per draw."""
    rng = named_generator("test", str(how), means is None or float(means.sum()))
    rows = pd.concat(
        [found for _, found in reproductions.simulate(truth, means, rng, DRAWS, **how)]
    )
    return rows[(rows["by"] == "baseline") & (rows["name"] == "resnet18")]


@pytest.mark.parametrize("how", [{}, {"same": False}, {"n": 3}], ids=str)
def test_equal_distributions_are_reproduced(truth, how):
    assert (stated(truth, truth.means, **how)["statement"] == "reproduced").all()


def test_two_samples_of_equal_distributions_tell_nothing(truth):
    assert (stated(truth, truth.means, n=2)["statement"] == "cannot tell").all()


WRONG = [
    "the next study's numbers",
    "CGO-1, 2, 3 as ZGO",
    "alexnet's numbers for resnet18",
    "ZSO's numbers everywhere",
    "noise, U(0,1), n = 2",
    "noise, U(0,1), n = 5",
]


@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_reproduction_fails(truth, name):
    means, how = next(
        (means, how) for found, means, how in reproductions.scenarios(truth) if found == name
    )
    assert (stated(truth, means, **how)["statement"] == "not reproduced").all()


def test_noise_of_our_own_buys_no_agreement(truth):
    rng = np.random.default_rng(0)
    for n in (2, 3, 5):
        tables = [table for table, _ in reproductions.simulate(truth, None, rng, 3, n=n)]
        assert (pd.concat(tables)["verdict"] == "agrees").mean() < 0.01


def test_the_order_asks_only_for_cells_that_the_paper_has_apart():
    paper = np.array([0.1, 0.15, 0.5, 0.9])
    assert order_agreement(paper, paper) == 1 and order_agreement(-paper, paper) == 0
    assert order_agreement(np.array([0.15, 0.1, 0.5, 0.9]), paper) == 1
    assert order_agreement(np.zeros(4), paper) == 0.5
    assert np.isnan(order_agreement(paper[:2], paper[:2]))


def test_a_number_that_misses_its_mark_is_named():
    at_the_mark = dict(MARKS)
    assert missed_marks(at_the_mark) == []
    assert missed_marks(at_the_mark | {"mean_difference": -0.05, "order": 0.8}) == [
        "mean difference",
        "order",
    ]


def test_nothing_compared_is_no_statement():
    assert not len(
        agreement_table(
            pd.DataFrame({"verdict": ["not run"], "baseline": ["asr"], "study": ["zgo"]})
        )
    )


def test_what_is_shipped_was_simulated_under_the_rule_as_it_is():
    shipped = simulated_reproductions()
    assert (shipped[list(RULE)] == pd.Series(RULE)).all(axis=None)
    newest = max((Path(__file__).parent.parent / "benchmarks/results").glob("reproductions-*.csv"))
    pd.testing.assert_frame_equal(shipped, pd.read_csv(newest))
    whole = shipped[shipped["baselines"] == "all nine"].set_index("reproduction")
    equal = whole[whole.index.str.startswith("equal") & ~whole.index.str.endswith("n = 2")]
    assert (
        equal[["overall: reproduced", "baseline: reproduced", "study: reproduced"]] >= 0.95
    ).all(axis=None)
    wrong = whole.loc[[name for name in WRONG if not name.startswith("alexnet")]]
    assert (wrong["overall: not reproduced"] == 1).all()
    assert whole.loc["alexnet's numbers for resnet18", "baseline: not reproduced"] == 1
