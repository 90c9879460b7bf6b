"""Arrays of one shape as raw bytes in a Parquet `binary` column, and back."""

import math

import numpy as np
import pyarrow as pa


def to_binary(arrays: np.ndarray) -> pa.BinaryArray:
    """uint8[N, ...], less than 2 GiB, as N binary values."""
    kind = pa.binary(math.prod(arrays.shape[1:]))
    data = pa.py_buffer(arrays)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(arrays), [None, data]).cast(pa.binary())


def from_binary(column: pa.Array | pa.ChunkedArray, shape: tuple[int, ...]) -> np.ndarray:
    """N binary values as uint8[N, *shape]. ValueError if any has another length."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    _, data = column.cast(pa.binary(math.prod(shape))).buffers()
    return np.frombuffer(data, dtype=np.uint8).reshape(len(column), *shape)
