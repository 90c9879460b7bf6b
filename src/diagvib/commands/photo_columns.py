"""The labels of a folder of photos, from a table or its folders' names, and which column is what."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from diagvib.foundation.errors import DiagvibError, one_line, some_names, unknown_name
from diagvib.foundation.validation import repeated
from diagvib.scenes.photos.labels import (
    FORMATS,
    image_columns,
    read_labels,
    read_tables,
    table_paths,
    tidy_column,
)
from diagvib.scenes.photos.listing import EXTENSIONS, SHOWN, files_in, photo_paths
from diagvib.scenes.photos.locate import locate
from diagvib.scenes.photos.tables import FOLDER, top_folders

_MOST_CLASSES = 50
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
_MISSING = {"nan", "na", "n/a", "#n/a", "<na>", "null"}  # values of a label, in lower case
_SPLITS = {
    "train": ("train", "training", "tr", "0"),
    "val": ("val", "valid", "validation", "dev", "development", "eval", "evaluation", "1"),
    "test": ("test", "testing", "te", "2"),
}


@dataclass
class Columns:
    """Which column is what. None and (): to be found, if only one column can be meant, except for the
    target; levels: the names of the folders' levels, without a table."""

    file: str | None = None
    target: str | None = None
    cues: Sequence[str] = ()
    split: str | None = None
    unit: str | None = None
    levels: Sequence[str] = ()


def renamed_labels(labels: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, dict[str, str]]:
    """The labels with the factors' names for their columns, and these names -> columns, where a
    target or cue is written as NAME=COLUMN; `columns` then has the names."""
    renamed = {}
    for text in filter(None, (columns.target, *columns.cues)):
        name, equals, column = text.partition("=")
        if equals and text not in labels:
            if column not in labels:
                raise unknown_name("column", column, [*labels], text)
            renamed[name] = column
            columns.target = name if columns.target == text else columns.target
            columns.cues = [name if cue == text else cue for cue in columns.cues]
    shadowed = [name for name in renamed if name in labels and name not in renamed.values()]
    names = {column: name for name, column in renamed.items()}
    return labels.drop(columns=shadowed).rename(columns=names), renamed


def published_split(
    folder: Path, labels: pd.DataFrame, columns: Columns
) -> tuple[str | None, dict[str, str]]:
    """The column of the published split, or one that may be meant as such; and split -> the value
    that stands for it, if there is one for each."""
    factors = {columns.target, *columns.cues, columns.unit}
    possible = [c for c in labels if c not in factors and _is_split(c, labels[c])]
    split_columns = [c for c in possible if split_names(labels[c])]
    if len(split_columns) > 1 and not columns.split:
        raise DiagvibError(
            f"{folder}: {', '.join(split_columns)} could each be the published split; name it with --split"
        )
    split = columns.split or _only(split_columns or possible)
    splits = split_names(labels[split]) if split else {}
    if columns.split and not splits:
        raise DiagvibError(
            f"{folder}: {split} has the values {', '.join(column_values(labels[split])[:10])}; a split names "
            "train, val and test"
        )
    return split, splits


def target_and_cues(
    folder: Path, columns: Columns, numbers: dict[str, int]
) -> tuple[str, Sequence[str]]:
    """The target and the cues. numbers: of values, of each column that has no other role."""
    factors = [c for c, n in numbers.items() if 2 <= n <= _MOST_CLASSES]
    target, other_columns = columns.target, [c for c in factors if c != columns.target]
    columns_text = ", ".join(f"{c} ({numbers[c]} values)" for c in other_columns) or "none"
    candidates_text = f"columns with 2 to {_MOST_CLASSES} values: {columns_text}"
    if target is None:
        raise DiagvibError(
            f"{folder}: which column should be learned? Name it with --target; {candidates_text}"
        )
    if not columns.cues and len(other_columns) != 1:
        raise DiagvibError(
            f"{folder}: which column could be a shortcut to {target}? Name it, or two of them, with "
            f"--cue; {candidates_text}"
        )
    roles = [target, *(columns.cues or other_columns)]
    for column in roles:
        if column not in numbers or roles.count(column) > 1:
            raise DiagvibError(f"{folder}: {column} has two roles; {candidates_text}")
        if column not in factors:
            raise DiagvibError(
                f"{folder}: {column} has {numbers[column]:,} values, but a factor has 2 to {_MOST_CLASSES}; choose another "
                "column"
            )
    return target, roles[1:]


