"""The set of metrics `shortcut` (DiagViB-6, Sec. 3.4): P_ij, FAAvg, FAMin, in-distribution
accuracy, contrasts."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.metrics import accuracy_array, estimate, faavg, famin, paired_change
from diagvib.results.paper import beside_paper
from diagvib.results.uncertainty import baseline_comparisons, overall_table, sample_interval

# Images on which the cue is as in training, and those on which it misleads. A study without cues
# has only the first.
ID, OOD = "id", "ood"


def shortcut_tables(
    runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> dict[str, pd.DataFrame]:
    """P_ij, the metrics over cues, contrasts of studies, overall means and comparisons of
    baselines."""
    return {
        "p_matrix": p_matrix(runs),
        "metrics": metrics_table(runs),
        "contrasts": contrasts_table(runs, known),
        "overall": overall_table(runs),
        "baselines": baseline_comparisons(runs),
    }


def p_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """P_ij (without cues P_i, cue empty) per study, baseline and group: mean, stderr, n, expected
    (paper, Sec. 3.4)."""
    rows = []
    for (study, baseline, target, cue), runs in frame.groupby(
        ["study", "baseline", "target", "cue"], sort=False
    ):
        for group in (ID, OOD) if cue else (ID,):
            mean, stderr, n = estimate(runs[f"{group}_accuracy"])
            rows.append(
                {
                    "study": study,
                    "baseline": baseline,
                    "target": target,
                    "cue": cue,
                    "group": group,
                    "mean": mean,
                    "stderr": stderr,
                    "n": n,
                    "expected": len(runs),
                }
            )
    columns = ["study", "baseline", "target", "cue", "group", "mean", "stderr", "n", "expected"]
    return pd.DataFrame(rows, columns=columns)


def metrics_table(frame: pd.DataFrame) -> pd.DataFrame:
    """FAAvg, FAMin and in-distribution accuracy over the configured cues, with the paper's numbers.

    Columns: study, baseline, target, metric, mean, stderr, low, high, n, expected, cues,
    paper_mean, paper_stderr, difference. low, high: 95 %, `sample_interval`. Without cues
    faavg is P_i, on the only group.
    """
    rows = []
    for (study, baseline, target), runs in frame.groupby(
        ["study", "baseline", "target"], sort=False
    ):
        correlated = (runs["cue"] != "").all()
        for metric, reduce, group in _METRICS if correlated else [("faavg", faavg, ID)]:
            acc = accuracy_array(runs, runs[f"{group}_accuracy"])
            mean, stderr, n = reduce(acc)
            low, high = sample_interval(acc.min(axis=1) if metric == "famin" else acc.mean(axis=1))
            rows.append(
                {
                    "study": study,
                    "baseline": baseline,
                    "target": target,
                    "metric": metric,
                    "mean": mean,
                    "stderr": stderr,
                    "low": low,
                    "high": high,
                    "n": n,
                    "expected": len(acc),
                    "cues": acc.shape[1] if correlated else 0,
                }
            )
    columns = [
        "study",
        "baseline",
        "target",
        "metric",
        "mean",
        "stderr",
        "low",
        "high",
        "n",
        "expected",
        "cues",
    ]
    return beside_paper(pd.DataFrame(rows, columns=columns), "stderr", is_comparable(frame))


_METRICS: list[tuple[str, Callable, str]] = [
    ("faavg", faavg, OOD),
    ("famin", famin, OOD),
    ("id_accuracy", faavg, ID),
]


def contrasts_table(frame: pd.DataFrame, known: KnownStudies = SHIPPED) -> pd.DataFrame:
    """A study minus its reference per baseline and target, if both are configured (paper, Table 2:
    CHGO minus ZGO).

    Columns: study, reference, baseline, target, metric, mean, std, n, expected, cues, paper_mean,
    paper_std, difference.
    """
    rows = []
    for metric, contrast in known.contrasts.items():
        for (baseline, target), runs in frame.groupby(["baseline", "target"], sort=False):
            own, reference = (
                runs[runs["study"] == study] for study in (contrast.study, contrast.reference)
            )
            if len(own) and len(reference):
                acc = accuracy_array(own, own[f"{OOD}_accuracy"])
                change = paired_change(acc, accuracy_array(reference, reference[f"{OOD}_accuracy"]))
                rows.append(
                    {
                        "study": contrast.study,
                        "reference": contrast.reference,
                        "baseline": baseline,
                        "target": target,
                        "metric": metric,
                        "mean": change.mean,
                        "std": change.std,
                        "n": change.n,
                        "expected": len(acc),
                        "cues": acc.shape[1],
                    }
                )
    columns = [
        "study",
        "reference",
        "baseline",
        "target",
        "metric",
        "mean",
        "std",
        "n",
        "expected",
        "cues",
    ]
    return beside_paper(pd.DataFrame(rows, columns=columns), "std", is_comparable(frame))


def is_comparable(frame: pd.DataFrame) -> bool:
    """Whether anything ran, and everything that ran used the paper's sources."""
    ok = frame[frame["status"] == "ok"]
    return bool(len(ok)) and bool(ok["comparable"].astype(bool).all())


def telling_bindings(p: pd.DataFrame, known: KnownStudies = SHIPPED) -> pd.DataFrame:
    """Which bindings show a shortcut best: baseline, target, cue, without, shortcut, recovered, by
    (study); best first.

    p: the table of `p_matrix`. without, shortcut: accuracies in the two studies that the headline
    compares, in the second where the cue misleads; recovered: the best of the studies that offer an
    opportunity. NaN if nothing ran. No rows if no headline covers these studies.
    """
    columns = ["baseline", "target", "cue", "without", "shortcut", "recovered", "by"]
    headline = known.headline(p["study"])
    if headline is None:
        return pd.DataFrame(columns=columns)
    accuracy = p[((p["group"] == OOD) | (p["cue"] == "")) & (p["n"] > 0)]
    rows = []
    for (baseline, target, cue), _ in p[p["cue"] != ""].groupby(
        ["baseline", "target", "cue"], sort=False
    ):
        own = accuracy[(accuracy["baseline"] == baseline) & (accuracy["target"] == target)]
        means = own[own["cue"].isin(["", cue])].set_index("study")["mean"]
        others = means[
            [
                study in known.studies and known.studies[study].opportunity != ""
                for study in means.index
            ]
        ]
        rows.append(
            {
                "baseline": baseline,
                "target": target,
                "cue": cue,
                "without": means.get(headline.without, np.nan),
                "shortcut": means.get(headline.shortcut, np.nan),
                "recovered": others.max() if len(others) else np.nan,
                "by": others.idxmax() if len(others) else "",
            }
        )
    found = pd.DataFrame(rows, columns=columns)
    score = (
        found["without"].fillna(1)
        - 2 * found["shortcut"]
        + found["recovered"].fillna(found["shortcut"])
    )
    return found.loc[score.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
