"""The photos of a set with their classes, from its table or from their paths."""

from __future__ import annotations

import re
from collections import Counter
from os.path import commonpath, dirname, normpath
from pathlib import Path

import numpy as np
import pandas as pd

from diagvib.foundation.errors import DiagvibError, some_names, unknown_name
from diagvib.foundation.files import read_json
from diagvib.foundation.messages import say
from diagvib.foundation.validation import validated
from diagvib.scenes.photos.alike import look_alikes
from diagvib.scenes.photos.decoding import Glance
from diagvib.scenes.photos.definition import PhotoSet
from diagvib.scenes.photos.labels import read_tables, tidy_column
from diagvib.scenes.photos.listing import (
    SHOWN,
    files_in,
    leave_out,
    name_some,
    photo_paths,
    usable,
    without_twins,
)
from diagvib.scenes.photos.locate import locate

_COMPARED = 200_000  # photos, which takes 10 seconds
# Said of photos that can be used.
TRANSPARENT = "photos with transparent parts, in which the colours hidden there are shown"
ONE_COLOUR = "photos of a single colour"
# The column that every table has: in which folder a photo is.
FOLDER = "folder"


def labelled_photos(definition: PhotoSet, folder: Path, location: str) -> tuple[pd.DataFrame, int]:
    """The usable photos of a set, sorted by path: path, sha256, the class of every factor, split,
    unit, lot; and the number of all.

    Those that cannot be used, and those whose values stand for no class, are left out, with a line
    on standard error. location: the definition, for messages. DiagvibError, naming file, row and
    column, for a table that cannot be used.
    """
    if definition.table is None:
        rows, total = _rows_of_paths(definition, folder)
    else:
        rows, total = _rows_of_table(definition, folder, location)
    rows = _with_first_of_group(definition, rows, folder)
    photos = _with_classes(definition, rows, folder)
    photos, glances = _usable(definition, photos, folder)
    if photos.empty:
        raise DiagvibError(
            f"{folder}: of {total:,} files or rows, none is a usable photo with the classes of {location}"
        )
    _name_look_alikes(folder, photos, glances)
    _name_odd_ones(folder, glances)
    _name_absent_classes(definition, folder, photos)
    _check_units(definition, photos, folder, location)
    return photos, total


