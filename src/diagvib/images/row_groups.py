"""Parquet files whose row groups are compressed side by side, in the bytes that pyarrow writes.

pyarrow's writer compresses one row group after another. Here, each is encoded as a file of its
own, in a thread. Its pages are appended to the whole file, in order, and its entry in the footer is
moved: positions count from the start of the file, and row groups are numbered.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from diagvib.images.thrift import read_structure, write_structure

_MAGIC = b"PAR1"
_LENGTH = 4  # bytes of the footer's length, which follows it
# Fields of the footer; of a row group; of a column; of its metadata, where pages are: of data, of an
# index, of a dictionary.
_ROWS, _GROUPS = 3, 4
_COLUMNS, _GROUP_POSITION, _GROUP_NUMBER = 1, 5, 7
_COLUMN_POSITION, _COLUMN_METADATA = 2, 3
_PAGE_POSITIONS = 9, 10, 11


def write_row_groups(
    path: Path,
    groups: Iterable[Callable[[], pa.Table]],
    threads: int,
    advance: Callable[[int], None],
    **options: object,
) -> None:
    """Write a file whose row groups are the tables that functions make, each called in a thread.

    advance: called with the rows of each that is written; options: of pyarrow's ParquetWriter.
    """
    footer, group_entries, row_count = _Encoded(None, **options).footer, [], 0
    with path.open("wb") as file:
        file.write(_MAGIC)
        for encoded in _in_order(groups, threads, options):
            entries, rows = encoded.footer[_GROUPS][1][1], encoded.footer[_ROWS][1]
            for entry in entries:
                _move(entry, file.tell() - len(_MAGIC), len(group_entries))
                group_entries.append(entry)
            file.write(encoded.pages)
            row_count += rows
            advance(rows)
        footer[_ROWS] = footer[_ROWS][0], row_count
        footer[_GROUPS] = footer[_GROUPS][0], (footer[_GROUPS][1][0], group_entries)
        write_structure(text := bytearray(), footer)
        file.write(text + len(text).to_bytes(_LENGTH, "little") + _MAGIC)


class _Encoded:
    """A table as a Parquet file in memory: the bytes of its pages, and its footer."""

    def __init__(self, make: Callable[[], pa.Table] | None, **options: object):
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, **options) as writer:
            if make:
                table = make()
                writer.write_table(table, row_group_size=len(table))
        buffer = sink.getvalue()
        end = len(buffer) - _LENGTH - len(_MAGIC)
        start = end - int.from_bytes(buffer[end : end + _LENGTH].to_pybytes(), "little")
        self.pages = buffer[len(_MAGIC) : start]
        self.footer, _ = read_structure(buffer[start:end].to_pybytes())


def _in_order(
    groups: Iterable[Callable[[], pa.Table]], threads: int, options: dict
) -> Iterator[_Encoded]:
    """Encode in threads, at most two more than these at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque()
        for make in groups:
            waiting.append(pool.submit(_Encoded, make, **options))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _move(group: dict, offset: int, number: int) -> None:
    """Move a row group's entry in the footer by so many bytes, and number it."""
    shift = partial(_shift, offset=offset)
    shift(group, _GROUP_POSITION)
    if _GROUP_NUMBER in group:
        group[_GROUP_NUMBER] = group[_GROUP_NUMBER][0], number
    for column in group[_COLUMNS][1][1]:
        shift(column, _COLUMN_POSITION)
        for field in _PAGE_POSITIONS:
            shift(column[_COLUMN_METADATA][1], field)


def _shift(fields: dict, field: int, offset: int) -> None:
    kind, position = fields.get(field, (0, 0))
    if position:
        fields[field] = kind, position + offset
