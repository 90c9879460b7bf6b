"""The set of metrics `average` (Lynch et al., 2023, Sec. 5): accuracy where the cue points to
another class, and how many predictions follow it there (their Fig. 5)."""

from collections.abc import Iterable, Mapping

import pandas as pd

from diagvib.results.cells import RUN_KEYS, mean_per_class, worst_cell
from diagvib.results.gaps import measures_table
from diagvib.results.known_studies import KnownStudies
from diagvib.results.shortcut import ID, OOD
from diagvib.studies.preference import spoken_for_among
from diagvib.studies.study import Study

MEASURES = ("accuracy", "worst_cell", "id_accuracy", "confusion")


def average_tables(
    runs: pd.DataFrame, cells: pd.DataFrame, known: KnownStudies, baselines: Mapping[str, dict]
) -> dict[str, pd.DataFrame]:
    """One table, `average`: a row per study, baseline, binding and metric, as `gaps.gaps_table`.

    Rows with an empty study are the mean over all studies, for baselines and bindings that have
    them all: within each dataset sample first, then over the samples.
    """
    values = run_averages(runs, cells)
    parts = []
    for study, own in values.groupby("study", sort=False):
        measures = [
            *MEASURES,
            *(f"{ID}_accuracy_{name}" for name in known.tested_in(str(study), ID)),
        ]
        # An environment in which no run was tested has no column.
        own = own.reindex(columns=[*RUN_KEYS, *measures])
        parts.append(measures_table(own, baselines, measures))
    parts.append(mean_over_studies(values, MEASURES, baselines))
    return {"average": pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)}


def mean_over_studies(
    values: pd.DataFrame, measures: Iterable[str], baselines: Mapping[str, dict]
) -> pd.DataFrame:
    """`gaps.measures_table` of the runs' values over all studies, for baselines and bindings that
    have them all; no rows if there is only one study."""
    studies = values["study"].nunique()
    has_all = values.groupby(["baseline", "binding"])["study"].transform("nunique") == studies
    every = values[has_all].assign(study="") if studies > 1 else values[:0]
    return measures_table(every, baselines, measures)


def run_averages(runs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Every run's RUN_KEYS, MEASURES and `id_accuracy_{environment}`, NaN where it is missing.

    accuracy, id_accuracy: mean per class of the groups ood and id; worst_cell: target x cue, of the
    group ood; confusion: of the images of group ood whose cue points to other classes than theirs,
    the share predicted as one of these.
    """
    tested, misled = (
        cells[cells["group"] == OOD],
        cells[(cells["group"] == OOD) & cells["misled"].notna()],
    )
    sums = misled.astype({"misled": float}).groupby(RUN_KEYS, as_index=False)[["misled", "n"]].sum()
    apart = mean_per_class(cells[cells["group"] == ID], [*RUN_KEYS, "environment"])
    apart = apart.pivot(index=RUN_KEYS, columns="environment", values="accuracy")
    apart = apart.drop(columns="", errors="ignore").add_prefix(
        f"{ID}_accuracy_"
    )  # "": the study names none
    found = runs.reindex(columns=[*RUN_KEYS, f"{OOD}_accuracy", f"{ID}_accuracy"]).rename(
        columns={f"{OOD}_accuracy": "accuracy"}
    )
    for table in (
        worst_cell(tested, RUN_KEYS).rename(columns={"accuracy": "worst_cell"}),
        sums[RUN_KEYS].assign(confusion=sums["misled"] / sums["n"]),
        apart.reset_index(),
    ):
        found = found.merge(table, how="left", on=RUN_KEYS)
    return found


def guessed_confusion(study: Study) -> float:
    """The confusion expected from guessing: the share of the target's classes that a misleading cue
    points to."""
    # `added` is one class, whichever it is.
    cells, among = study.cells("test", (1, 2, 0)), spoken_for_among(study, study.cues[0], (1, 2, 0))
    cells = cells[cells["group"] == OOD]
    wrong = [
        len(among[cue] - {target})
        for target, cue in zip(cells["target_class"], cells[f"{study.cues[0]}_class"], strict=True)
    ]
    weight = cells["weight"].where([count > 0 for count in wrong], 0)
    return (
        float((weight * wrong).sum() / weight.sum() / study.roles["target"])
        if weight.sum()
        else 0.0
    )
