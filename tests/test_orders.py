"""Orders compared with the paper's and between baselines: known correlations, exact tests, winners
of pairs, closeness."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import simulated_designs as designs
from diagvib.report.page import write_report
from diagvib.report.page_tables import order_rows
from diagvib.results import orders
from diagvib.results.compare import compare_results, compare_sentence
from diagvib.results.known_studies import SHIPPED
from diagvib.results.orders import (
    against_paper,
    closeness_table,
    exchange_p,
    factor_orders,
    order_interval,
    pair_matrices,
    pair_orders,
    pair_winners,
    rank_scores,
)
from diagvib.results.shortcut import contrasts_table, metrics_table
from diagvib.results.tables import read_tables, tabulate
from diagvib.results.verdicts import comparison_table
from diagvib.scenes.digits.factors import FACTORS
from synthetic_runs import expected_runs, write_run

# The paper's FAAvg of resnet18; on ZGO no two are equal.
PAPER = {
    "zgo": dict(zip(FACTORS, (1.0, 0.74, 0.57, 0.33, 0.41, 0.02), strict=True)),
    "cgo-1": dict(zip(FACTORS, (1.0, 0.83, 0.71, 0.47, 0.51, 0.08), strict=True)),
}
PAIRS = list(permutations(FACTORS, 2))


def faavg(values: dict[str, dict[str, float]], cues: int = 5) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "study": study,
                "baseline": "small_cnn",
                "target": target,
                "metric": "faavg",
                "mean": mean,
                "n": 1,
                "cues": cues,
            }
            for study, means in values.items()
            for target, mean in means.items()
        ]
    )


def order_of(values: dict[str, dict[str, float]]) -> list[tuple[str, float, float]]:
    return [(r.study, r.spearman, r.p) for r in factor_orders(faavg(values)).itertuples()]


def test_the_same_order_is_one_and_the_reversed_minus_one():
    reversed_order = {factor: 1 - value for factor, value in PAPER["zgo"].items()}
    assert order_of({"zgo": PAPER["zgo"]}) == [("zgo", pytest.approx(1), pytest.approx(1 / 720))]
    assert order_of({"zgo": reversed_order}) == [("zgo", pytest.approx(-1), 1)]


def test_ties_share_their_rank():
    """Five alike and the last below: ranks 4, 4, 4, 4, 4, 1 against 6 to 1 give 7.5 / sqrt(7.5 *
    17.5); the lowest is the lowest in a sixth of all orders."""
    ties = dict.fromkeys(FACTORS, 0.9) | {"texture": 0.1}
    assert order_of({"zgo": ties}) == [
        ("zgo", pytest.approx(7.5 / (7.5 * 17.5) ** 0.5), pytest.approx(1 / 6))
    ]
    assert not order_of({"zgo": dict.fromkeys(FACTORS, 0.5)})  # no order at all


def test_the_mean_over_studies_exchanges_the_factors_of_all_at_once():
    turned = {factor: 1 - value for factor, value in PAPER["cgo-1"].items()}
    alike, against = order_of(PAPER), order_of({**PAPER, "cgo-1": turned})
    assert alike[-1] == ("", pytest.approx(1), pytest.approx(1 / 720))
    assert against[-1][:2] == ("", pytest.approx(0))
    table = factor_orders(faavg(PAPER))
    assert list(table["studies"]) == [1, 1, 2] and table["low"].notna().tolist() == [
        False,
        False,
        True,
    ]


def test_averages_over_fewer_cues_and_few_factors_have_no_order():
    assert not len(factor_orders(faavg(PAPER, cues=2)))
    assert not order_of({"zgo": {factor: PAPER["zgo"][factor] for factor in FACTORS[:3]}})
    some = {
        "zgo": PAPER["zgo"],
        "cgo-1": {factor: PAPER["cgo-1"][factor] for factor in FACTORS[:5]},
    }
    assert [study for study, *_ in order_of(some)] == [
        "zgo",
        "cgo-1",
    ]  # no mean over unequal studies


def test_the_interval_is_fishers():
    end = np.tanh(1.959964 / 3**0.5)
    assert order_interval(0, 6) == (pytest.approx(-end, abs=1e-6), pytest.approx(end, abs=1e-6))
    low, high = order_interval(1, 6)
    assert 0.5 < low < 0.7 and high == 1
    assert order_interval(-1, 6) == (-1, pytest.approx(-low))


def test_p_of_pairs_is_that_of_all_exchanges():
    generator, names = np.random.default_rng(0), np.arange(4)
    where = ~np.eye(4, dtype=bool)
    first, second = generator.integers(0, 5, (2, 4, 4)) / 4  # with ties

    def alike(order):
        return spearmanr(first[where], second[np.ix_(order, order)][where]).statistic

    every = [alike(list(order)) for order in permutations(names)]
    scores = rank_scores(first, second, where)
    assert (scores[0] * scores[1]).sum() == pytest.approx(alike(names))
    assert exchange_p(*scores) == pytest.approx(
        np.mean([one >= alike(names) - 1e-9 for one in every])
    )
    assert np.isnan(exchange_p(np.eye(8), np.eye(8)))


def test_tests_keep_their_level_and_the_interval_holds_the_truth():
    """A small version of `benchmarks/simulated_statistics.py orders`."""
    generator = np.random.default_rng(1)
    chance = [
        designs.scored_pairs(designs.alike_pairs(generator, 0, 0, 0.3, 6)) for _ in range(150)
    ]
    chance += [
        designs.scored_factors(designs.alike_factors(generator, 0, 0.1, 2, 6)) for _ in range(150)
    ]
    p = np.array([orders.order(scored)["p"] for scored in chance])
    assert (p <= 0.05).mean() < 0.1 and (p <= 0.5).mean() == pytest.approx(0.5, abs=0.12)
    alike = (
        designs.scored_factors(designs.alike_factors(generator, 0.8, 0.1, 2, 6)) for _ in range(150)
    )
    held = [
        low <= 0.76 <= high
        for low, high in (order_interval(orders.order(one)["spearman"], 6) for one in alike)
    ]
    assert np.mean(held) > 0.92


def runs_of(accuracies: dict[tuple[str, str], list[float]], study: str = "zgo") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "study": study,
                "baseline": "small_cnn",
                "target": target,
                "cue": cue,
                "sample": sample,
                "ood_accuracy": value,
                "status": "ok",
                "comparable": True,
                "id_accuracy": 0.99,
            }
            for (target, cue), values in accuracies.items()
            for sample, value in enumerate(values)
        ]
    )


def leading(values: dict[str, float]) -> dict[tuple[str, str], list[float]]:
    """P_ij that are i's value minus j's, on a scale from 0 to 1."""
    return {(i, j): [(1 + values[i] - values[j]) / 2] for i, j in PAIRS}


def p_table(accuracies: dict) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "study": "zgo",
                "baseline": "small_cnn",
                "target": target,
                "cue": cue,
                "group": "ood",
                "mean": values[0],
                "n": 1,
            }
            for (target, cue), values in accuracies.items()
        ]
    )


def test_pairs_are_ordered_as_the_papers_faavg_or_in_reverse():
    own = pair_matrices(p_table(leading(PAPER["zgo"])))
    turned = pair_matrices(
        p_table(leading({factor: -value for factor, value in PAPER["zgo"].items()}))
    )
    row = against_paper(own).iloc[0]
    assert (row["pairs"], row["like"], row["paper"]) == (30, "resnet18", True)
    assert row["spearman"] == pytest.approx(1) and row["p"] == pytest.approx(1 / 720)
    assert against_paper(turned).iloc[0]["spearman"] == pytest.approx(-1)
    assert pair_orders(own, turned).iloc[0]["spearman"] == pytest.approx(-1)
    assert not len(pair_orders(own, own))  # one baseline has nothing to be compared with


def test_pairs_that_did_not_all_run_have_no_order():
    some = leading(PAPER["zgo"])
    del some["hue", "shape"]
    assert not pair_matrices(p_table(some))


def test_the_winner_of_a_pair_is_judged_by_the_paper():
    table = pair_winners(
        runs_of(
            {
                ("position", "hue"): [0.9, 0.8, 0.9],
                ("hue", "position"): [0.1, 0.2, 0.1],  # 0.9, 0.8, 0.9
                ("hue", "texture"): [0.2, 0.2, 0.3],
                ("texture", "hue"): [0.9, 0.9, 0.8],  # 0.15, 0.15, 0.25
                ("scale", "shape"): [0.9, 0.1, 0.5],
                ("shape", "scale"): [0.3, 0.7, 0.5],  # 0.8, 0.2, 0.5
                ("lightness", "shape"): [0.9],
            }
        )
    ).set_index(["first", "second"])
    assert len(table) == 3  # the pair of lightness and shape ran one way only
    assert table["verdict"].tolist() == ["agrees", "differs", "undecided"]
    first = table.loc[("position", "hue")]
    assert (
        first["share"] == pytest.approx(0.8667, abs=1e-4)
        and first["winner"] == first["expected"] == "position"
    )
    # t with 2 degrees of freedom
    assert first["share"] - first["low"] == pytest.approx(
        4.3027 * np.std([0.9, 0.8, 0.9], ddof=1) / 3**0.5, rel=1e-4
    )
    assert table.loc[("hue", "texture"), "winner"] == "texture"
    assert table.loc[("scale", "shape"), "reason"] == "neither wins"


def test_a_single_sample_has_no_interval_and_an_equal_number_no_winner(monkeypatch):
    runs = runs_of(leading(PAPER["zgo"]))
    table = pair_winners(runs)
    assert len(table) == 15 and (table["verdict"] == "agrees").all() and table["low"].isna().all()
    monkeypatch.setattr(orders, "paper_faavg", lambda *_: pd.Series(dict.fromkeys(FACTORS, 0.5)))
    assert (pair_winners(runs)["reason"] == "the paper prints the same for both").all()
    assert not len(pair_winners(runs.assign(study="cgo-1")))  # no headline's study


def close(accuracies: dict) -> pd.DataFrame:
    runs = runs_of(accuracies)
    metrics, contrasts = metrics_table(runs), contrasts_table(runs)
    return closeness_table(
        metrics, contrasts, runs, comparison_table(metrics, contrasts, runs, {})
    ).set_index(["target", "metric"])


def test_one_sample_is_close_or_apart_by_the_papers_spread():
    """FAAvg of position: 100 +- 0, of lightness 57 +- 4: t with four degrees of freedom, from six
    fifths of five times the squared standard error, and the rounding."""
    cues = {
        factor: [cue for cue in FACTORS if cue != factor]
        for factor in ("position", "lightness", "texture")
    }
    own = {"position": 0.99, "lightness": 0.6, "texture": 0.5}
    table = close({(factor, cue): [own[factor]] for factor in own for cue in cues[factor]})
    faavg = table.xs("faavg", level="metric")
    assert faavg["closeness"].to_dict() == {
        "position": "close",
        "lightness": "cannot tell",
        "texture": "apart",
    }
    assert faavg.loc["lightness", "uncertainty"] == pytest.approx(
        2.7764 * ((0.04**2 + 0.01**2 / 12) * 6) ** 0.5 + 0.005, rel=1e-4
    )
    assert set(faavg["like"]) == {"resnet18"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One sample of two models on all pairs of ZGO, each in its own folder; a third one holds a
    single run of ZSO."""
    root = tmp_path_factory.mktemp("orders")
    bindings = ["-".join(pair) for pair in PAIRS]
    for name in ("small_cnn", "resnet18"):
        for run in expected_runs([name], ["zgo"], bindings, samples=1):
            write_run(root / name / "runs", run)
    write_run(
        root / "little" / "runs", expected_runs(["small_cnn"], ["zso"], ["shape-hue"], samples=1)[0]
    )
    return root


