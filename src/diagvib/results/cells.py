"""The long table of results: run x environment x group x cell, with n and correct. All metrics are
group-bys on it."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from diagvib.foundation.files import open_parquet

RUN_KEYS = ["baseline", "study", "binding", "target", "cue", "sample"]
CELL = ["environment", "group", "target_class", "cue_class"]
# misled: the number of wrong predictions that are a class the cue points to; missing where it
# points to no class but the cell's own, and in studies whose metrics do not need it.
CELL_COLUMNS = [*RUN_KEYS, *CELL, "n", "correct", "misled"]


def read_predictions(path: Path, target: str, cues: Sequence[str]) -> pa.Table:
    """The columns of a run's predictions by which cells are counted: group, target, cues,
    prediction, environment."""
    wanted = ["group", target, *cues, "prediction"]
    # Class names stay dictionary codes: four times faster than strings, with up to 11,070 files to
    # read.
    with open_parquet(path, read_dictionary=wanted) as file:
        wanted += ["environment"] if "environment" in file.schema_arrow.names else []
        return file.read(columns=wanted, use_threads=False).unify_dictionaries()


def count_cells(
    table: pa.Table,
    target: str,
    cues: Sequence[str],
    spoken: Mapping[str, Set[str]] | None = None,
) -> dict[str, list]:
    """A run's part of the long table, CELL and counts; groups, environments and classes in order of
    first occurrence.

    table: from `read_predictions`; spoken: class of the first cue -> classes that it points to, if
    `misled` should be counted. ValueError if an image lacks a value.
    """
    if lacking := [name for name in table.column_names if table[name].null_count]:
        raise ValueError(f"an image lacks its {lacking[0]}")
    by = [*(["environment"] if "environment" in table.column_names else []), "group", target, *cues]
    codes, names = zip(*(_codes(table[column]) for column in by), strict=True)
    prediction, predicted = _codes(table["prediction"])
    label = names[by.index(target)]
    as_label = np.array(
        [label.index(name) if name in label else -1 for name in predicted], dtype=np.int64
    )
    right = as_label[prediction] == codes[by.index(target)]
    shape = [len(own) for own in names]
    index = np.ravel_multi_index(codes, shape) if len(right) else np.zeros(0, np.int64)
    n = np.bincount(index)
    there = np.flatnonzero(n)
    columns = {
        column: [own[code] for code in place]
        for column, own, place in zip(by, names, np.unravel_index(there, shape), strict=True)
    }
    empty = [""] * len(there)
    cue_class = (
        ["-".join(cell) for cell in zip(*(columns[cue] for cue in cues), strict=True)]
        if cues
        else empty
    )
    found = {
        "environment": columns.get("environment", empty),
        "group": columns["group"],
        "target_class": columns[target],
        "cue_class": cue_class,
        "n": n[there].tolist(),
        "correct": np.bincount(index[right], minlength=len(n))[there].tolist(),
        "misled": [None] * len(there),
    }
    if spoken is not None and len(index):
        cue = by.index(cues[0])
        wrongly = np.array(
            [
                [
                    [name in spoken.get(of, ()) and name != own for name in predicted]
                    for of in names[cue]
                ]
                for own in label
            ]
        )
        misled = index[wrongly[codes[by.index(target)], codes[cue], prediction]]
        found["misled"] = [
            count if spoken.get(of, set()) - {own} else None
            for count, of, own in zip(
                np.bincount(misled, minlength=len(n))[there].tolist(),
                columns[cues[0]],
                columns[target],
                strict=True,
            )
        ]
    return found


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list]:
    whole = column.combine_chunks()
    whole = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return whole.indices.to_numpy(zero_copy_only=False).astype(
        np.int64
    ), whole.dictionary.to_pylist()


def cells_table(frame: pd.DataFrame, counted: Sequence[dict | None]) -> pd.DataFrame:
    """The long table, CELL_COLUMNS. frame: one run per row, with RUN_KEYS; counted: from
    `count_cells`, or None."""
    lengths = [len(cells["n"]) if cells else 0 for cells in counted]
    keys = frame[RUN_KEYS].iloc[np.repeat(np.arange(len(frame)), lengths)].reset_index(drop=True)
    values = {
        column: [value for cells in counted if cells for value in cells[column]]
        for column in CELL_COLUMNS[len(RUN_KEYS) :]
    }
    return keys.assign(**values).astype({"n": "int64", "correct": "int64", "misled": "Int64"})


def mean_per_class(cells: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Mean over the target classes present of per-class accuracy: a row per combination of `by`, in
    order.

    cells: columns by, target_class, n, correct. Columns: by, accuracy, n images.
    """
    groups = cells.groupby(list(by), sort=False).ngroup().to_numpy()
    label, names = pd.factorize(cells["target_class"])
    classes, known = pd.factorize(groups * max(len(names), 1) + label)
    n, correct = (np.bincount(classes, cells[column]) for column in ("n", "correct"))
    of = known // max(len(names), 1)
    found = cells[list(by)].iloc[np.unique(groups, return_index=True)[1]].reset_index(drop=True)
    return found.assign(
        accuracy=np.bincount(of, correct / n) / np.bincount(of),
        n=np.bincount(of, n).astype(np.int64),
    )


def worst_cell(cells: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The accuracy of the worst cell: a row per combination of `by`, in order. Columns: by,
    accuracy."""
    cell = [*by, *(column for column in ("target_class", "cue_class") if column not in by)]
    counts = cells.groupby(cell, sort=False, as_index=False)[["n", "correct"]].sum()
    accuracy = counts["correct"] / counts["n"]
    return (
        counts.assign(accuracy=accuracy)
        .groupby(list(by), sort=False, as_index=False)["accuracy"]
        .min()
    )
