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


def test_a_full_split_has_more_bytes_than_one_array_can_address(tmp_path):
    """On a sparse file, of which only the rows looked at are ever in memory."""
    images = np.memmap(tmp_path / "images", np.uint8, "w+", shape=(43_740, 128, 128, 3))
    assert images.nbytes > 2**31
    rows = {
        0: 1,
        43_689: 2,
        43_690: 3,
        43_739: 4,
    }  # at both ends, and around the position where the offsets end
    for row, value in rows.items():
        images[row] = value
    column = to_binary(images)
    assert len(column) == 43_740 and column.type == pa.binary()
    for row, value in rows.items():
        assert column[row].as_py() == bytes([value]) * 49_152
    last = column.chunk(column.num_chunks - 1)
    assert (from_binary(last, (128, 128, 3))[-1] == 4).all()
    column.validate(full=True)


def test_chunks_are_written_and_read_as_one_column(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays_module, "_MOST_BYTES", 100)
    images = np.random.default_rng(0).integers(0, 256, (25, 4, 8), dtype=np.uint8)
    column = to_binary(images)
    assert [len(chunk) for chunk in column.chunks] == [3] * 8 + [1]
    pq.write_table(pa.table({"image": column}), tmp_path / "a.parquet")
    assert np.array_equal(back(pq.read_table(tmp_path / "a.parquet")["image"], (4, 8)), images)
