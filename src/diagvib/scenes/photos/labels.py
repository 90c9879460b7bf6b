"""Tables of labels, in the formats in which people have them, as text."""

import json
import re
from functools import partial, reduce
from pathlib import Path, PurePosixPath
from unicodedata import normalize

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from diagvib.foundation.errors import DiagvibError, one_line
from diagvib.foundation.validation import repeated
from diagvib.scenes.photos.decoding import check_regular

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
_SEPARATORS = ",;\t|"  # the first of those that are most frequent in the header
_EXCEL = re.compile(f"sep=([{re.escape(_SEPARATORS)}])\\s*", re.IGNORECASE)  # its first line
_INVISIBLE = {0x200B: None, 0xFEFF: None}  # a space without width, a byte order mark


def tidy(text: str) -> str:
    """A text as people see it: letters composed, one space instead of several or of special ones,
    none at the ends."""
    return " ".join(normalize("NFC", text).translate(_INVISIBLE).split())


def tidy_column(column: pd.Series) -> pd.Series:
    return column.map({text: tidy(text) for text in column.unique()})


def read_labels(path: Path, location: str) -> pd.DataFrame:
    """A table as text, "" for missing values, with tidy names of columns: CSV or TSV in UTF-8, JSON
    records or Parquet, without columns of images. location: the key or option that names it.
    DiagvibError if it cannot be read, or has no rows or a column twice."""
    readers = {".parquet": _read_parquet, ".jsonl": _read_json, ".json": _read_json}
    try:
        check_regular(path)
        table = readers.get(path.suffix.lower(), _read_separated)(path)
    except FileNotFoundError:
        raise DiagvibError(f"{location}: {path}: no such file") from None
    except DiagvibError:
        raise
    except Exception as error:  # any reader may raise anything
        raise DiagvibError(
            f"{path}: not a table that can be read; use Parquet, or CSV with commas in UTF-8 "
            f"({one_line(error)})"
        ) from None
    table.columns = [tidy(str(name)) or f"column_{n}" for n, name in enumerate(table, 1)]
    if (name := repeated([*table])) is not None:
        raise DiagvibError(f"{path}: has the column {name} twice; rename one")
    if table.empty:
        raise DiagvibError(f"{path}: has no rows")
    return table.reset_index(drop=True)


def image_columns(path: Path) -> list[str]:
    """The columns of a Parquet file that hold images: bytes, or Hugging Face's records of bytes and
    a path."""
    return [field.name for field in pq.read_schema(path) if _holds_bytes(field.type)]


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(field.type) for field in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _read_parquet(path: Path) -> pd.DataFrame:
    images = image_columns(path)
    columns = [name for name in pq.read_schema(path).names if name not in images]
    table = pq.read_table(path, columns=columns)
    return _as_text(table.to_pandas(ignore_metadata=True, integer_object_nulls=True))


def _read_json(path: Path) -> pd.DataFrame:
    """A record in each line, or a list of records."""
    text = path.read_text(encoding="utf-8-sig")
    records = text.lstrip().startswith("[")
    lines = [] if records else [line for line in text.split("\n") if line.strip()]
    rows = json.loads(text) if records else [json.loads(line) for line in lines]
    return _as_text(pd.DataFrame(rows, dtype=object))


def _read_separated(path: Path) -> pd.DataFrame:
    # With the names as its first row: as a header, pandas would rename what is there twice.
    with open(path, encoding="utf-8-sig") as file:
        line = file.readline()
        separator = _EXCEL.fullmatch(line)
        header = re.sub('"[^"]*"', "", file.readline() if separator else line)
    table = pd.read_csv(
        path,
        sep=separator[1] if separator else max(_SEPARATORS, key=header.count),
        skiprows=1 if separator else 0,
        header=None,
        skipinitialspace=True,
        dtype=str,
        keep_default_na=False,
        encoding="utf-8-sig",
    )
    return table.iloc[1:].set_axis(table.iloc[0].tolist(), axis=1)


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(str).where(table.notna(), "")


def read_tables(names: list[str], folder: Path, file: str, location: str) -> pd.DataFrame:
    """The rows of a set's tables, joined by the columns that they share. file: the column with the
    photos' paths."""
    tables = [_stacked(name, folder, file, f"{location}: table") for name in names]
    return reduce(partial(_joined, folder / names[0]), tables)


def table_paths(name: str, folder: Path) -> list[Path]:
    """The table of this name; or all that fit it, if it has a `*`."""
    return sorted(folder.glob(name)) if "*" in name else [folder / name]


def _stacked(name: str, folder: Path, file: str, location: str) -> pd.DataFrame:
    """The rows of a table; or of several, whose paths are relative to their folders. A column `table`
    names each, unless all have the same name."""
    if "*" not in name:
        return read_labels(folder / name, location)
    paths = table_paths(name, folder)
    if not paths:
        raise DiagvibError(f"{location}: {folder}: no file has a path like {name}")
    tables = [read_labels(path, location) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if len({path.name for path in paths}) > 1 and "table" not in table:
            table["table"] = path.stem
        if file in table:
            base = PurePosixPath(path.parent.relative_to(folder).as_posix())
            table[file] = [
                str(base / text.replace("\\", "/")) if text else "" for text in table[file]
            ]
    return pd.concat(tables, ignore_index=True).fillna("")


def _joined(path: Path, labels: pd.DataFrame, further_labels: pd.DataFrame) -> pd.DataFrame:
    """Tables joined by the columns that they share. DiagvibError, naming the first one's path, unless
    each row has exactly one in the other table."""
    shared = [column for column in labels if column in further_labels]
    if not shared:
        raise DiagvibError(f"{path}: shares no column with the next table")
    pairs = labels.merge(further_labels, "outer", shared, indicator="\0in")
    rows = len(labels), len(further_labels), int((pairs["\0in"] == "both").sum())
    if len({*rows, len(pairs)}) > 1:
        raise DiagvibError(
            f"{path}: {rows[0]:,} rows, in the next table {rows[1]:,}, but {rows[2]:,} pairs have the same "
            f"{', '.join(shared)}; each row needs exactly one"
        )
    return pairs.drop(columns="\0in")