def test_the_page_and_the_tables_say_what_can_be_told_of_orders(root):
    folder, expected = (
        root / "small_cnn",
        expected_runs(["small_cnn"], ["zgo"], ["-".join(pair) for pair in PAIRS], 1),
    )
    settings = {"counts": {"train": 4374}, "samples": 1}
    tabulate(folder / "runs", folder / "tables", expected, settings)
    write_report(folder / "tables", folder / "figures", folder / "report.html", settings)
    told = order_rows(read_tables(folder / "tables"), SHIPPED)
    page, markdown = (
        (folder / "report.html").read_text(),
        (folder / "tables" / "tables.md").read_text(),
    )
    assert 'id="orders"' in page and "## In which order?" in markdown
    assert any(
        "15 decided pairs are won by" in sentence and "one dataset sample" in sentence
        for sentence in told["sentences"]
    )
    assert any("of 12 numbers of small_cnn" in sentence for sentence in told["sentences"])
    assert all(sentence in markdown for sentence in told["sentences"])


def test_nothing_is_said_where_nothing_applies(root):
    folder, expected = (
        root / "little",
        expected_runs(["small_cnn"], ["zso"], ["shape-hue"], samples=2),
    )
    tabulate(folder / "runs", folder / "tables", expected[1:], {})
    write_report(folder / "tables", folder / "figures", folder / "report.html", {})
    assert order_rows(read_tables(folder / "tables"), SHIPPED) is None
    assert 'id="orders"' not in (folder / "report.html").read_text()


def test_two_folders_are_compared_by_the_order_of_their_pairs(root):
    sentence = compare_sentence(compare_results(root / "small_cnn", root / "resnet18"))
    assert (
        "A compared with B, ZGO: over the 30 pairs of target and cue, P_ij of small_cnn and that of resnet18 have "
        "a rank correlation of 1.00"
    ) in sentence
