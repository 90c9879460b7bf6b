"""Image files are the bytes that pyarrow writes, however many threads compress them."""

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from conftest import refused
from diagvib.foundation.errors import DiagvibError
from diagvib.images.files import BATCH, read_images, write_images
from diagvib.images.row_groups import write_row_groups
from diagvib.scenes.scene import Renderer

SIZE, ROWS = 8, 17 * BATCH + 9


@pytest.fixture
def recipes() -> pa.Table:
    g = np.random.default_rng(0)
    names = {f"name{number}": g.choice(["ice", "née", ""], ROWS) for number in range(14)}
    # Statistics are long; values are missing; some are of one value alone.
    more_columns = {"text": ["x" * (number % 300) for number in range(ROWS)], "flag": [True] * ROWS}
    numbers = {"hue": g.normal(size=ROWS), "count": [None, *range(ROWS - 1)]}
    return pa.table({**names, **more_columns, **numbers, "row": np.arange(ROWS)})


def renderer(fails_from: int = ROWS) -> Renderer:
    def render(recipes: pa.Table) -> torch.Tensor:
        rows = recipes["row"].to_numpy()
        if rows.max() >= fails_from:
            raise DiagvibError(f"row {fails_from}: no such class")
        images = [np.random.default_rng(row).integers(0, 9, (SIZE, SIZE, 3)) for row in rows]
        return torch.from_numpy(np.stack(images).astype(np.uint8))

    return Renderer("noise", SIZE, torch.device("cpu"), render)


def written(path: Path, recipes: pa.Table, threads: int, **keys: int) -> bytes:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        write_images(path, recipes, renderer(**keys), {"scene": "noise"})
    finally:
        torch.set_num_threads(before)
    return path.read_bytes()


@pytest.mark.parametrize("rows", [0, 1, BATCH, ROWS])
def test_the_bytes_are_pyarrows_for_any_number_of_threads(tmp_path, recipes, rows):
    part = recipes.slice(0, rows)
    parallel = [written(tmp_path / "images.parquet", part, threads) for threads in (1, 2, 5)]
    images = read_images(tmp_path / "images.parquet")
    assert images.table.equals(part)
    column = [image.numpy().tobytes() for image in images.pixels]
    schema = pq.read_schema(tmp_path / "images.parquet")
    table = pa.table([*part.columns, pa.array(column, pa.binary())], schema=schema)
    with pq.ParquetWriter(
        tmp_path / "plain.parquet",
        schema,
        compression="zstd",
        use_dictionary=[field.name for field in schema if field.type == pa.string()],
        write_statistics=recipes.column_names,
        write_page_checksum=True,
    ) as writer:
        for start in range(0, rows, BATCH):
            writer.write_table(table.slice(start, BATCH), row_group_size=BATCH)
    assert {*parallel} == {(tmp_path / "plain.parquet").read_bytes()}
    assert images.metadata["image_shape"] == [SIZE, SIZE, 3]


def test_an_error_while_rendering_is_told_and_leaves_no_file(tmp_path, recipes):
    with refused("row 700: no such class"):
        written(tmp_path / "images.parquet", recipes, 2, fails_from=700)
    assert not [*tmp_path.iterdir()]


def test_an_error_while_encoding_is_told(tmp_path):
    tables = [partial(pa.table, {"row": [1]}), partial(pa.table, {"name": ["x"]})]
    with pytest.raises(ValueError, match="schema"):
        write_row_groups(
            tmp_path / "x", tables, 2, lambda rows: None, schema=pa.schema([("row", pa.int64())])
        )
