"""How sure an aggregate is: bootstrap intervals over dataset samples and pairs, paired comparisons, effect sizes.

Every resampling is seeded by names alone, so that the same runs give the same intervals.
"""

from functools import lru_cache
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from diagvib.randomness import named_generator

LEVEL = 0.95
RESAMPLES = 5000


@lru_cache
def _draws(what: str, n: int) -> np.ndarray:
    """How often each of n units is drawn, with replacement, in every resample: float64[RESAMPLES, n], read-only."""
    draws = named_generator("bootstrap", what, n).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)
    draws.setflags(write=False)
    return draws


def sample_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % bootstrap interval of the mean over dataset samples; (nan, nan) for fewer than two.

    values: float[samples], NaN for a missing run. The percentiles are moved outwards so that a handful of samples is
    not taken for many ("expanded percentile", Hesterberg 2015, The American Statistician 69(4)); being percentiles,
    they never leave the range of the values, so that for n below 4 the interval is too short.
    """
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    n = len(values)
    if n < 2:
        return np.nan, np.nan
    tail = norm.cdf(np.sqrt(n / (n - 1)) * t.ppf((1 - LEVEL) / 2, n - 1))
    low, high = np.quantile(_draws("samples", n) @ values / n, [tail, 1 - tail])
    return float(low), float(high)


def crossed_means(values: np.ndarray) -> np.ndarray:
    """The mean of float[samples, pairs] in every resample: samples and pairs are each drawn with replacement.

    Every run counts as often as its sample is drawn times as its pair is ("pigeonhole" bootstrap, Owen 2007, Annals of
    Applied Statistics 1(2)): all runs of a dataset sample share its classes, all runs of a pair its difficulty. NaN is
    a missing run; a resample without any run is left out.
    """
    samples, pairs = values.shape
    there = ~np.isnan(values)
    by_sample, by_pair = _draws("samples", samples), _draws("pairs", pairs)
    total = ((by_sample @ np.where(there, values, 0)) * by_pair).sum(axis=1)
    count = ((by_sample @ there) * by_pair).sum(axis=1)
    return total[count > 0] / count[count > 0]


def crossed_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean over samples and pairs; (nan, nan) for fewer than two samples with runs."""
    if (~np.isnan(values)).any(axis=1).sum() < 2:
        return np.nan, np.nan
    low, high = np.quantile(crossed_means(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def holm(p: np.ndarray) -> np.ndarray:
    """P-values corrected for their number (Holm 1979); NaN stays NaN and does not count."""
    p = np.asarray(p, dtype=np.float64)
    order = np.argsort(p)[: (~np.isnan(p)).sum()]
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return corrected


def paired_difference(first: np.ndarray, second: np.ndarray) -> dict:
    """How two baselines differ on the same datasets: first minus second, over those runs that both have.

    first, second: float[samples, pairs], NaN where a run is missing. Returns difference, low, high (95 %), p
    (two-sided, bootstrap), effect (Cohen's d of the pairs' mean differences), superiority (share of datasets on which
    the first is better, ties half), samples and pairs with runs. NaN where fewer than two samples (or, for effect,
    pairs) are there.
    """
    change = first - second
    there = ~np.isnan(change)
    samples, pairs = int(there.any(axis=1).sum()), int(there.any(axis=0).sum())
    result = {"difference": np.nan, "low": np.nan, "high": np.nan, "p": np.nan, "effect": np.nan,
              "superiority": np.nan, "samples": samples, "pairs": pairs}
    if not samples:
        return result
    seen = change[there]
    result |= {"difference": seen.mean(), "superiority": float(((seen > 0) + 0.5 * (seen == 0)).mean())}
    if pairs > 1:
        by_pair = np.nanmean(change[:, there.any(axis=0)], axis=0)
        result["effect"] = _ratio(by_pair.mean(), by_pair.std(ddof=1))
    if samples > 1:
        means = crossed_means(change)
        result["low"], result["high"] = crossed_interval(change)
        tail = min((means <= 0).sum(), (means >= 0).sum())
        result["p"] = min(1.0, 2 * (tail + 1) / (len(means) + 1))
    return result


def _ratio(mean: float, std: float) -> float:
    return float(mean / std) if std > 0 else float("nan")


def accuracy_by_pair(runs: pd.DataFrame) -> pd.DataFrame:
    """`ood` accuracy (ZSO: `id`) of one study and baseline: rows samples, columns pairs, NaN for missing runs."""
    column = "ood_accuracy" if (runs["cue"] != "").any() else "id_accuracy"
    return runs.pivot(index="sample", columns="pair", values=column).astype(np.float64)


def overall_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each baseline's mean over all samples and pairs of a study: mean, low, high (95 %), n runs, expected runs."""
    rows = []
    for (study, baseline), runs in frame.groupby(["study", "baseline"], sort=False):
        values = accuracy_by_pair(runs).to_numpy()
        low, high = crossed_interval(values)
        there = ~np.isnan(values)
        rows.append({"study": study, "baseline": baseline, "mean": values[there].mean() if there.any() else np.nan,
                     "low": low, "high": high, "n": int(there.sum()), "expected": len(runs),
                     "samples": int(there.any(axis=1).sum()), "pairs": int(there.any(axis=0).sum())})
    return pd.DataFrame(rows, columns=["study", "baseline", "mean", "low", "high", "n", "expected", "samples", "pairs"])


def baseline_comparisons(frame: pd.DataFrame) -> pd.DataFrame:
    """Every two baselines on every study, paired by dataset; p_holm is corrected over the comparisons of a study."""
    columns = ["study", "first", "second", "difference", "low", "high", "p", "p_holm", "effect", "superiority",
               "samples", "pairs"]
    tables = []
    for study, runs in frame.groupby("study", sort=False):
        own = {baseline: accuracy_by_pair(rows) for baseline, rows in runs.groupby("baseline", sort=False)}
        rows = []
        for first, second in combinations(own, 2):
            a, b = own[first].align(own[second])
            rows.append({"study": study, "first": first, "second": second,
                         **paired_difference(a.to_numpy(), b.to_numpy())})
        if rows:
            table = pd.DataFrame(rows)
            tables.append(table.assign(p_holm=holm(table["p"])))
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)
