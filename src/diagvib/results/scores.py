"""The few numbers of a result that are small enough for git:
results/metrics/{baseline}/{study}.json.

`dvc metrics show` lists them, and `dvc metrics diff` compares them between commits without pulling
any data.
"""

from pathlib import Path

import pandas as pd

from diagvib.foundation.files import write_json
from diagvib.results.known_studies import KnownStudies
from diagvib.results.metric_sets import METRIC_SETS

DIGITS = 4


def write_scores(metrics: pd.DataFrame, known: KnownStudies, out: Path) -> None:
    """One JSON file for each baseline and study. metrics: the tidy table."""
    Path(out).mkdir(parents=True, exist_ok=True)  # a stage's output, even if empty
    for (baseline, study), own in metrics.groupby(["baseline", "study"], sort=False):
        if study:
            names = METRIC_SETS[own["metric_set"].iloc[0]].names(study, known)
            write_json(Path(out) / baseline / f"{study}.json", scores(own, names))


def scores(own: pd.DataFrame, names: list[str]) -> dict[str, float]:
    """Each metric, mean over the target factors, and over the bindings as in the table; left out if
    one of the factors has none. Where a paper has numbers: agreeing, the share of the decided cells
    that agree, and decided, their number."""
    mean = own["binding"].eq("") | (own["binding"].nunique() == 1)
    values = own[mean & own["metric"].isin(names)].groupby("metric", sort=False)["mean"]
    values = values.agg(lambda means: means.mean(skipna=False)).dropna()
    found = {metric: round(float(value), DIGITS) for metric, value in values.items()}
    decided = own["verdict"].isin(["agrees", "differs"])
    if decided.any():
        agreeing = (own.loc[decided, "verdict"] == "agrees").mean()
        found |= {"agreeing": round(float(agreeing), DIGITS), "decided": int(decided.sum())}
    return found
