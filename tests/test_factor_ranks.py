"""Which factor wins: worked cases of pairs and ranks, and what is missing beside the numbers."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from diagvib.papers.diagvib6.factor_ranks import (
    factor_pairs,
    factor_ranks,
    factor_sentence,
    factor_tables,
)
from diagvib.report.dot_plots import pair_dots, rank_dots
from diagvib.scenes.digits.factors import FACTORS
from diagvib.studies.known_studies import SHIPPED

RUN = {"baseline": "m", "binding": "", "seed": 0, "ood_accuracy": np.nan, "id_accuracy": np.nan}


def runs_of(accuracies: dict[tuple[str, str], list[float]], without: float = 0.9) -> pd.DataFrame:
    """Runs of ZGO with these accuracies where the cue misleads, a value per sample; and of ZSO."""
    rows = [
        RUN
        | {"study": "zgo", "target": target, "cue": cue, "sample": sample, "ood_accuracy": value}
        for (target, cue), values in accuracies.items()
        for sample, value in enumerate(values)
    ]
    rows += [
        RUN
        | {"study": "zso", "target": target, "cue": "", "sample": sample, "id_accuracy": without}
        for target in {target for target, _ in accuracies}
        for sample in range(3)
    ]
    return pd.DataFrame(rows)


def tables_of(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {"asymmetry": factor_pairs(runs, SHIPPED), "ranking": factor_ranks(runs, SHIPPED)}


def test_factors_that_beat_all_later_ones_rank_in_their_order():
    order = {factor: number for number, factor in enumerate(FACTORS)}
    runs = runs_of(
        {pair: [float(order[pair[0]] < order[pair[1]])] * 3 for pair in permutations(FACTORS, 2)}
    )
    tables = tables_of(runs)
    ranks = tables["ranking"].set_index(["metric", "factor"])
    shares = [1, 0.8, 0.6, 0.4, 0.2, 0]
    assert list(ranks.loc["errors", "mean"]) == pytest.approx(shares)
    assert list(ranks.loc["wins", "mean"]) == pytest.approx(shares)
    assert list(ranks.loc["loss", "mean"]) == pytest.approx([share - 0.1 for share in shares])
    assert list(ranks.loc["errors", "rank_high"]) == [1, 2, 3, 4, 5, 6]
    pairs = tables["asymmetry"].set_index("metric")
    assert (pairs.loc["margin", "mean"] == 1).all() and (pairs.loc["asymmetry", "mean"] == 0).all()
    assert len(pairs.loc["margin"]) == 15 and (pairs.loc["margin", "low"] > 0.8).all()
    sentence = factor_sentence(tables, SHIPPED)
    assert "where position misleads, 100\N{NO-BREAK SPACE}% (≥ 87.5); where texture" in sentence


def test_both_may_mislead_more_often_than_they_are_recognised():
    pairs = factor_pairs(
        runs_of({("hue", "shape"): [0.6, 0.5, 0.7], ("shape", "hue"): [0.1, 0.2, 0.3]}), SHIPPED
    )
    row = pairs.set_index("metric")
    assert row.loc["margin", "mean"] == pytest.approx(0.4)
    asymmetry = row.loc["asymmetry"]
    assert asymmetry["mean"] == pytest.approx(-0.2) and asymmetry["low"] < -0.2 < asymmetry["high"]
    drawing = pair_dots(pairs, "ZGO")
    assert [label.get_text() for label in drawing.axes[0].get_yticklabels()] == ["hue > shape"]
    dots = sorted(line.get_xdata()[0] for line in drawing.axes[0].lines if len(line.get_xdata()))
    assert dots == pytest.approx([0.6, 0.8])


def test_what_is_missing_stands_beside_the_number():
    """A missing run takes its sample out, and a factor's rank is of the targets that ran."""
    runs = runs_of(
        {
            ("hue", "shape"): [0.8, np.nan, 0.6],
            ("shape", "hue"): [0.1, 0.2, 0.3],
            ("scale", "hue"): [0.2] * 3,
        }
    )
    tables = tables_of(runs)
    margin = tables["asymmetry"].set_index("metric").loc["margin"]
    assert margin["n"] == 2 and margin["expected"] == 3 and margin["mean"] == pytest.approx(0.5)
    ranking, pairs = factor_tables(tables, SHIPPED)
    assert pairs.notes == ["1 of 15 pairs were configured both ways round: m"]
    assert [row[-1] for row in ranking.rows] == ["2 of 5", "1 of 5"]
    assert "(n = 2 of 3)" in ranking.rows[1][3] and "(n = 2 of 3)" in pairs.rows[0][4]
    texts = [text.get_text() for text in rank_dots(tables["ranking"], "ZGO").axes[0].texts]
    assert texts == ["2 of 5 targets", "n=2/3, 1 of 5 targets"]


def test_a_gain_without_an_interval_stands_inside_the_figure():
    ranking = tables_of(runs_of({("hue", "shape"): [0.8], ("shape", "hue"): [0.1]}))["ranking"]
    losses = ranking["metric"].eq("loss")
    ranking = ranking.assign(mean=ranking["mean"].mask(losses, -0.3), n=1)
    assert ranking["low"].isna().all() and losses.any()
    axes = rank_dots(ranking, "ZGO").axes[0]
    assert axes.get_xlim()[0] < -0.3


def test_what_did_not_run_has_no_winner():
    tables = tables_of(runs_of({("hue", "shape"): [np.nan] * 3, ("shape", "hue"): [0.5] * 3}))
    _, pairs = factor_tables(tables, SHIPPED)
    assert pairs.rows[0][3:] == ["-", "-", "-", "-", "-", "-", "-"]
    drawing = pair_dots(tables["asymmetry"], "ZGO")
    assert "missing" in [text.get_text() for text in drawing.axes[0].texts]
    one_way = tables_of(runs_of({("hue", "shape"): [0.5] * 3}))
    assert one_way["asymmetry"].empty and len(list(factor_tables(one_way, SHIPPED))) == 1


def test_a_tie_has_no_winner_however_sums_were_rounded():
    """Per-class accuracies in another order have the same mean, apart from its last digit."""
    rising, falling = (0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3
    assert rising > falling
    pair = {("hue", "shape"): [rising, 0.7, 0.5], ("shape", "hue"): [falling, 0.5, 0.7]}
    tables = tables_of(runs_of(pair))
    ranks = tables["ranking"].set_index(["metric", "factor"])
    assert ranks.loc["errors", "rank"].tolist() == [1, 1]
    ranking, pairs = factor_tables(tables, SHIPPED)
    assert pairs.rows[0][3] == "-" and [row[-2] for row in ranking.rows] == ["0.5 of 1"] * 2


def test_a_sample_counts_with_the_mean_of_its_seeds():
    runs = runs_of({("hue", "shape"): [0.8, 0.6, 0.7], ("shape", "hue"): [0.1] * 3})
    second_seed = runs.assign(seed=1, ood_accuracy=runs["ood_accuracy"] + 0.1)
    pairs = factor_pairs(pd.concat([runs, second_seed]), SHIPPED).set_index("metric")
    assert pairs.loc["p_ij", "n"] == 3 and pairs.loc["p_ij", "mean"] == pytest.approx(0.75)
