"""Which factor wins: every pair of factors both ways round, and the factors ranked by how often, and
by how much, they mislead. Described, not tested."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from diagvib.results.cells import mean_over_seeds
from diagvib.results.metric_sets.metric_set import NUMBERS, numbers
from diagvib.results.reader_tables import (
    Frames,
    Table,
    interval,
    of_samples,
    points,
    whole_percent,
)
from diagvib.results.uncertainty import FEWEST, estimate, sample_interval
from diagvib.studies.known_studies import KnownStudies
from diagvib.studies.metric_needs import ID, OOD

TITLE = "Which factor wins"
# Accuracies that differ in further digits are equal: their sums were rounded otherwise.
_DIGITS = 12
PAIR = ["study", "baseline", "factor", "opponent"]
RANK = ["rank", "rank_low", "rank_high"]
PAIR_COLUMNS = [*PAIR, "metric", *NUMBERS]
RANK_COLUMNS = [*PAIR[:3], "metric", *NUMBERS, *RANK, "bindings", "possible"]
_ABOUT = (
    "P_ij is the accuracy on factor i where factor j misleads. Factor i wins against j if P_ij is greater than P_ji, by "
    "that margin. Asymmetry is P_ij - (1 - P_ji): 0 if one factor wins what the other loses, negative if both mislead "
    "more often than they are recognised. Described, not tested: 95 % intervals over the {samples}, none for fewer than "
    f"{FEWEST}, are not corrected for the number of pairs."
)
_RANKING = (
    "Errors: predictions that are wrong where the factor misleads, whichever class they name. Points lost: accuracy on "
    "the target without a shortcut, less that where the factor misleads. Both are means over the targets; a sample "
    "counts if all of them ran. In brackets, the range of ranks in single {samples}. Pairs won: mean over the {samples}."
)


def cue_accuracies(runs: pd.DataFrame, known_studies: KnownStudies) -> Iterator[tuple]:
    """For each study and baseline with one cue: their names, the scene's factors, and by (target,
    cue) two arrays float[samples]: accuracy where the cue misleads, and without a shortcut (NaN
    where a run is missing or not configured)."""
    runs = mean_over_seeds(runs, [f"{ID}_accuracy", f"{OOD}_accuracy"])
    headline = known_studies.headline(runs["study"])
    scenes = {name: known_studies.studies[name].scene for name in runs["study"].unique()}
    control = runs[runs["study"] == (headline.without if headline else "")].set_index("sample")
    keys = [control["study"].map(scenes), "baseline", "target"]
    without = dict(iter(control.groupby(keys)[f"{ID}_accuracy"]))
    for (study, baseline), part in runs[runs["cue"] != ""].groupby(
        ["study", "baseline"], sort=False
    ):
        factors = known_studies.factors([study])
        table = part[part["cue"].isin(factors)].pivot(
            index="sample", columns=["target", "cue"], values=f"{OOD}_accuracy"
        )
        accuracy = dict(zip(table, table.to_numpy(float).round(_DIGITS).T, strict=True))
        missing = pd.Series(np.nan, table.index)
        reference = {
            cell: without.get((scenes[study], baseline, cell[0]), missing)
            .reindex(table.index)
            .to_numpy(float)
            for cell in table
        }
        yield study, baseline, factors, accuracy, reference


def factor_pairs(runs: pd.DataFrame, known_studies: KnownStudies) -> pd.DataFrame:
    """PAIR_COLUMNS: of each two factors that ran both ways, the first in the scene's order as
    `factor`. Metrics: p_ij and p_ji, the accuracy on the factor and on its opponent where the
    other misleads; margin, their difference; asymmetry, their sum less 1. A sample counts if it has
    both runs."""
    rows = []
    for study, baseline, factors, accuracy, _ in cue_accuracies(runs, known_studies):
        for pair in combinations(factors, 2):
            if {pair, pair[::-1]} <= {*accuracy}:
                both = np.stack([accuracy[pair], accuracy[pair[::-1]]])
                both[:, np.isnan(both).any(axis=0)] = np.nan
                margin, total = both[0] - both[1], both.sum(axis=0)
                ends = sample_interval(both)
                metrics = {
                    "p_ij": (both[0], None),
                    "p_ji": (both[1], None),
                    "margin": (margin, sample_interval(*both)),
                    "asymmetry": (total - 1, (ends[0] - 1, ends[1] - 1)),
                }
                rows += [
                    (study, baseline, *pair, metric, *numbers(estimate(values), limits).values())
                    for metric, (values, limits) in metrics.items()
                ]
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def factor_ranks(runs: pd.DataFrame, known_studies: KnownStudies) -> pd.DataFrame:
    """RANK_COLUMNS: of each factor that was a cue. Metrics: errors and loss where it misleads, means
    over the targets; wins, the share of its pairs in which it is recognised better than its
    opponent (a tie counts half). rank: 1 is the greatest mean; rank_low, rank_high: the least and
    the greatest in a single sample; bindings: targets, or pairs, of the possible ones."""
    rows = []
    for study, baseline, factors, accuracy, reference in cue_accuracies(runs, known_studies):
        parts: dict[str, dict[str, tuple]] = {"errors": {}, "loss": {}, "wins": {}}
        for factor in factors:
            cells = [cell for cell in accuracy if cell[1] == factor]
            pairs = [cell for cell in cells if cell[::-1] in accuracy]
            if cells:
                misled, without = (
                    np.mean([values[cell] for cell in cells], axis=0)
                    for values in (accuracy, reference)
                )
                parts["errors"][factor] = 1 - misled, None, len(cells)
                parts["loss"][factor] = without - misled, (without, misled), len(cells)
            if pairs:
                margins = [accuracy[cell[::-1]] - accuracy[cell] for cell in pairs]
                parts["wins"][factor] = np.sign(margins).mean(axis=0) / 2 + 0.5, None, len(pairs)
        for metric, values in parts.items():
            ranks = _ranks(pd.DataFrame({name: part[0] for name, part in values.items()}))
            for factor, (sample_values, terms, count) in values.items():
                ends = sample_interval(*terms) if terms else None
                row = (
                    study,
                    baseline,
                    factor,
                    metric,
                    *numbers(estimate(sample_values), ends).values(),
                )
                rows.append((*row, *ranks[factor], count, len(factors) - 1))
    return pd.DataFrame(rows, columns=RANK_COLUMNS)


def _ranks(values: pd.DataFrame) -> dict[str, tuple]:
    """RANK of each factor. values: float[samples, factors]."""
    look = {"ascending": False, "method": "min"}
    sample_ranks = values.round(_DIGITS).dropna().rank(axis=1, **look)
    table = [values.mean().round(_DIGITS).rank(**look), sample_ranks.min(), sample_ranks.max()]
    return {factor: tuple(column[factor] for column in table) for factor in values}


def ranked_study(frame: pd.DataFrame, known_studies: KnownStudies) -> str:
    """The study that readers see: the headline's with a shortcut, or else the first. frame: of
    `factor_ranks` or `factor_pairs`."""
    headline, studies = known_studies.headline(frame["study"]), frame["study"].unique()
    return headline.shortcut if headline and headline.shortcut in studies else studies[0]


def factor_tables(tables: Frames, known_studies: KnownStudies) -> Iterator[Table]:
    """Of `ranked_study` alone; the tidy tables have all."""
    ranks, pairs = tables["ranking"], tables["asymmetry"]
    for frame, title, lines in (
        (ranks, "factors by how often they mislead", _rank_lines),
        (pairs, "pairs of factors, both ways round", _pair_lines),
    ):
        if len(frame):
            study = ranked_study(frame, known_studies)
            table = lines(frame[frame["study"] == study])
            notes = _unpaired(ranks[ranks["study"] == study]) if frame is pairs else []
            yield Table(
                f"{known_studies.title(study)}: {title}",
                *table,
                notes,
                TITLE,
                [_ABOUT, _RANKING],
                folded=True,
            )


def _rank_lines(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    heads = ["baseline", "rank", "factor", "errors, %", "95 % interval", "points lost"]
    heads += ["95 % interval", "pairs won", "targets"]
    lines = []
    for baseline, part in frame.groupby("baseline", sort=False):
        metrics = {name: rows.set_index("factor") for name, rows in part.groupby("metric")}
        errors = metrics["errors"].sort_values("rank", kind="stable")
        for factor, row in errors.iterrows():
            loss = metrics["loss"].loc[factor]
            wins = metrics.get("wins", errors[:0])
            lines.append(
                [
                    baseline,
                    rank_text(row),
                    factor,
                    of_samples(row),
                    interval(row["low"], row["high"]),
                    points(loss["mean"]),
                    interval(loss["low"], loss["high"], change=True) if loss["n"] else "-",
                    wins_text(wins.loc[factor]) if factor in wins.index else "-",
                    f"{row['bindings']} of {row['possible']}",
                ]
            )
    return heads, lines


def rank_text(row: pd.Series) -> str:
    """`2 (1 to 3)`, with the range over the samples; `-` if nothing ran."""
    low, rank, high = row["rank_low"], row["rank"], row["rank_high"]
    spread = f" ({low:.0f} to {high:.0f})" if low < high else ""
    return "-" if np.isnan(rank) else f"{rank:.0f}{spread}"


def wins_text(row: pd.Series) -> str:
    """`4.7 of 5` pairs."""
    return f"{row['mean'] * row['bindings']:.3g} of {row['bindings']}" if row["n"] else "-"


def _pair_lines(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    heads = ["baseline", "i", "j", "wins", "P_ij", "P_ji", "margin", "95 % interval"]
    heads += ["asymmetry", "95 % interval"]
    lines = []
    for (baseline, factor, opponent), rows in frame.groupby(PAIR[1:], sort=False):
        metrics = {row["metric"]: row for row in rows.to_dict("records")}
        margin = round(metrics["margin"]["mean"], _DIGITS)
        winner = factor if margin > 0 else opponent if margin < 0 else "-"
        line = [baseline, factor, opponent, winner]
        line += [of_samples(metrics[name]) for name in ("p_ij", "p_ji")]
        for name in ("margin", "asymmetry"):
            row = metrics[name]
            text = interval(row["low"], row["high"], change=True) if row["n"] else "-"
            line += [points(row["mean"]), text]
        lines.append(line)
    return heads, lines


def _unpaired(ranks: pd.DataFrame) -> list[str]:
    """Of how many pairs the table is, if some did not run both ways. ranks: of one study."""
    wins = ranks[ranks["metric"] == "wins"].groupby("baseline", sort=False)
    pairs = ranks.groupby("baseline", sort=False)["possible"].first()
    counts = wins["bindings"].sum().reindex(pairs.index, fill_value=0) // 2
    possible = pairs * (pairs + 1) // 2
    lacking = counts[counts < possible]
    return [
        f"{count} of {possible[names.index[0]]} pairs were configured both ways round: "
        f"{', '.join(names.index)}"
        for count, names in lacking.groupby(lacking)
    ]


def factor_sentence(tables: Frames, known_studies: KnownStudies) -> str:
    """Which factors of the first baseline mislead most and least often; empty where nothing
    was measured."""
    ranks = tables["ranking"]
    measured = ranks[(ranks["metric"] == "errors") & (ranks["n"] > 0)]
    if measured.empty:
        return ""
    study = ranked_study(measured, known_studies)
    measured = measured[measured["study"] == study]
    baseline, count = measured["baseline"].iloc[0], measured["baseline"].nunique()
    errors = measured[measured["baseline"] == baseline].sort_values("rank", kind="stable")
    ends = errors.iloc[[0, -1][: len(errors)]].to_dict("records")
    texts = [f"where {row['factor']} misleads, {_errors_text(row)}" for row in ends]
    subject = f"{baseline} (first of {count} baselines)" if count > 1 else baseline
    return f"{subject}, {known_studies.title(study)}, measured errors: {'; '.join(texts)}."


def _errors_text(row: dict) -> str:
    notes = [interval(row["low"], row["high"])] if row["low"] == row["low"] else []
    notes += [f"n = {row['n']} of {row['expected']}"] if row["n"] < row["expected"] else []
    if row["bindings"] < row["possible"]:
        notes.append(f"{row['bindings']} of {row['possible']} targets")
    note = f" ({'; '.join(notes)})" if notes else ""
    return f"{whole_percent(row['mean'])}{note}"
