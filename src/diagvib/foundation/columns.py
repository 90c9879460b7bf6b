"""Arrays of one shape as raw bytes in a Parquet `binary` column, and back."""

import math

import numpy as np
import pyarrow as pa


def to_binary(arrays: np.ndarray) -> pa.BinaryArray:
    """uint8[N, ...], less than 2 GiB, as N binary values."""
    ends = np.arange(len(arrays) + 1, dtype=np.int32) * np.int32(math.prod(arrays.shape[1:]))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(arrays)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(arrays), buffers)


def from_binary(column: pa.Array | pa.ChunkedArray, shape: tuple[int, ...]) -> np.ndarray:
    """N binary values as uint8[N, *shape]. ValueError if any has another length."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    _, data = column.cast(pa.binary(math.prod(shape))).buffers()
    return np.frombuffer(data, dtype=np.uint8).reshape(len(column), *shape)
