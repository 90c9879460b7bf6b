"""The numbers of DiagViB-6 (config/papers/diagvib6.csv), and those of ours that are made alike."""

from collections.abc import Iterable, Mapping
from functools import cache

import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.studies.known_studies import KnownStudies

# The number of possible cues for a target in DiagViB-6: all other factors. FAAvg over fewer cues is
# a different number.
PAPER_CUES = 5
PAPER_KEYS = ["study", "baseline", "target", "metric"]


@cache
def read_paper_tables() -> pd.DataFrame:
    """Every number of DiagViB-6's Tables 2 and A2-A9, as fractions.

    Columns: table (2, A2 ...), study, baseline, target, metric (faavg | famin, or a contrast's),
    paper_mean, paper_spread, spread_kind (stderr; of a contrast std). One row per key.
    """
    raw = pd.read_csv(definition_path("papers/diagvib6.csv")).rename(columns={"factor": "target"})
    return raw.assign(
        table=raw["table"].str.removeprefix("table_").str.upper(),
        study=raw["study"].str.lower(),
        paper_mean=raw.pop("mean_percent") / 100,
        paper_spread=raw.pop("spread_percent") / 100,
    )


@cache
def paper_range() -> pd.DataFrame:
    """The lowest and highest number of DiagViB-6's nine networks, and that of resnet18, whose
    settings the authors published: by study, target and metric."""
    keys = ["study", "target", "metric"]
    paper = read_paper_tables().pivot(index=keys, columns="baseline", values="paper_mean")
    ends = {"low": paper.min(axis=1), "high": paper.max(axis=1)}
    return pd.DataFrame({**ends, "resnet18": paper["resnet18"]})


def of_paper(studies: Iterable[str]) -> bool:
    """Whether DiagViB-6 has numbers for any of these studies."""
    return not set(read_paper_tables()["study"]).isdisjoint(studies)


def paper_number(row: Mapping, known_studies: KnownStudies, settings: Mapping) -> dict:
    numbers = _numbers().get(tuple(row[key] for key in PAPER_KEYS))
    if numbers is None or row["cues"] not in (0, PAPER_CUES):
        return {}
    mean, spread = numbers
    return {"paper": mean, "printed": f"{100 * mean:.0f} ± {100 * spread:.0f}"}


@cache
def _numbers() -> dict[tuple, tuple[float, float]]:
    """Mean and spread by study, baseline, target and metric."""
    table = read_paper_tables().set_index(PAPER_KEYS)
    return table[["paper_mean", "paper_spread"]].apply(tuple, axis=1).to_dict()
