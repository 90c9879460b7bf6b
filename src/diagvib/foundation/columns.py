"""Arrays of one shape as raw bytes in a Parquet `binary` column, and back; all at once, not row by
row."""

import numpy as np
import pyarrow as pa

# The limit of a binary array's 32-bit offsets.
_MOST_BYTES = 2**31 - 1


def to_binary(arrays: np.ndarray) -> pa.ChunkedArray:
    """uint8[N, ...] as N binary values, without a copy, in chunks of less than 2 GiB each."""
    bytes_each = int(np.prod(arrays.shape[1:]))
    rows = _MOST_BYTES // max(bytes_each, 1)
    return pa.chunked_array(
        [_chunk(arrays[start : start + rows], bytes_each) for start in range(0, len(arrays), rows)],
        pa.binary(),
    )


def _chunk(arrays: np.ndarray, bytes_each: int) -> pa.Array:
    offsets = np.arange(len(arrays) + 1, dtype=np.int32) * np.int32(bytes_each)
    return pa.Array.from_buffers(
        pa.binary(), len(arrays), [None, pa.py_buffer(offsets), pa.py_buffer(arrays)]
    )


def from_binary(column: pa.Array, shape: tuple[int, ...]) -> np.ndarray:
    """A binary array of N values as uint8[N, *shape], without a copy. ValueError if any value has
    another length."""
    bytes_each = int(np.prod(shape))
    if column.type != pa.binary() or column.null_count:
        raise ValueError(f"{column.type} with {column.null_count} empty values, not plain binary")
    if not len(column):
        return np.empty((0, *shape), dtype=np.uint8)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    if (np.diff(bounds) != bytes_each).any():
        raise ValueError(f"values that are not {bytes_each} bytes long")
    return np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]].reshape(len(column), *shape)