def labels_of(folder: Path, table: str | None, columns: Columns) -> tuple[dict, pd.DataFrame]:
    """Where the photos' labels are, as keys of a scene, and the labels as tidy text. Fills in the
    column with the files' paths."""
    if not folder.is_dir():
        raise DiagvibError(f"{folder}: no such folder; it should hold the photos")
    if table is None and not columns.levels:
        table = _only_table(folder)
    if table is None:
        return _by_levels(folder, columns)
    if columns.levels:
        raise DiagvibError(
            f"--levels names folders, but the labels are in {table}; leave out --levels"
        )
    photos = photo_paths(folder)
    if columns.file is None:
        columns.file = _file_column(folder, table, photos)
    labels = read_tables([table], folder, columns.file, "--table")
    if columns.file in labels:
        _add_folders(labels, photos, table, columns)
    for name in labels:
        if name != columns.file:
            values = tidy_column(labels[name])
            labels[name] = values.mask(values.str.lower().isin(_MISSING), "")
    return {"table": table, "file": columns.file}, labels


def _only_table(folder: Path) -> str | None:
    """The table in a folder; or that in its folders, or `*/metadata.csv` for several of one name."""
    tables = [path.name for path in sorted(folder.iterdir()) if path.suffix.lower() in FORMATS]
    if not tables:
        tables = [path for path in files_in(folder) if path.lower().endswith(FORMATS)]
        names, depths = {Path(path).name for path in tables}, {path.count("/") for path in tables}
        if len(tables) > 1 and len(names) == len(depths) == 1:
            return "*/" * depths.pop() + names.pop()
    if len(tables) > 1:
        _check_outside(folder / tables[0])
        raise DiagvibError(
            f"{folder}: has the tables {some_names(tables, SHOWN)}; choose one with --table, or "
            f"several with the same columns, such as --table '*{Path(tables[0]).suffix}'"
        )
    return tables[0] if tables else None


def columns_of_photos(path: Path) -> list[str]:
    """The columns of a Parquet file that hold photos. DiagvibError if it is damaged."""
    try:
        return image_columns(path)
    except pa.ArrowException as error:
        raise DiagvibError(
            f"{path}: not a table that can be read ({one_line(error)}); replace it, or move it away"
        ) from None


def _check_outside(path: Path) -> None:
    """DiagvibError for a table that holds photos itself."""
    if path.suffix.lower() == ".parquet" and (images := columns_of_photos(path)):
        raise DiagvibError(
            f"{path}: the photos are inside the table, in the column {images[0]}; write them to files "
            "with --unpack FOLDER, a new folder, which is then used"
        )


def _check_unpacked(folder: Path, photos: Sequence[object]) -> None:
    """DiagvibError for a folder without photos, which names archives that may hold them."""
    archives = [path for path in files_in(folder) if path.lower().endswith(_ARCHIVES)]
    if archives and not photos:
        raise DiagvibError(
            f"{folder}: no photos in it, but {some_names(archives, SHOWN)}; unpack the photos there"
        )
    if not photos:
        raise DiagvibError(f"{folder}: no photos ({', '.join(EXTENSIONS)}) in it")


