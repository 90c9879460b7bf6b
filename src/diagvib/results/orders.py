"""Orders: what runs under another protocol can have in common with the paper, and two baselines
with each other.

A correlation is Spearman's. Its p is exact: the share of all permutations of the factors' names on
one side under which both sides are at least as alike. Names are permuted in all studies, rows and
columns at once (Mantel 1967; Hubert and Schultz 1976), since numbers that share a factor are not
independent. Coverage and false alarms: benchmarks/README.md.
"""

from functools import cache
from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
from scipy.special import ndtri

from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.paper import PAPER_CUES, read_paper_tables
from diagvib.results.reference import FIRST, LEAST_FACTORS
from diagvib.results.uncertainty import LEVEL, sample_interval
from diagvib.results.verdicts import (
    COMPARED,
    KEYS,
    LEAST_SAMPLES,
    MARGIN,
    assumed_uncertainty,
    comparison_table,
)

METRICS = ("faavg", "famin")
ORDER = ["spearman", "p", "low", "high"]
FACTOR_ORDERS = ["study", "baseline", "metric", "like", "studies", "factors", *ORDER]
PAIR_ORDERS = ["study", "baseline", "like", "paper", "factors", "pairs", *ORDER]
PAIR_WINNERS = [
    "study",
    "baseline",
    "like",
    "first",
    "second",
    "p_first",
    "p_second",
    "share",
    "low",
    "high",
    "n",
    "winner",
    "expected",
    "verdict",
    "reason",
]
CLOSENESS = [*KEYS, "like", "ours", "n", "paper", "difference", "uncertainty", "closeness"]
# Other names for the verdicts, where numbers are shown only for orientation.
CLOSE = dict(zip(COMPARED, ("close", "apart", "cannot tell"), strict=True))
# More factors have too many permutations to try them all.
_MOST_FACTORS = 7


def order_tables(
    runs: pd.DataFrame, made: dict[str, pd.DataFrame], comparison: pd.DataFrame, known: KnownStudies
) -> dict[str, pd.DataFrame]:
    """`factor_orders`, `pair_orders`, `pair_winners` and `closeness`, each without rows where it
    does not apply.

    runs: the frame of `read_runs.collect_runs`; made: tables of `metric_sets.metric_tables`;
    comparison: of `verdicts.comparison_table`.
    """
    matrices = pair_matrices(made["p_matrix"], known)
    return {
        "factor_orders": factor_orders(made["metrics"]),
        "pair_winners": pair_winners(runs, known),
        "pair_orders": pd.concat(
            [pair_orders(matrices, matrices), against_paper(matrices)], ignore_index=True
        ),
        "closeness": closeness_table(made["metrics"], made["contrasts"], runs, comparison),
    }


@cache
def paper_model(baseline: str) -> str:
    """The paper's model that a baseline is compared with: itself, or the one that represents
    all."""
    return baseline if baseline in set(read_paper_tables()["baseline"]) else FIRST


