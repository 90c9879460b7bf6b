"""Arrays in binary columns: unchanged bytes, even beyond the reach of one array's offsets."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diagvib.foundation import columns as arrays_module
from diagvib.foundation.columns import from_binary, to_binary


def back(column: pa.ChunkedArray, shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([from_binary(chunk, shape) for chunk in column.chunks])


@pytest.mark.parametrize("shape", [(7, 4, 5), (1, 3), (0, 3), (3, 0)])
def test_what_goes_in_comes_out(shape):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    column = to_binary(images)
    assert len(column) == len(images) and column.to_pylist() == [
        image.tobytes() for image in images
    ]
    if len(images):
        assert np.array_equal(back(column, shape[1:]), images)


def test_chunks_are_written_and_read_as_one_column(tmp_path, monkeypatch):
    assert arrays_module._MOST_BYTES < 2**31, "the reach of one array's offsets"
    monkeypatch.setattr(arrays_module, "_MOST_BYTES", 100)
    images = np.random.default_rng(0).integers(0, 256, (25, 4, 8), dtype=np.uint8)
    column = to_binary(images)
    assert [len(chunk) for chunk in column.chunks] == [3] * 8 + [1]
    pq.write_table(pa.table({"image": column}), tmp_path / "a.parquet")
    assert np.array_equal(back(pq.read_table(tmp_path / "a.parquet")["image"], (4, 8)), images)