def _file_column(folder: Path, table: str, photos: Sequence[str]) -> str:
    """The column with the photos' paths or names. DiagvibError unless there is exactly one."""
    path = next(iter(table_paths(table, folder)), folder / table)
    labels = read_labels(path, "--table").drop_duplicates()
    base = path.parent.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
    located = {name: locate(labels[name], photos, ["", base]) for name in labels}
    # The values of a label may be names of photos, too, such as 0 and 1.
    candidates = [name for name in labels if 2 * len({*located[name].values()}) > len(labels)]
    exact = [name for name in candidates if labels[name].isin(photos).mean() > 0.5]
    file_columns = {tuple(located[name].values()): name for name in reversed(exact or candidates)}
    if len(file_columns) == 1:
        return file_columns.popitem()[1]
    if not candidates:
        _check_outside(path)
        _check_unpacked(folder, photos)
    first_values = ", ".join(f"{name} ({one_line(labels[name].iloc[0], 60)})" for name in labels)
    raise DiagvibError(
        f"{path}: {'more than one' if candidates else 'no'} column has names of photos in {folder}, such as "
        f"{min(photos, default='gull/1.jpg')}; name it with --file. Columns, with their first "
        f"values: {first_values}"
    )


def _add_folders(labels: pd.DataFrame, photos: Sequence[str], table: str, columns: Columns) -> None:
    """Add the column FOLDER of `scenes.photos.tables`, if it is meant by name, or is the only one
    that looks like a published split."""
    located = locate(labels[columns.file], photos, ["", Path(table).parent.as_posix()])
    folders = pd.Series(top_folders(labels[columns.file].map(lambda name: located.get(name, name))))
    named_columns = {columns.split, columns.unit, columns.target, *columns.cues}
    split = not columns.split and not any(_is_split(name, labels[name]) for name in labels)
    if FOLDER not in labels and (FOLDER in named_columns or (split and split_names(folders))):
        labels[FOLDER] = folders


def _by_levels(folder: Path, columns: Columns) -> tuple[dict, pd.DataFrame]:
    """A column for each level of folders, of the photos at the most frequent depth."""
    levels = columns.levels
    paths = [Path(path) for path in photo_paths(folder)]
    _check_unpacked(folder, paths)
    depth = Counter(len(path.parts) - 1 for path in paths).most_common(1)[0][0]
    if not depth:
        raise DiagvibError(
            f"{folder}: has neither a table ({', '.join(FORMATS)}) nor folders whose names are labels"
        )
    names = [*levels] or [f"level_{number}" for number in range(1, depth + 1)]
    if len(names) != depth:
        raise DiagvibError(
            f"{folder}: most photos lie {depth} folders deep, but --levels names {len(names)}; give a "
            "name to each level, such as --levels place,animal"
        )
    if twice := repeated(names):
        raise DiagvibError(f"--levels names {twice} twice; give each level a name of its own")
    rows = [path.parts[:-1] for path in paths if len(path.parts) == depth + 1]
    labels = pd.DataFrame(rows, columns=names).apply(tidy_column)
    named_columns = {columns.target, *columns.cues, columns.split, columns.unit} - {None}
    if not levels and named_columns - {*names}:
        levels_text = "; ".join(
            f"level {n}: {', '.join(column_values(labels[c])[:3])}" for n, c in enumerate(names, 1)
        )
        raise DiagvibError(
            f"{folder}: has no table, so the names of its folders are the labels; name the {depth} "
            f"levels, from the top, with --levels, such as --levels {','.join('abcdefgh'[:depth])} ({levels_text})"
        )
    pattern = "/".join([*(f"{{{name}}}" for name in names), "*"])
    return {"pattern": pattern}, labels


def split_names(values: pd.Series) -> dict[str, str]:
    """Split -> the value that stands for it; empty without one for each of the three."""
    names = {
        split: _only(v for v in column_values(values) if v.lower() in words)
        for split, words in _SPLITS.items()
    }
    return names if all(names.values()) else {}


def _is_split(name: str, values: pd.Series) -> bool:
    """Whether a column is the published split: by its name, or by its values."""
    words = {
        word for split_words in _SPLITS.values() for word in split_words if not word.isdecimal()
    }
    values_lower = {value.lower() for value in column_values(values)}
    return "split" in name.lower() or (bool(values_lower) and values_lower <= words)


def column_values(column: pd.Series) -> list[str]:
    """The values in their order: numbers by size."""
    distinct = [value for value in column.unique() if value != ""]
    return sorted(distinct, key=lambda value: (len(value) if value.isdecimal() else 0, value))


def _only(items: Iterable[str]) -> str | None:
    items = [*items]
    return items[0] if len(items) == 1 else None