def factor_orders(metrics: pd.DataFrame) -> pd.DataFrame:
    """How alike ours and the paper order the target factors, by study; rows without a study are the
    mean over studies.

    metrics: of `shortcut.metrics_table`; only averages over the paper's cues, at least
    LEAST_FACTORS of them, not all equal. The mean is over the studies that have all factors of the
    most complete one, `studies` of them, and has the interval of `order_interval`.
    """
    paper = read_paper_tables().pivot(
        index=["baseline", "metric", "study"], columns="target", values="paper_mean"
    )
    whole = metrics[
        metrics["metric"].isin(METRICS) & metrics["cues"].isin((0, PAPER_CUES)) & (metrics["n"] > 0)
    ]
    rows: list[dict] = []
    for (baseline, metric), own in whole.groupby(["baseline", "metric"], sort=False):
        head = {"baseline": baseline, "metric": metric, "like": paper_model(baseline)}
        scored = {}
        for study, ours in own.groupby("study", sort=False):
            if (head["like"], metric, study) in paper.index:
                ours = ours.set_index("target")["mean"].sort_index()
                both = rank_scores(
                    np.diag(ours),
                    np.diag(paper.loc[(head["like"], metric, study), ours.index]),
                    np.eye(len(ours), dtype=bool),
                )
                if both is not None:
                    scored[study] = (tuple(ours.index), both)
        rows += [
            {**head, "study": study, "studies": 1, "factors": len(factors), **order([both])}
            for study, (factors, both) in scored.items()
        ]
        most = max((factors for factors, _ in scored.values()), key=len, default=())
        common = [both for factors, both in scored.values() if factors == most]
        if len(common) > 1:
            rows.append(
                {
                    **head,
                    "study": "",
                    "studies": len(common),
                    "factors": len(most),
                    **order(common),
                    **_interval(common),
                }
            )
    return pd.DataFrame(rows, columns=FACTOR_ORDERS)


def pair_matrices(
    p: pd.DataFrame, known: KnownStudies = SHIPPED
) -> dict[tuple[str, str], pd.DataFrame]:
    """P_ij by (study, baseline): rows targets, columns cues, of studies with one cue where every
    pair of their factors ran in both roles. p: the table of `shortcut.p_matrix`."""
    one = [
        name
        for name in p["study"].unique()
        if name in known.studies and len(known.studies[name].cues) == 1
    ]
    ran = p[(p["group"] == "ood") & (p["n"] > 0) & p["study"].isin(one)]
    found = {}
    for key, own in ran.groupby(["study", "baseline"], sort=False):
        matrix = (
            own.pivot(index="target", columns="cue", values="mean")
            .sort_index(axis=0)
            .sort_index(axis=1)
        )
        if list(matrix.index) == list(matrix.columns) and len(own) == len(matrix) * (
            len(matrix) - 1
        ):
            found[key] = matrix
    return found


def pair_orders(first: dict, second: dict) -> pd.DataFrame:
    """How alike two baselines order the ordered pairs of a study: the same matrices twice, or those
    of two folders.

    first, second: of `pair_matrices`. Only where both have the same factors.
    """
    asked = combinations(first, 2) if first is second else product(first, second)
    return _pair_table([(*a, b[1], False, first[a], second[b]) for a, b in asked if a[0] == b[0]])


def against_paper(matrices: dict) -> pd.DataFrame:
    """The same against the order that the paper's FAAvg gives: P_ij compared with FAAvg_i minus
    FAAvg_j of the same study."""
    rows = []
    for (study, baseline), matrix in matrices.items():
        theirs = paper_faavg(study, paper_model(baseline)).reindex(matrix.index).to_numpy()
        if not np.isnan(theirs).any():
            lead = pd.DataFrame(np.subtract.outer(theirs, theirs), matrix.index, matrix.columns)
            rows.append((study, baseline, paper_model(baseline), True, matrix, lead))
    return _pair_table(rows)


def _pair_table(wanted: list[tuple]) -> pd.DataFrame:
    rows = []
    for *head, a, b in wanted:
        both = (
            rank_scores(a.to_numpy(), b.to_numpy(), ~np.eye(len(a), dtype=bool))
            if a.index.equals(b.index)
            else None
        )
        if both is not None:
            rows.append(
                dict(zip(PAIR_ORDERS, [*head, len(a), len(a) * (len(a) - 1)], strict=False))
                | order([both])
                | _interval([both])
            )
    return pd.DataFrame(rows, columns=PAIR_ORDERS).astype({"paper": bool})


def paper_faavg(study: str, baseline: str) -> pd.Series:
    own = read_paper_tables().query(
        "study == @study and baseline == @baseline and metric == 'faavg'"
    )
    return own.set_index("target")["paper_mean"]


