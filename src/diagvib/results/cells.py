"""The long table of results: run x environment x group x cell, with n and correct. All metrics are
group-bys on it."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.foundation.files import open_parquet

RUN_KEYS = ["baseline", "study", "binding", "target", "cue", "sample", "seed"]
CELL = ["environment", "group", "target_class", "cue_class"]
# misled: the number of wrong predictions that are a class the cue points to; missing where it
# points to no class but the cell's own, and in studies whose metrics do not need it. trained: the
# number of training images with the cell's classes; missing if the run does not note them.
CELL_COLUMNS = [*RUN_KEYS, *CELL, "n", "correct", "misled", "trained"]
_CODED = pa.dictionary(pa.int32(), pa.string())


def read_predictions(path: Path, target: str, cues: Sequence[str]) -> pa.Table:
    """The columns of a run's predictions by which cells are counted: group, target, cues,
    prediction, environment; and confidence, if it is there."""
    columns = ["group", target, *cues, "prediction"]
    # Class names stay dictionary codes: four times faster than strings, with up to 11,070 files to
    # read.
    with open_parquet(path, read_dictionary=columns) as file:
        optional = ("environment", "confidence")
        columns += [name for name in optional if name in file.schema_arrow.names]
        return file.read(columns=columns, use_threads=False)


def count_cells(
    table: pa.Table,
    target: str,
    cues: Sequence[str],
    cue_label: Mapping[str, Set[str]] | None = None,
    trained: Mapping[str, int] | None = None,
) -> list[dict]:
    """A run's part of the long table: each cell's CELL and counts, ordered by the first occurrence
    of environments, groups and classes.

    table: from `read_predictions`; cue_label: class of the first cue -> classes that it points to, if
    `misled` should be counted; trained: classes, as {target}-{cues} -> training images.
    """
    by = [*(["environment"] if "environment" in table.column_names else []), "group", target, *cues]
    coded = {name: table[name].cast(_CODED) for name in [*by, "prediction"]}
    table = pa.table(coded).unify_dictionaries()
    counts = table.group_by(table.column_names, use_threads=False).aggregate([([], "count_all")])
    positions = zip(
        *(counts[name].combine_chunks().indices.to_pylist() for name in by), strict=True
    )
    cells: dict[tuple[int, ...], dict] = {}
    for position, row in zip(positions, counts.to_pylist(), strict=True):
        label, n = row[target], row["count_all"]
        cue_classes = cue_label.get(row[cues[0]], frozenset()) - {label} if cue_label else ()
        names = [row[cue] for cue in cues]
        cell = cells.setdefault(
            position,
            {
                "environment": row.get("environment", ""),
                "group": row["group"],
                "target_class": label,
                "cue_class": "-".join(names),
                "n": 0,
                "correct": 0,
                "misled": 0 if cue_classes else None,
                "trained": trained.get("-".join([label, *names]), 0) if trained else None,
            },
        )
        cell["n"] += n
        cell["correct"] += n * (row["prediction"] == label)
        if cue_classes:
            cell["misled"] += n * (row["prediction"] in cue_classes)
    return [cells[position] for position in sorted(cells)]


def cells_table(frame: pd.DataFrame, counted: Sequence[Sequence[dict]]) -> pd.DataFrame:
    """The long table, CELL_COLUMNS, indexed by the row of the run. frame: one run per row, with
    RUN_KEYS; counted: of each, from `count_cells`."""
    keys = frame.loc[frame.index.repeat([*map(len, counted)]), RUN_KEYS]
    rows = [cell for cells in counted for cell in cells]
    values = pd.DataFrame(rows, keys.index, CELL_COLUMNS[len(RUN_KEYS) :])
    counts = {"n": "int64", "correct": "int64", "misled": "Int64", "trained": "Int64"}
    values = values.astype({**dict.fromkeys(CELL, "str"), **counts})
    return pd.concat([keys, values], axis=1)


def mean_per_class(cells: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean over the target classes present of per-class accuracy: a row per combination of `by`, in
    order.

    cells: columns by, target_class, n, correct. Columns: by, accuracy, n images.
    """
    classes = cells.groupby([*by, "target_class"], sort=False)[["correct", "n"]].sum()
    groups = classes.groupby(level=by, sort=False)
    group_numbers, accuracy = groups.ngroup(), classes["correct"] / classes["n"]
    means = np.bincount(group_numbers, accuracy) / np.bincount(group_numbers)
    return groups[["n"]].sum().assign(accuracy=means).reset_index()


def mean_over_seeds(runs: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A row for each dataset sample of each job, with the means of these columns over its seeds; NaN
    if one is missing. runs: with RUN_KEYS; without seeds, or with one, as they are."""
    if "seed" not in runs or not runs["seed"].any():
        return runs
    runs = runs.astype(dict.fromkeys(columns, float))
    by_sample = runs.groupby(RUN_KEYS[:-1], sort=False)[[*columns]]
    return by_sample.agg(lambda values: values.mean(skipna=False)).reset_index()


def class_mean(cells: pd.DataFrame, by: list[str]) -> pd.Series:
    """The accuracies of `mean_per_class`, indexed by `by`."""
    return mean_per_class(cells, by).set_index(by)["accuracy"]


def per_image(cells: pd.DataFrame, by: list[str]) -> pd.Series:
    """The share of images that are right, for each combination of `by`."""
    sums = cells.groupby(by, sort=False)[["correct", "n"]].sum()
    return sums["correct"] / sums["n"]


def worst_cell(cells: pd.DataFrame, by: list[str]) -> pd.Series:
    """The accuracy of the worst cell, for each combination of `by`."""
    return per_image(cells, [*by, *CELL[2:]]).groupby(level=by, sort=False).min()


def adjusted(cells: pd.DataFrame, by: list[str]) -> pd.Series:
    """The accuracies of all cells, averaged by the shares that their classes have in training, as in
    Sagawa et al. (2020), for each combination of `by`; NaN if a run does not note these."""
    cell = [*by, *CELL[2:]]
    trained = cells.astype({"trained": float}).groupby(cell, sort=False)["trained"].first()
    parts = {"right": per_image(cells, cell) * trained, "trained": trained}
    sums = pd.DataFrame(parts).groupby(level=by, sort=False).sum()
    return sums["right"] / sums["trained"]