def _with_classes(definition: PhotoSet, rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The rows whose values stand for classes: path, the class of each factor, split, unit, lot.
    rows: path, and the needed columns as text."""
    photos = rows[["path"]].assign(split="", unit="", lot="")
    factors = {**definition.parts, **({"split": definition.split} if definition.split else {})}
    for name, factor in factors.items():
        classes = {value: label for label, values in factor.values.items() for value in values}
        values = rows[_column(factor.column)]
        photos[name] = values.map(classes)
        without = values[photos[name].isna()].value_counts()
        for value, count in without.head(SHOWN).items():
            text = f"{factor.column} is '{value}', which stands for no {name}"
            leave_out(folder, f"{count:,} photos: {text}")
        if remainder := len(without[SHOWN:]):
            text = (
                f"{factor.column} is one of {remainder:,} more values, which stands for no {name}"
            )
            leave_out(folder, f"{without[SHOWN:].sum():,} photos: {text}")
    for name, column in (("unit", definition.unit), ("lot", definition.lot)):
        if column is not None:
            photos[name] = rows[_column(column)]
    return photos.dropna()


def _column(name: str) -> str:
    """A table's column, apart from the photos' paths, which may have the same name."""
    return f"column {name}"


def _usable(
    definition: PhotoSet, photos: pd.DataFrame, folder: Path
) -> tuple[pd.DataFrame, dict[str, Glance]]:
    """The photos that can be decoded, each of them once, sorted by path, with their sha256; and a
    glance at each."""
    looks = usable(folder, photos["path"].tolist())
    hashes = {path: sha256 for path, (sha256, _) in looks.items()}
    if not definition.keep_twins:
        classes = photos.set_index("path")[[*definition.factors]].agg(tuple, axis=1)
        hashes = without_twins(folder, _without_contradictions(folder, hashes, classes))
    photos = photos.assign(sha256=photos["path"].map(hashes)).dropna()
    columns = ["path", "sha256", *definition.factors, "split", "unit", "lot"]
    photos = photos.sort_values("path", ignore_index=True)[columns]
    return photos, {path: looks[path][1] for path in photos["path"]}


def _name_odd_ones(folder: Path, glances: dict[str, Glance]) -> None:
    transparent = [path for path, glance in glances.items() if glance.transparent]
    flat = [path for path, glance in glances.items() if not np.ptp(glance.small)]
    name_some(f"{folder}: {TRANSPARENT}", transparent)
    name_some(f"{folder}: {ONE_COLOUR}", flat)


def _name_absent_classes(definition: PhotoSet, folder: Path, photos: pd.DataFrame) -> None:
    for name, factor in definition.parts.items():
        missing = [label for label in factor.values if label not in set(photos[name])]
        if missing:
            say(f"{folder}: no photo of {name} {some_names(missing)}")


def _check_units(definition: PhotoSet, photos: pd.DataFrame, folder: Path, location: str) -> None:
    """DiagvibError if a unit is in several published splits."""
    if definition.split is None or definition.unit is None:
        return
    splits = photos.groupby("unit")["split"].nunique()
    if (splits > 1).any():
        source = folder / definition.tables[0] if definition.tables else location
        raise DiagvibError(
            f"{source}: the {definition.unit} {splits.idxmax()} is in several splits; all its photos "
            "must be in one"
        )


def _rows_of_paths(definition: PhotoSet, folder: Path) -> tuple[pd.DataFrame, int]:
    """A row for each path that fits the pattern, with its fields; and the number of all files in
    the folder."""
    text = re.escape(definition.pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    pattern = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+?)", text))
    paths, fields, unfitting = files_in(folder), {}, Counter()
    for path in paths:
        if match := pattern.fullmatch(path):
            fields[path] = match.groupdict()
        else:
            unfitting[path.rpartition("/")[0]] += 1
    for place, count in unfitting.items():
        leave_out(folder / place, f"{count:,} files: their paths do not fit {definition.pattern}")
    columns = [*dict.fromkeys(definition.columns)]
    table = pd.DataFrame([*fields.values()], columns=columns, dtype=str)
    return _rows([*fields], table, definition), len(paths)


def _rows_of_table(definition: PhotoSet, folder: Path, location: str) -> tuple[pd.DataFrame, int]:
    """A row for each row of the table, and their number. Rows that are there twice count once."""
    path, file = folder / definition.tables[0], definition.file
    table = read_tables(definition.tables, folder, file, location)
    total = len(table)
    for column in (file, *definition.columns):
        if column not in table and column != FOLDER:
            raise unknown_name("column", column, table.columns, f"{path} (named in {location})")
    table = table.drop_duplicates()
    if len(table) < total:
        say(f"{path}: {total - len(table):,} rows are there twice, and count once")
    single = len(definition.tables) == 1 and "*" not in definition.tables[0]
    for column in filter(None, (file, definition.unit, definition.lot)):
        if column in table and (empty := table[column] == "").any():
            row = _row(path, single, empty.idxmax())
            raise DiagvibError(f"{row}: {column} is empty; it needs a value")
    paths = _photos_named(table[file], definition, folder, path)
    outside = paths.map(lambda name: bool({"..", "/"} & {*Path(name).parts}) or "\0" in name)
    for is_wrong, problem in (
        (paths.map(normpath).duplicated(), "is in an earlier row, too"),
        (outside, f"is not in {folder}"),
    ):
        if is_wrong.any():
            row, name = _row(path, single, is_wrong.idxmax()), table.at[is_wrong.idxmax(), file]
            raise DiagvibError(f"{row}: {file}: {name} {problem}")
    if FOLDER not in table:
        table = table.assign(**{FOLDER: top_folders(paths)})
    return _rows([*paths], table, definition), total


def _row(path: Path, single: bool, number: int) -> str:
    """A row for messages. single: whether there is only one table, since several have their rows in
    another order."""
    return f"{path}: row {number + 1} below the header" if single else f"{path}: a row"


def _photos_named(names: pd.Series, definition: PhotoSet, folder: Path, table: Path) -> pd.Series:
    """The paths of the photos that a column names; where there is no such photo, as it stands there.
    DiagvibError if none is there."""
    photos = photo_paths(folder)
    located = locate(names, photos, [definition.photos, dirname(definition.tables[0])])
    below = f"{definition.photos}/" if definition.photos else ""
    paths = names.map(lambda name: located.get(name, below + name))
    if not located and not any((folder / path).exists() for path in paths[:SHOWN]):
        present = f"photos such as {photos[0]}" if photos else "no photos"
        raise DiagvibError(
            f"{table}: {definition.file}: of {len(names):,} names, such as {names.iloc[0]}, none is "
            f"that of a photo in {folder}, which has {present}"
        )
    return paths


def top_folders(paths: pd.Series) -> list[str]:
    """For each path, the first of the folders that not all have in common; "" without any."""
    folders = [dirname(path) for path in paths]
    shared = commonpath(folders) if all(folders) else ""
    return [folder.removeprefix(shared).strip("/").partition("/")[0] for folder in folders]


def _rows(paths: list[str], table: pd.DataFrame, definition: PhotoSet) -> pd.DataFrame:
    """The paths, and the columns that are needed, tidied."""
    columns = {_column(name): tidy_column(table[name]) for name in definition.columns}
    return pd.DataFrame({"path": pd.Series(paths, table.index, dtype=object), **columns})


def _with_first_of_group(definition: PhotoSet, rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The rows with a group's first class instead of the group's number, as in 00_dog."""
    groups = read_groups(definition, folder)
    if not groups:
        return rows
    classes, column = next(iter(definition.classes.values())), _column(definition.columns[0])
    first_classes = {group: classes[index] for index, group in sorted(groups.items(), reverse=True)}
    numbers = pd.to_numeric(rows[column].str.extract(r"^(\d\d)_")[0])
    return rows.assign(**{column: numbers.map(first_classes).fillna(rows[column])})


def _without_contradictions(
    folder: Path, hashes: dict[str, str], classes: pd.Series
) -> dict[str, str]:
    """Path -> sha256 without photos that are there several times, with different classes. classes:
    by path."""
    paths_by_class: dict[str, dict] = {}  # sha256 -> classes -> path
    for path, sha256 in hashes.items():
        paths_by_class.setdefault(sha256, {})[classes[path]] = path
    for path, sha256 in hashes.items():
        if other_classes := paths_by_class[sha256].keys() - {classes[path]}:
            other_path = paths_by_class[sha256][min(other_classes)]
            leave_out(folder / path, f"because {other_path} is the same photo, with other classes")
    return {path: sha256 for path, sha256 in hashes.items() if len(paths_by_class[sha256]) == 1}


def _name_look_alikes(folder: Path, listed: pd.DataFrame, glances: dict[str, Glance]) -> None:
    """Name photos that look alike and may be in different splits, on standard error."""
    if len(listed) > _COMPARED:
        say(f"{folder}: too many photos to look for ones that look alike")
        return
    pairs = look_alikes(np.stack([glance.small for glance in glances.values()]))
    for column in ("split", "unit"):
        values = listed[column].to_numpy()[pairs]
        pairs = pairs[(values[:, 0] != values[:, 1]) | (values[:, 0] == "")]
    pairs = listed["path"].to_numpy()[pairs]
    for photo, look_alike in pairs[:SHOWN]:
        say(f"{folder / photo}: looks like {look_alike}")
    if len(pairs):
        say(
            f"{folder}: pairs of photos that look alike and may be in different splits: {len(pairs):,}; "
            "leave out one of each, or give both the same value in a column for `unit`"
        )


def read_groups(definition: PhotoSet, folder: Path) -> dict[int, int]:
    """Class index -> group, of the classes that have one (in the file, others have -1). Empty
    without such a file. DiagvibError, naming it, for anything else in it."""
    if definition.groups is None or not (folder / definition.groups).exists():
        return {}
    path, n_classes = folder / definition.groups, len(next(iter(definition.classes.values())))
    groups = validated(dict[str, int], read_json(path, "correct it"), str(path))
    groups_by_index = {int(index): group for index, group in groups.items() if index.isdecimal()}
    if len(groups_by_index) < len(groups) or max(groups_by_index, default=0) >= n_classes:
        raise DiagvibError(f"{path}: must map class indices below {n_classes} to groups")
    return {index: group for index, group in groups_by_index.items() if group >= 0}