def rank_scores(first: np.ndarray, second: np.ndarray, there: np.ndarray) -> np.ndarray | None:
    """float[2, factors, factors]: ranks where `there`, with mean 0 and length 1, so that Spearman's
    correlation is the sum of products. None for fewer than LEAST_FACTORS factors, or where one side
    is the same everywhere."""
    scores = np.zeros((2, *there.shape))
    for side, values in zip(scores, (first, second), strict=True):
        # Rounded, since computed means of equal accuracies may differ by about 1e-17.
        ranks = pd.Series(values[there].round(9)).rank().to_numpy()
        side[there] = ranks - ranks.mean()
    lengths = np.sqrt((scores**2).sum(axis=(1, 2), keepdims=True))
    return scores / lengths if len(there) >= LEAST_FACTORS and lengths.all() else None


def order(scored: list[np.ndarray]) -> dict[str, float]:
    """Spearman's correlation (over several studies its mean) and p. scored: from `rank_scores`, one
    per study."""
    first, second = np.stack(scored, axis=1)
    return {"spearman": float((first * second).sum() / len(scored)), "p": exchange_p(first, second)}


def exchange_p(first: np.ndarray, second: np.ndarray) -> float:
    """Share of all permutations of the factors' names on one side under which the sum of products
    is as high.

    first, second: float[..., factors, factors]; a list of factors stands on the diagonal. NaN for
    more than seven.
    """
    if first.shape[-1] > _MOST_FACTORS:
        return np.nan
    ways = _exchanges(first.shape[-1])
    sums = (first[..., None, :, :] * second[..., ways[:, :, None], ways[:, None, :]]).sum(
        axis=(-2, -1)
    )
    sums = sums.reshape(-1, len(ways)).sum(axis=0)
    return float((sums >= sums[0] - 1e-9).mean())


@cache
def _exchanges(factors: int) -> np.ndarray:
    """int[permutations, factors], the identity first."""
    return np.array(list(permutations(range(factors))))


def _interval(scored: list[np.ndarray]) -> dict[str, float]:
    return dict(
        zip(
            ("low", "high"),
            order_interval(order(scored)["spearman"], scored[0].shape[-1]),
            strict=True,
        )
    )


def order_interval(spearman: float, factors: int) -> tuple[float, float]:
    """95 % interval of a Spearman correlation over factors, treated as a random sample of many like
    them.

    Fisher's z with the variance of Bonett and Wright (2000), for one observation per factor. So
    neither several studies of the same factors nor their pairs make it narrower, and for these it
    tends to be too wide. A correlation of 1 is lowered by half a step, since a few factors cannot
    show how close to 1 it is.
    """
    most = 1 - 6 / (factors * (factors**2 - 1))
    z = np.arctanh(np.clip(spearman, -most, most))
    half = ndtri((1 + LEVEL) / 2) * np.sqrt((1 + spearman**2 / 2) / (factors - 3))
    return float(np.tanh(z - half)) if spearman > -most else -1.0, float(
        np.tanh(z + half)
    ) if spearman < most else 1.0


def pair_wins(runs: pd.DataFrame, factors: list[str]) -> dict[tuple[str, str], np.ndarray]:
    """For each pair (i, j) that ran both ways, (acc_ij + 1 - acc_ji) / 2, float[samples], NaN where
    a run is missing.

    1: i is always recognised though j misleads, and always misleads where j is the target. runs: of
    one study and baseline.
    """
    acc = runs.pivot(index="sample", columns=["target", "cue"], values="ood_accuracy").astype(
        np.float64
    )
    return {
        (i, j): ((acc[i, j] + 1 - acc[j, i]) / 2).to_numpy()
        for i, j in permutations(factors, 2)
        if (i, j) in acc and (j, i) in acc
    }


