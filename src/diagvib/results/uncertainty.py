"""The uncertainty of aggregates: intervals, paired comparisons, effect sizes.

The unit is the dataset sample: all runs of one share its classes, so 30 bindings of two samples are
two observations, not 60. The bindings are fixed: they are all that a scene has (or those
configured), and another sample would have the same ones. So every statement is about the mean over
these bindings in a new dataset sample, and its uncertainty is the spread of the samples' means.
"""

from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from diagvib.foundation.seeding import named_generator
from diagvib.results.metrics import estimate

LEVEL = 0.95
# With n samples there are 2^n sign flips: the smallest two-sided p is 2 / 32 for five, 2 / 64 for
# six.
FEWEST_FOR_P = 6
# Beyond 13 samples the sign flips are drawn at random, not enumerated.
_FLIPS = 9999


def half_width(freedom: float | np.ndarray) -> float | np.ndarray:
    """Half of the 95 % t interval's width, in standard errors. freedom: degrees of freedom; NaN for
    fewer than one."""
    return stdtrit(freedom, (1 + LEVEL) / 2)


def sample_interval(
    values: np.ndarray, within: tuple[float, float] = (0, 1)
) -> tuple[float, float]:
    """95 % t interval of the mean over dataset samples; (nan, nan) for fewer than two.

    values: float[samples], NaN for a missing run; within: the range of possible means, where the
    interval is cut off. Its coverage is nominal if the samples' values are roughly normal, and
    lower close to 0 or 1 with few samples (figures: benchmarks/README.md). Equal values give an
    interval of zero width: no spread was seen, which does not mean that there is none.
    """
    mean, stderr, n = estimate(values)
    half = half_width(n - 1) * stderr
    # Rounded, since the computed spread of equal values may be about 1e-17.
    low, high = np.clip(np.round([mean - half, mean + half], 12), *within)
    return float(low), float(high)


def sample_means(values: np.ndarray) -> np.ndarray:
    """The mean over all bindings for every dataset sample with runs: float64[samples with runs].

    values: float[samples, bindings], NaN for a missing run; bindings without any run are left out.
    A missing run is estimated by the additive model (sample plus binding, least squares), so that a
    sample that lacks a hard binding does not look better for it. NaN if no chain of common bindings
    links the samples.
    """
    there = ~np.isnan(values)
    samples, bindings = there.any(axis=1), there.any(axis=0)
    values, there = values[samples][:, bindings], there[samples][:, bindings]
    n, k = values.shape
    if there.all():
        return values.sum(axis=1) / k
    design = np.hstack([np.repeat(np.eye(n), k, axis=0), np.tile(np.eye(k), (n, 1))])[there.ravel()]
    effects, _, rank, _ = np.linalg.lstsq(design, values[there])
    return effects[:n] + effects[n:].mean() if rank == n + k - 1 else np.full(n, np.nan)


