"""Read the classes of a set's photos from its table, or from their paths."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial, reduce
from os.path import normpath
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from diagvib.foundation.errors import DiagvibError, one_line, unknown_name
from diagvib.foundation.files import read_json
from diagvib.foundation.messages import say
from diagvib.foundation.validation import repeated, validated
from diagvib.scenes.photos.alike import look_alikes
from diagvib.scenes.photos.decoding import Glance
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.listing import files_in, leave_out, usable, without_twins

_COMPARED = 200_000  # photos, which takes 10 seconds
_SHOWN = 10  # values of a column, or photos, that are named
# Said of photos that can be used.
TRANSPARENT = "photos with transparent parts, in which the colours hidden there are shown"
ONE_COLOUR = "photos of a single colour"


def labelled_photos(its: PhotoSet, folder: Path, where: str) -> tuple[pd.DataFrame, int]:
    """The usable photos of a set, sorted by path: path, sha256, the class of every factor, split,
    unit, lot; and the number of all.

    Those that cannot be used, and those whose values stand for no class, are left out, with a line
    on standard error. where: the definition, for messages. DiagvibError, naming file, row and
    column, for a table that cannot be used.
    """
    paths, found, every = (
        _from_paths(its, folder) if its.table is None else _from_table(its, folder, where)
    )
    if groups := read_groups(its, folder):
        _as_first_of_group(its, groups, found)
    parts = {**its.parts, "split": its.split} if its.split else its.parts
    labelled = pd.DataFrame({"path": paths, "split": "", "unit": "", "lot": ""})
    for name, part in parts.items():
        classes = {value: known for known, values in part.values.items() for value in values}
        labelled[name] = found[part.column].map(classes)
        others = found.loc[labelled[name].isna(), part.column].value_counts()
        said = f", which stands for no {name}"
        for value, count in others.head(_SHOWN).items():
            leave_out(folder, f"{count:,} photos: {part.column} is '{value}'{said}")
        if len(others) > _SHOWN:
            left, values = others[_SHOWN:].sum(), len(others) - _SHOWN
            leave_out(
                folder, f"{left:,} photos: {part.column} is one of {values:,} more values{said}"
            )
    for name, column in (("unit", its.unit), ("lot", its.lot)):
        if column is not None:
            labelled[name] = found[column]
    labelled = labelled.dropna()
    found = usable(folder, labelled["path"].tolist())
    hashes = {path: sha256 for path, (sha256, _) in found.items()}
    if not its.keep_twins:
        classes = labelled.set_index("path")[[*its.factors]].agg(tuple, axis=1)
        hashes = without_twins(folder, _without_contradictions(folder, hashes, classes))
    labelled["sha256"] = labelled["path"].map(hashes)
    listed = labelled.dropna().sort_values("path", ignore_index=True)
    if listed.empty:
        raise DiagvibError(
            f"{folder}: of {every:,} files or rows, none is a usable photo with the classes of {where}"
        )
    glances = {path: found[path][1] for path in listed["path"]}
    _name_look_alikes(folder, listed, glances)
    for odd, what in (
        ([path for path, its in glances.items() if its.transparent], TRANSPARENT),
        ([path for path, its in glances.items() if not np.ptp(its.small)], ONE_COLOUR),
    ):
        if odd:
            more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
            say(f"{folder}: {what}: {', '.join(odd[:_SHOWN])}{more}")
    for name, part in its.parts.items():
        absent = [known for known in part.values if known not in set(listed[name])]
        if absent:
            more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            say(f"{folder}: no photo of {name} {', '.join(absent[:5])}{more}")
    if its.split is not None and its.unit is not None:
        splits = listed.groupby("unit")["split"].nunique()
        if (splits > 1).any():
            raise DiagvibError(
                f"{folder / its.tables[0] if its.tables else where}: the {its.unit} {splits.idxmax()} is "
                "in several splits; all its photos must be in one"
            )
    return listed[["path", "sha256", *its.factors, "split", "unit", "lot"]], every


def _without_contradictions(
    folder: Path, hashes: dict[str, str], classes: pd.Series
) -> dict[str, str]:
    """Path -> sha256 without photos that are there several times, with different classes. classes:
    by path."""
    known: dict[str, dict] = {}  # sha256 -> classes -> path
    for path, sha256 in hashes.items():
        known.setdefault(sha256, {})[classes[path]] = path
    for path, sha256 in hashes.items():
        if others := known[sha256].keys() - {classes[path]}:
            other = known[sha256][min(others)]
            leave_out(folder / path, f"because {other} is the same photo, with other classes")
    return {path: sha256 for path, sha256 in hashes.items() if len(known[sha256]) == 1}


def _name_look_alikes(folder: Path, listed: pd.DataFrame, glances: dict[str, Glance]) -> None:
    """Name photos that look alike and may be in different splits, on standard error."""
    if len(listed) > _COMPARED:
        say(f"{folder}: too many photos to look for ones that look alike")
        return
    pairs = look_alikes(np.stack([glance.small for glance in glances.values()]))
    for column in ("split", "unit"):
        known = listed[column].to_numpy()[pairs]
        pairs = pairs[(known[:, 0] != known[:, 1]) | (known[:, 0] == "")]
    pairs = listed["path"].to_numpy()[pairs]
    for first, second in pairs[:_SHOWN]:
        say(f"{folder / first}: looks like {second}")
    if len(pairs):
        say(
            f"{folder}: pairs of photos that look alike and may be in different splits: {len(pairs):,}; "
            "leave out one of each, or give both the same value in a column for `unit`"
        )


def _from_paths(its: PhotoSet, folder: Path) -> tuple[list[str], pd.DataFrame, int]:
    """The paths that fit the pattern, a row with its fields for each, and the number of all files in
    the folder."""
    text = re.escape(its.pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+?)", text))
    every, rows, others = files_in(folder), {}, Counter()
    for path in every:
        if fits := pattern.fullmatch(path):
            rows[path] = fits.groupdict()
        else:
            others[path.rpartition("/")[0]] += 1
    for place, count in others.items():
        leave_out(folder / place, f"{count:,} files: their paths do not fit {its.pattern}")
    fields = pd.DataFrame([*rows.values()], columns=[*dict.fromkeys(its.columns)], dtype=str)
    return [*rows], fields, len(every)


def _as_first_of_group(its: PhotoSet, groups: dict[int, int], found: pd.DataFrame) -> None:
    """Replace the number of a group, as in 00_dog, by the group's first class, in place."""
    classes, (column, *_) = next(iter(its.classes.values())), its.columns
    first = {group: classes[index] for index, group in sorted(groups.items(), reverse=True)}
    numbers = pd.to_numeric(found[column].str.extract(r"^(\d\d)_")[0])
    found[column] = numbers.map(first).fillna(found[column])


