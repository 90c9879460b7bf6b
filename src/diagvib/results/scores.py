"""The few numbers of a result that are small enough for git:
results/metrics/{baseline}/{study}.json.

`dvc metrics show` lists them, and `dvc metrics diff` compares them between commits without pulling
any data.
"""

from pathlib import Path

import pandas as pd

from diagvib.foundation.files import write_json
from diagvib.results.verdicts import DECIDED

DIGITS = 4


def write_scores(tables: dict[str, pd.DataFrame], out: Path) -> None:
    """One JSON file for each baseline and study of the sets `shortcut`, `accuracy`, `gaps` and
    `average`.

    tables: from `tables.make_tables`.
    """
    Path(out).mkdir(parents=True, exist_ok=True)  # a stage's output, even if empty
    for name, scores in (
        ("metrics", score),
        ("accuracy", accuracy_score),
        ("gaps", gaps_score),
        ("average", average_score),
    ):
        for baseline, study in (
            tables[name][["baseline", "study"]].drop_duplicates().itertuples(index=False)
        ):
            if study:
                write_json(Path(out) / baseline / f"{study}.json", scores(tables, baseline, study))


def accuracy_score(tables: dict[str, pd.DataFrame], baseline: str, study: str) -> dict[str, float]:
    """Each test group's mean per-class accuracy and worst cell, `{group}_{metric}`, mean over the
    bindings; left out if one of these has none."""
    own = tables["accuracy"]
    own = own[(own["baseline"] == baseline) & (own["study"] == study) & (own["environment"] == "")]
    values = own.groupby(["group", "metric"], sort=False)["mean"].agg(_of_all).dropna()
    return {
        f"{group}_{metric}": round(float(value), DIGITS)
        for (group, metric), value in values.items()
    }


def _of_all(means: pd.Series) -> float:
    return means.mean(skipna=False)


def gaps_score(tables: dict[str, pd.DataFrame], baseline: str, study: str) -> dict[str, float]:
    """In-distribution accuracy, gaps and worst group, mean over the bindings as in the table."""
    return _over_bindings(tables["gaps"], baseline, study)


def average_score(tables: dict[str, pd.DataFrame], baseline: str, study: str) -> dict[str, float]:
    """Accuracies on the test and the training environments, worst cell and confusion, mean over the
    bindings as in the table."""
    return _over_bindings(tables["average"], baseline, study)


def _over_bindings(own: pd.DataFrame, baseline: str, study: str) -> dict[str, float]:
    """The rows without a binding, which are over the samples that have all bindings; or the only
    binding's."""
    own = own[(own["baseline"] == baseline) & (own["study"] == study)]
    values = (
        own[own["binding"].eq("") | (own["binding"].nunique() == 1)]
        .set_index("metric")["mean"]
        .dropna()
    )
    return {metric: round(float(value), DIGITS) for metric, value in values.items()}


def score(tables: dict[str, pd.DataFrame], baseline: str, study: str) -> dict[str, float]:
    """FAAvg, FAMin and in-distribution accuracy, averaged over the target factors, and the
    agreement with the paper.

    agreeing: share of the decided cells of the paper's tables, decided: their number. What one of
    the factors has no value of is left out.
    """
    own = {
        name: table[(table["baseline"] == baseline) & (table["study"] == study)]
        for name, table in tables.items()
        if name in ("metrics", "comparison")
    }
    values = own["metrics"].groupby("metric", sort=False)["mean"].agg(_of_all).dropna().to_dict()
    verdicts = own["comparison"]["verdict"]
    decided = verdicts[verdicts.isin(DECIDED)]
    if len(decided):
        values |= {"agreeing": (decided == "agrees").mean(), "decided": len(decided)}
    return {
        name: round(float(value), DIGITS) if name != "decided" else value
        for name, value in values.items()
    }