def crossed_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of float[samples, bindings]: `sample_interval` of
    `sample_means`."""
    return sample_interval(sample_means(values))


def corrected(p: np.ndarray, method: str) -> np.ndarray:
    """P-values corrected for their number; NaN stays NaN and does not count. method: statsmodels'
    name for it."""
    p = np.array(p, dtype=np.float64)
    there = ~np.isnan(p)
    if there.any():
        from statsmodels.stats.multitest import multipletests  # here, because it takes long to load

        p[there] = multipletests(p[there], method=method)[1]
    return p


def holm(p: np.ndarray) -> np.ndarray:
    """P-values corrected after Holm (1979): the probability of any false positive stays below the
    level."""
    return corrected(p, "holm")


def sign_flip_p(means: np.ndarray) -> float:
    """Two-sided p of float[samples], differences whose mean is zero by hypothesis; NaN for fewer
    than FEWEST_FOR_P.

    The share of all ways to give every sample's difference a sign that have a mean as far from
    zero, exact up to 13 samples. Every sample counts as one observation, however many runs are in
    its mean. Assumes that a difference and its negative are equally likely, as they are if neither
    baseline is better and both have the same spread.
    """
    if len(means) < FEWEST_FOR_P or np.isnan(means).any():
        return np.nan
    from scipy.stats import permutation_test  # here, because it takes long to load

    return float(
        permutation_test(
            (means,),
            np.mean,
            permutation_type="samples",
            vectorized=True,
            n_resamples=_FLIPS,
            rng=named_generator("sign flips"),
        ).pvalue
    )


def paired_difference(first: np.ndarray, second: np.ndarray) -> dict:
    """How two baselines differ on the same datasets: first minus second, over the runs that both
    have.

    first, second: float[samples, bindings], NaN where a run is missing. Returns difference, low,
    high (95 %, as `crossed_interval`), p (`sign_flip_p`), effect (Cohen's d of the bindings' mean
    differences: how consistent the bindings are, not a test), superiority (share of datasets on
    which the first is better, ties half), samples and bindings with runs. NaN if there are fewer
    than two samples (p: FEWEST_FOR_P; effect: two bindings).
    """
    change = first - second
    there = ~np.isnan(change)
    samples, bindings = int(there.any(axis=1).sum()), int(there.any(axis=0).sum())
    result = {
        "difference": np.nan,
        "low": np.nan,
        "high": np.nan,
        "p": np.nan,
        "effect": np.nan,
        "superiority": np.nan,
        "samples": samples,
        "bindings": bindings,
    }
    if not samples:
        return result
    seen, means = change[there], sample_means(change)
    low, high = sample_interval(means, within=(-1, 1))
    result |= {
        "difference": _mean(seen, means),
        "low": low,
        "high": high,
        "p": sign_flip_p(means),
        "superiority": float(((seen > 0) + 0.5 * (seen == 0)).mean()),
    }
    if bindings > 1:
        by_binding = np.nanmean(change[:, there.any(axis=0)], axis=0)
        result["effect"] = _ratio(by_binding.mean(), by_binding.std(ddof=1))
    return result


def _mean(seen: np.ndarray, means: np.ndarray) -> float:
    """Every sample has equal weight; if `sample_means` cannot compare them, every run has."""
    return float(seen.mean() if np.isnan(means).any() else means.mean())


def _ratio(mean: float, std: float) -> float:
    return float(mean / std) if std > 0 else float("nan")


def accuracy_by_binding(runs: pd.DataFrame) -> pd.DataFrame:
    """`ood` accuracy (without cues: `id`) for one study and baseline: rows samples, columns
    bindings, NaN for missing runs."""
    column = "ood_accuracy" if (runs["cue"] != "").any() else "id_accuracy"
    return runs.pivot(index="sample", columns="binding", values=column).astype(np.float64)


def overall_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Each baseline's mean over all samples and bindings of a study: mean, low, high (95 %), n
    runs, expected runs."""
    rows = []
    for (study, baseline), runs in frame.groupby(["study", "baseline"], sort=False):
        values = accuracy_by_binding(runs).to_numpy()
        there, means = ~np.isnan(values), sample_means(values)
        low, high = sample_interval(means)
        rows.append(
            {
                "study": study,
                "baseline": baseline,
                "mean": _mean(values[there], means) if there.any() else np.nan,
                "low": low,
                "high": high,
                "n": int(there.sum()),
                "expected": len(runs),
                "samples": int(there.any(axis=1).sum()),
                "bindings": int(there.any(axis=0).sum()),
            }
        )
    columns = ["study", "baseline", "mean", "low", "high", "n", "expected", "samples", "bindings"]
    return pd.DataFrame(rows, columns=columns)


def baseline_comparisons(frame: pd.DataFrame) -> pd.DataFrame:
    """All pairs of baselines on every study, paired by dataset; p_holm is corrected over the
    comparisons of a study.

    The smallest p for n samples, 2 / 2^n, is corrected as well: finding anything among the 36
    comparisons of nine baselines takes at least eleven samples.
    """
    columns = [
        "study",
        "first",
        "second",
        "difference",
        "low",
        "high",
        "p",
        "p_holm",
        "effect",
        "superiority",
        "samples",
        "bindings",
    ]
    tables = []
    for study, runs in frame.groupby("study", sort=False):
        own = {
            baseline: accuracy_by_binding(rows)
            for baseline, rows in runs.groupby("baseline", sort=False)
        }
        rows = []
        for first, second in combinations(own, 2):
            a, b = own[first].align(own[second])
            rows.append(
                {
                    "study": study,
                    "first": first,
                    "second": second,
                    **paired_difference(a.to_numpy(), b.to_numpy()),
                }
            )
        if rows:
            table = pd.DataFrame(rows)
            tables.append(table.assign(p_holm=holm(table["p"])))
    return (
        pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)
    )