def read_groups(its: PhotoSet, folder: Path) -> dict[int, int]:
    """Class index -> group, of the classes that have one (in the file, others have -1). Empty
    without such a file. DiagvibError, naming it, for anything else in it."""
    if its.groups is None or not (folder / its.groups).exists():
        return {}
    path, n_classes = folder / its.groups, len(next(iter(its.classes.values())))
    groups = validated(dict[str, int], read_json(path, "correct it"), str(path))
    known = {int(index): group for index, group in groups.items() if index.isdecimal()}
    if len(known) < len(groups) or max(known, default=0) >= n_classes:
        raise DiagvibError(f"{path}: must map class indices below {n_classes} to groups")
    return {index: group for index, group in known.items() if group >= 0}


def read_labels(path: Path, where: str) -> pd.DataFrame:
    """A CSV or Parquet file as text, "" for missing values, without spaces around the names of its
    columns or after commas. where: the key or option that names it. DiagvibError if it cannot be
    read, or has no rows, a column twice or another separator than commas."""
    try:
        if path.suffix.lower() == ".parquet":
            table = pq.read_table(path).to_pandas(ignore_metadata=True, integer_object_nulls=True)
            table = table.rename(columns=str.strip)
            table = table.astype(str).where(table.notna(), "")
        else:
            # With the names as its first row: as a header, pandas would rename what is there twice.
            options = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
            table = pd.read_csv(path, header=None, skipinitialspace=True, **options)
            names = [name.strip() or f"column_{n}" for n, name in enumerate(table.iloc[0], 1)]
            table = table.iloc[1:].set_axis(names, axis=1).reset_index(drop=True)
    except FileNotFoundError:
        raise DiagvibError(f"{where}: {path}: no such file") from None
    except Exception as error:  # either reader may raise anything
        raise DiagvibError(
            f"{path}: not a table that can be read; use Parquet, or CSV with commas in UTF-8 "
            f"({one_line(error)})"
        ) from None
    names = [*table]
    if len(names) == 1 and (separator := re.search("[;\t|]", names[0])):
        raise DiagvibError(f"{path}: columns are separated by {separator[0]!r}; use commas")
    if (twice := repeated(names)) is not None:
        raise DiagvibError(f"{path}: has the column {twice} twice; rename one")
    if table.empty:
        raise DiagvibError(f"{path}: has no rows")
    return table


def _joined(path: Path, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Tables joined by the columns that they share. DiagvibError, naming the first one's path, unless
    each row has exactly one in the other table."""
    shared = [column for column in left if column in right]
    if not shared:
        raise DiagvibError(f"{path}: shares no column with the next table")
    both = left.merge(right, "outer", shared, indicator="\0in")
    rows = len(left), len(right), int((both["\0in"] == "both").sum())
    if len({*rows, len(both)}) > 1:
        raise DiagvibError(
            f"{path}: {rows[0]:,} rows, in the next table {rows[1]:,}, but {rows[2]:,} pairs have the same "
            f"{', '.join(shared)}; each row needs exactly one"
        )
    return both.drop(columns="\0in")


def _from_table(its: PhotoSet, folder: Path, where: str) -> tuple[list[str], pd.DataFrame, int]:
    """The photos' paths, the rows of the table as text, and their number."""
    path = folder / its.tables[0]
    read = [read_labels(folder / name, f"{where}: table") for name in its.tables]
    table = reduce(partial(_joined, path), read)
    for column in (its.file, *its.columns):
        if column not in table:
            raise unknown_name("column", column, table.columns, f"{path} (named in {where})")
    # Joined tables have their rows in another order.
    row = "{}: row {} below the header" if len(read) == 1 else "{}: a row"
    for column in filter(None, (its.file, its.unit, its.lot)):
        if (empty := table[column] == "").any():
            at = row.format(path, empty.idxmax() + 1)
            raise DiagvibError(f"{at}: {column} is empty; it needs a value")
    files, twice = table[its.file], table[its.file].map(normpath).duplicated()
    outside = files.map(lambda name: bool({"..", "/"} & {*Path(name).parts}) or "\0" in name)
    for wrong, why in ((twice, "is in an earlier row, too"), (outside, f"is not in {folder}")):
        if wrong.any():
            first = wrong.idxmax()
            raise DiagvibError(f"{row.format(path, first + 1)}: {its.file}: {files[first]} {why}")
    below = f"{its.photos}/" if its.photos else ""
    return [*(below + files)], table, len(table)
