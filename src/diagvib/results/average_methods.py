"""Tables 3 to 5 of Lynch et al. (2023), in their layout: a row per baseline, a column per study,
and their mean."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from diagvib.foundation.files import definition_path
from diagvib.results.gaps import BASELINE, binding_names, network_of, part_of
from diagvib.results.known_studies import KnownStudies
from diagvib.results.paper import percent
from diagvib.results.shortcut import is_comparable

AVERAGE_TITLE = "Environments: accuracy where the cue points to another class"
AVERAGE_NOTE = (
    "Mean per-class accuracy on the test environment, and its mean over the studies, in percent: mean ± standard error "
    "over the dataset samples. Laid out like Tables 3 to 5 of Lynch et al. (2023)."
)
_KEYS = ["study", *BASELINE, "binding"]
_COLUMNS = [
    *_KEYS,
    "mean",
    "stderr",
    "low",
    "high",
    "n",
    "expected",
    "paper",
    "paper_spread",
    "note",
]
# The properties of a baseline that are matched with the columns of the paper's table.
_SAME = ("binding", "model", "method", "supervision", "selection")
# Options that are part of a method as the paper runs it; all others are drawn in its random
# searches, or not known.
_OPTIONS = {"jtt": {"restart": False}, "group_dro": {"balanced": True}}
# The paper prints a mean that differs from that of its numbers.
_MEAN_NOTES = {
    (3, "causirl_coral"): "mean of the paper's six numbers; it prints 77.20",
    (5, "erm"): "mean of the paper's six numbers; it prints 40.44",
}


@cache
def read_spawrious_tables() -> pd.DataFrame:
    """Every number of the paper's Tables 3 to 5, as fractions.

    Columns: table, scene, binding, model, weights, method, told, selection, study, paper,
    paper_spread, note (what is doubtful about the number). Spreads are as printed.
    """
    raw = pd.read_csv(
        definition_path("papers/spawrious.csv"),
        keep_default_na=False,
        na_values={"spread_percent": [""]},
    )
    return raw.assign(paper=raw["percent"] / 100, paper_spread=raw["spread_percent"] / 100).drop(
        columns=["percent", "spread_percent"]
    )


def average_methods(
    average: pd.DataFrame, runs: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> pd.DataFrame:
    """The accuracies from the table `average`: a row per study (empty: the mean over all), baseline
    and binding.

    Columns: mean, stderr, low, high, n, expected; paper, paper_spread and note where the paper has
    this scene, binding, model with these weights, of which the same part is trained, method and
    selection rule. Its mean is given where ours is over the same studies.
    """
    rows = average[average["metric"] == "accuracy"].to_dict("records")
    beside = [_paper(row, runs, known, baselines) if row["study"] else [] for row in rows]
    found: dict[tuple, list[list[dict]]] = {}
    for row, its in zip(rows, beside, strict=True):
        found.setdefault((row["baseline"], row["binding"]), []).extend(
            [its] if row["study"] else []
        )
    for row, its in zip(rows, beside, strict=True):
        if not row["study"]:
            its += _mean(found[row["baseline"], row["binding"]])
    none = {"paper": np.nan, "paper_spread": np.nan, "note": ""}
    return pd.DataFrame(
        [
            row | none | {key: one[key] for one in its for key in none}
            for row, its in zip(rows, beside, strict=True)
        ],
        columns=_COLUMNS,
    )


def _paper(
    row: Mapping, runs: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> list[dict]:
    """The paper's number for a row; none if anything differs, or if the runs' sources are not
    comparable."""
    paper, study = read_spawrious_tables(), known.studies[row["study"]]
    alike = [
        name
        for name in paper["study"].unique()
        if name in known.studies and known.studies[name].rows == study.rows
    ]
    settings = baselines.get(row["baseline"], {})
    weights = part_of(settings, "model").get("weights") or ""
    same = np.logical_and.reduce([paper[key] == row[key] for key in _SAME])
    found = paper[
        same
        & (paper["scene"] == study.scene)
        & (paper["weights"] == weights)
        & paper["study"].isin(alike)
    ]
    found = found if _is_published(settings) else found[:0]
    own = runs[(runs["study"] == row["study"]) & (runs["baseline"] == row["baseline"])]
    return found.to_dict("records") if is_comparable(own) else []


def _is_published(settings: Mapping) -> bool:
    """Whether all of a baseline's network is trained, except that batch norm keeps the statistics
    of published weights (as in DomainBed in 2023), and its method is the one that the paper
    describes."""
    network, method = network_of(settings), part_of(settings, "method")
    changed = {key: value for key, value in network.items() if key not in ("name", "weights")}
    return changed == ({"frozen_statistics": True} if network.get("weights") else {}) and all(
        method.get(key) == value for key, value in _OPTIONS.get(str(method.get("name")), {}).items()
    )


def _mean(found: list[list[dict]]) -> list[dict]:
    """The paper's mean over its studies, if ours are the same. found: the paper's number, if any,
    for each of ours."""
    if not found or not all(found):
        return []
    first, paper = found[0][0], read_spawrious_tables()
    of_row = paper[(paper["table"] == first["table"]) & (paper["method"] == first["method"])]
    if {one["study"] for its in found for one in its} != set(of_row["study"]):
        return []
    return [
        {
            "paper": of_row["paper"].mean(),
            "paper_spread": np.nan,
            "note": _MEAN_NOTES.get((first["table"], first["method"]), ""),
        }
    ]


def average_table(
    methods: pd.DataFrame, known: KnownStudies, of_all: bool = True
) -> tuple[list[str], list[tuple[list[str], list[str], list[str]]], list[str]]:
    """Heads, lines and notes of `average_methods`. A line has its labels, our texts and the paper's
    (none: []).

    of_all: show only the mean over several bindings.
    """
    studies = list(
        dict.fromkeys(sorted(methods["study"], key=lambda study: study == ""))
    )  # the mean comes last
    several = set(methods.loc[methods["binding"] == "", "baseline"])
    methods = methods.assign(called=binding_names(methods))
    lines = []
    for (*names, binding), own in methods.groupby([*BASELINE, "binding"], sort=False):
        if of_all and binding and names[0] in several:
            continue
        there = own.set_index("study").to_dict("index")
        ours = [
            percent(*(there[study][key] for key in ("mean", "stderr", "n", "expected")))
            if study in there
            else ""
            for study in studies
        ]
        theirs = [_printed(there[study]) if study in there else "" for study in studies]
        lines.append(([*names, own["called"].iloc[0]], ours, theirs if any(theirs) else []))
    heads = [*BASELINE, "binding", *(known.title(study) if study else "mean" for study in studies)]
    notes = methods[methods["note"] != ""]
    return (
        heads,
        lines,
        list(
            dict.fromkeys(
                f"paper, {row.method}, {known.title(row.study) if row.study else 'mean'}: {row.note}"
                for row in notes.itertuples(index=False)
            )
        ),
    )


def _printed(row: Mapping) -> str:
    """The paper's number as printed there: `77.49 ± 0.05`; empty if it has none."""
    if row["paper"] != row["paper"]:
        return ""
    spread = (
        "" if row["paper_spread"] != row["paper_spread"] else f" ± {100 * row['paper_spread']:.2f}"
    )
    return f"{100 * row['paper']:.2f}{spread}"