def pair_winners(runs: pd.DataFrame, known: KnownStudies = SHIPPED) -> pd.DataFrame:
    """Which factor of each pair wins in the headline's study with a shortcut alone, and which the
    paper's FAAvg ranks higher. Without rows where the paper lacks that study.

    share: mean of `pair_wins`, with its 95 % interval over the n samples that have both runs.
    Verdict: agrees | differs | undecided, the last where the paper prints the same number for both
    or the interval contains 1/2.
    """
    headline, rows = known.headline(runs["study"]), []
    study = headline.shortcut if headline else None
    for baseline, own in runs[(runs["study"] == study) & (runs["cue"] != "")].groupby(
        "baseline", sort=False
    ):
        theirs, wins = (
            paper_faavg(study, paper_model(baseline)),
            pair_wins(own, known.factors([study])),
        )
        p = own.astype({"ood_accuracy": float}).groupby(["target", "cue"])["ood_accuracy"].mean()
        for i, j in combinations(known.factors([study]), 2):
            values = wins.get((i, j), np.array([np.nan]))
            if {i, j} <= set(theirs.index) and not np.isnan(values).all():
                share, (low, high) = round(float(np.nanmean(values)), 12), sample_interval(values)
                rows.append(
                    {
                        "study": study,
                        "baseline": baseline,
                        "like": paper_model(baseline),
                        "first": i,
                        "second": j,
                        "p_first": p[i, j],
                        "p_second": p[j, i],
                        "share": share,
                        "low": low,
                        "high": high,
                        "n": int((~np.isnan(values)).sum()),
                        **_judged(
                            _higher(share, 0.5, i, j),
                            _higher(theirs[i], theirs[j], i, j),
                            low <= 0.5 <= high,
                        ),
                    }
                )
    return pd.DataFrame(rows, columns=PAIR_WINNERS)


def _higher(first: float, second: float, i: str, j: str) -> str:
    return "" if first == second else i if first > second else j


def _judged(winner: str, expected: str, chance: bool) -> dict[str, str]:
    reason = (
        "the paper prints the same for both"
        if not expected
        else "neither wins"
        if not winner
        else "its interval contains 1/2"
        if chance
        else ""
    )
    return {
        "winner": winner,
        "expected": expected,
        "reason": reason,
        "verdict": "undecided" if reason else "agrees" if winner == expected else "differs",
    }


def closeness_table(
    metrics: pd.DataFrame, contrasts: pd.DataFrame, runs: pd.DataFrame, comparison: pd.DataFrame
) -> pd.DataFrame:
    """How close numbers under another protocol are to the paper's, for orientation: close | apart |
    cannot tell.

    By the rule of the verdicts, for baselines without a compared cell. Fewer than LEAST_SAMPLES
    samples of ours are assumed to spread as the paper's do: the interval is t with the paper's four
    degrees of freedom.
    """
    compared, paper = (
        set(comparison.loc[comparison["verdict"].isin(COMPARED), "baseline"]),
        read_paper_tables(),
    )
    paper = [
        paper[paper["baseline"] == paper_model(name)].assign(baseline=name)
        for name in runs["baseline"].unique()
        if len(comparison) and name not in compared
    ]
    if not paper:
        return pd.DataFrame(columns=CLOSENESS)
    judged = {
        key: ([], [])
        for key in runs[["baseline", "study", "target"]].itertuples(index=False, name=None)
    }
    rows = comparison_table(
        metrics, contrasts, runs, {}, judged, pd.concat(paper, ignore_index=True)
    )
    rows = rows[rows["verdict"].isin(COMPARED)].reset_index(drop=True)
    rows["uncertainty"] = rows["uncertainty"].where(
        rows["n"] >= LEAST_SAMPLES, assumed_uncertainty(rows["paper_stderr"], rows["n"])
    )
    off, half = rows["difference"].abs(), rows["uncertainty"]
    told = np.select(
        [off + half <= MARGIN, off > half], list(CLOSE.values())[:2], CLOSE["cannot tell"]
    )
    return rows.assign(like=rows["baseline"].map(paper_model), closeness=told)[CLOSENESS]
