"""The joint statement, on simulated honest and wrong reproductions."""

import json

import pandas as pd
import pytest
import reproductions

from conftest import REPOSITORY
from diagvib.foundation.seeding import named_generator
from diagvib.papers.diagvib6.agreement import (
    DRAWS,
    SIGNIFICANCE,
    agreement_sentence,
    agreement_table,
    simulated_reproductions,
    simulated_sentence,
)
from diagvib.studies.known_studies import SHIPPED

ROOT = REPOSITORY
CONTRAST = next(iter(SHIPPED.contrasts))
LEAST_P = 1 / (1 + DRAWS)


@pytest.fixture(scope="module")
def truth():
    return reproductions.Truth(["resnet18"])


def simulated(truth, name: str, draws: int = 1) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Comparison and statement of a kind of reproduction, `draws` times."""
    means, manner = next(case[1:] for case in reproductions.scenarios(truth) if case[0] == name)
    rng = named_generator("test", name)
    return list(reproductions.simulate(truth, means, rng, draws, **manner))


def statements(truth, name: str, draws: int) -> list[str]:
    return [stated.loc[0, "statement"] for _, stated in simulated(truth, name, draws)]


@pytest.mark.parametrize("manner", ["same dataset samples", "other dataset samples"])
def test_there_is_no_evidence_against_honest_reproductions(truth, manner):
    assert statements(truth, f"honest: {manner}", 8).count("no evidence against") >= 7


def test_two_samples_cannot_tell_unless_they_are_noise(truth):
    name = "honest: same samples, n = 2"
    assert set(statements(truth, name, 3)) == {"cannot tell"}
    (_, stated), *_ = simulated(truth, name)
    message = "with fewer than 3 dataset samples, agreement with the paper cannot be judged"
    assert message in agreement_sentence(stated)
    assert statements(truth, "noise, U(0,1), n = 2", 1) == ["differs"]


@pytest.mark.parametrize(
    ("name", "worst"),
    [
        ("shape and scale swapped", "target s"),
        ("CGO-1, 2, 3 as ZGO", "study cgo-"),
        ("one sample's result copied five times", "spread smaller"),
    ],
)
def test_wrong_reproductions_differ_most_where_they_are_wrong(truth, name, worst):
    (_, stated), *_ = simulated(truth, name)
    assert stated.loc[0, "statement"] == "differs" and stated.loc[0, "p"] < SIGNIFICANCE
    text = agreement_sentence(stated)
    assert text.startswith(f"All compared cells together: p = {stated.loc[0, 'p']:.3f}, furthest")
    assert worst in text and text.endswith("; the results differ from the paper.")


def test_every_group_has_its_own_p_and_the_whole_the_smallest(truth):
    (comparison, stated), *_ = simulated(truth, "shape and scale swapped")
    assert set(stated["by"]) == {
        *("overall", "baseline", "study", "target", "spread"),
        *("study, target", "baseline, target"),
    }
    assert stated.loc[0, "p"] == stated["p"].min() >= LEAST_P
    hue = stated[stated["name"].str.contains("hue")]
    assert len(hue) > 5 and (hue["p"] > SIGNIFICANCE).all()
    pd.testing.assert_frame_equal(agreement_table(comparison), stated)


def cell(metric: str, target: str, **values) -> dict:
    equal = {"verdict": "agrees", "baseline": "resnet18", "study": "fgo-5", "n": 5}
    return {**equal, "metric": metric, "target": target, **values}


def test_differences_are_in_units_of_both_sides_spreads():
    """By hand. The accuracy: 0.06 apart, with standard deviations of 0.067 (as the paper prints its
    standard error, 0.03) and 0.045. The contrast: 0.03 apart, with 0.05 (printed) and 0.045."""
    spreads = {"ours": 0.56, "stderr": 0.02, "difference": 0.06}
    cells = [
        cell("ood_accuracy", "hue", paper=0.5, paper_stderr=0.03, **spreads),
        cell(CONTRAST, "shape", paper=0.53, paper_stderr=0.05 / 5**0.5, **spreads),
    ]
    rows = agreement_table(pd.DataFrame(cells)).query("by == 'target'").set_index("name")["score"]
    # Variances between samples: the paper's, with that of rounding, and ours.
    hue = (0.03**2 * 5 + 0.01**2 * 5 / 12 + 0.02**2 * 5) / 2
    shape = (0.05**2 + 0.01**2 / 12 + 0.02**2 * 5) / 2
    assert rows["hue"] == pytest.approx(0.06 / (hue * 2 / 5 + 1e-4) ** 0.5)
    assert rows["shape"] == pytest.approx(0.03 / (shape * 2 / 5 + 1e-4) ** 0.5)


def test_an_honest_reproduction_may_be_offset_but_not_its_contrasts_which_the_paper_rounds():
    """Without any spread, 0.4 of a hundredth off what can be printed."""
    equals = {"paper": 0.5, "paper_stderr": 0.0, "ours": 0.508, "stderr": 0.0, "difference": 0.008}
    cells = [cell("ood_accuracy", "hue", **equals), cell(CONTRAST, "shape", **equals)]
    defaults = (
        agreement_table(pd.DataFrame(cells)).query("by == 'target'").set_index("name")["usual"]
    )
    assert defaults["hue"] > 1.2 and 0.4 < defaults["shape"] < 0.8


def test_what_is_shipped_and_on_the_page_was_simulated_under_the_rule_as_it_is():
    shipped, page = simulated_reproductions(), (ROOT / "docs/agreement.md").read_text()
    assert (shipped[list(reproductions.RULE)] == pd.Series(reproductions.RULE)).all(axis=None)
    newest = max((ROOT / "benchmarks/results").glob("reproductions-*.csv"))
    pd.testing.assert_frame_equal(shipped, pd.read_csv(newest))
    assert reproductions.markdown(shipped) in page
    assert simulated_sentence().removesuffix(" (docs/agreement.md).") in " ".join(page.split())
    honest = shipped[shipped["reproduction"].str.startswith("honest")]
    assert (honest["differs"] * honest["draws"]).sum() / honest["draws"].sum() <= SIGNIFICANCE
    assert honest["cells differs"].max() <= 0.05


def test_the_page_says_what_shows_that_runs_were_chosen():
    """benchmarks/chosen_runs.py."""
    result = json.loads((ROOT / "benchmarks/results/chosen-runs-cpu-2026-11-29.json").read_text())
    rows = pd.DataFrame(result["rows"])
    words = {
        "the best seed of each run": "the best of {} seeds of each run",
        "the best reproduction": "the best of {} complete reproductions",
        "the best dataset samples": "the best 5 of {} dataset samples",
    }
    page = (ROOT / "docs/agreement.md").read_text()
    for (retained, count), cases in rows[rows["of"] > 1].groupby(["kept", "of"]):
        name = words[retained].format(5 * count if "samples" in retained else count)
        gained = ", ".join(f"{value:.1f}" for value in cases["gained"])
        signs = zip(cases["mean too high"], cases["spread too small"], strict=True)
        shares = (f"{100 * high:.0f} / {100 * small:.0f} %" for high, small in signs)
        assert f"| {name} | {gained} | {' | '.join(shares)} |" in page
