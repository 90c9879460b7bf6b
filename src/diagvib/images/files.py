"""Image files: recipes rendered to Parquet, and read back into one tensor.

An image is its raw bytes in one `binary` column; shape and layout are in the file's metadata. All
recipe columns are included, so that a file can be understood in pandas.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from diagvib.foundation.columns import from_binary, to_binary
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import file_metadata, open_parquet, whole_file, with_metadata
from diagvib.images.memory import fits_on, room
from diagvib.images.row_groups import write_row_groups
from diagvib.scenes import load_scene
from diagvib.scenes.scene import Renderer

# Images rendered on a CPU and written at a time, and the row group. 24 MiB at 128 pixels: the C library
# requests blocks above 32 MiB from the system every time, and clearing them takes longer than
# drawing on them.
BATCH = 512
# Images rendered on a GPU, and copied from there, at a time: 192 MiB at 128 pixels.
_GPU_BATCH = 8 * BATCH
# Images decoded at a time: few enough to be copied while still in a core's cache.
_DECODED = 128


@dataclass(frozen=True)
class Images:
    """A dataset's split in memory: pixels uint8[N, H, W, 3], recipe columns, and the metadata.

    The pixels are on the CPU when read from a file, on the renderer's device when rendered and
    small enough.
    """

    pixels: torch.Tensor
    table: pa.Table
    metadata: dict

    @property
    def factors(self) -> Mapping[str, tuple[str, ...]]:
        """The factors of the images' scene, each with its classes. DiagvibError if there is no such
        scene."""
        return load_scene(self.metadata["scene"]).factors

    def labels(self, factor: str) -> torch.Tensor:
        """The class index of every image in the factor's full class list, int64[N].

        DiagvibError, naming the row, for a class that the scene does not have.
        """
        return torch.from_numpy(class_indices(self.table, factor, self.factors[factor]))


def pixel_format(size: int) -> dict:
    """The meaning of an image's bytes, for the metadata of image files."""
    return {"image_shape": [size, size, 3], "layout": "HWC", "dtype": "uint8"}


def class_indices(
    recipes: pa.Table | pa.RecordBatch, factor: str, classes: Sequence[str]
) -> np.ndarray:
    """Class indices int64[N] of a factor's column of class names. DiagvibError, naming the row, for
    an unknown name."""
    values = recipes[factor].to_pylist()
    indices = pd.Index(classes).get_indexer(values)
    for row in np.flatnonzero(indices < 0):
        raise DiagvibError(
            f"row {row}: {factor} has no class {values[row]!r}; known: {', '.join(classes)}"
        )
    return indices


def render_batches(
    recipes: pa.Table, renderer: Renderer, count: int = BATCH
) -> Iterator[torch.Tensor]:
    """Render a recipe table in order, so many images at a time: uint8[B, size, size, 3] on the
    renderer's device."""
    for start in range(0, len(recipes), count):
        yield renderer(recipes.slice(start, count))


def _row_groups(recipes: pa.Table, renderer: Renderer) -> Iterator[torch.Tensor]:
    """Render a recipe table in order, BATCH images at a time, on the CPU. A GPU draws one batch
    while the one before is copied."""
    if renderer.device.type == "cpu":
        yield from render_batches(recipes, renderer)
    else:
        for batch in _copied(render_batches(recipes, renderer, _GPU_BATCH)):
            yield from batch.split(BATCH)


def _copied(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Batches from a GPU in page-locked memory of the host, which torch uses again."""
    waiting = deque()
    for pixels in batches:
        copy = torch.empty(pixels.shape, dtype=pixels.dtype, pin_memory=True)
        copy.copy_(pixels, non_blocking=True)
        (event := torch.cuda.Event()).record()
        waiting.append((copy, event))
        if len(waiting) > 1:
            yield _arrived(*waiting.popleft())
    while waiting:
        yield _arrived(*waiting.popleft())


def _arrived(copy: torch.Tensor, event: torch.cuda.Event) -> torch.Tensor:
    event.synchronize()
    return copy


def rendered(recipes: pa.Table, renderer: Renderer, folder: Path) -> torch.Tensor:
    """All images of a recipe table, uint8[N, size, size, 3] on the renderer's device if they fit there,
    otherwise on the CPU: there a file in `folder` if they are more than memory should hold
    (`memory.room`)."""
    shape, start = (len(recipes), renderer.size, renderer.size, 3), 0
    drawn_on_cpu = renderer.device.type == "cpu"
    if drawn_on_cpu or not fits_on(renderer.device, math.prod(shape)):
        pixels = torch.from_numpy(room(shape, folder))
    else:
        pixels = torch.empty(shape, dtype=torch.uint8, device=renderer.device)
    count = BATCH if drawn_on_cpu else _GPU_BATCH
    for batch in render_batches(recipes, renderer, count):
        pixels[start : start + len(batch)] = batch
        start += len(batch)
    return pixels


def write_images(
    path: Path,
    recipes: pa.Table,
    renderer: Renderer,
    metadata: dict,
    advance: Callable[[int], None] = lambda n: None,
) -> None:
    """Render a recipe table to an image file, written atomically.

    Row groups are compressed in as many threads as torch may use. advance: called with the number
    of further images written. Memory use does not depend on the number of images, and the file
    neither on the threads nor on the renderer's device.
    """
    schema = with_metadata(
        recipes.schema.remove_metadata().append(pa.field("image", pa.binary())),
        {**metadata, **pixel_format(renderer.size)},
    )

    def tables() -> Iterator[Callable[[], pa.Table]]:
        start = 0
        for pixels in _row_groups(recipes, renderer):
            yield partial(_with_images, recipes.slice(start, len(pixels)), pixels, schema)
            start += len(pixels)

    with whole_file(path) as temporary:
        write_row_groups(
            temporary,
            tables(),
            torch.get_num_threads(),
            advance,
            schema=schema,
            compression="zstd",
            use_dictionary=[field.name for field in schema if field.type == pa.string()],
            write_statistics=recipes.schema.names,
            write_page_checksum=True,
        )


def _with_images(recipes: pa.Table, pixels: torch.Tensor, schema: pa.Schema) -> pa.Table:
    return pa.table([*recipes.columns, to_binary(pixels.numpy())], schema=schema)


def read_images(path: Path) -> Images:
    """An image file as one uint8 tensor, recipe columns and metadata.

    Row groups are decoded straight into the tensor, in as many threads as torch may use; if there
    are more images than memory should hold, it is a file (`memory.room`). DiagvibError if the file
    is missing, damaged, or has images of another size than its metadata says.
    """
    with open_parquet(path) as file:
        metadata = file_metadata(file, path)
        shape = metadata["image_shape"]
        pixels = room((file.metadata.num_rows, *shape), path.parent)
        lengths = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        table = file.read(columns=[name for name in file.schema_arrow.names if name != "image"])
    starts = np.cumsum([0, *lengths])

    def decode(group: int) -> None:
        row = starts[group]
        with open_parquet(path) as file:
            for batch in file.iter_batches(_DECODED, [group], ["image"]):
                pixels[row : row + len(batch)] = image_pixels(batch.column(0), shape, path)
                row += len(batch)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(decode, range(len(lengths))))
    return Images(torch.from_numpy(pixels), table, metadata)


def read_chunks(path: Path, start: int = 0) -> Iterator[torch.Tensor]:
    """The pixels of an image file from row `start` on, uint8[B, H, W, 3]: a row group at a time, or
    BATCH rows of a larger one."""
    with open_parquet(path) as file:
        shape, row = file_metadata(file, path)["image_shape"], 0
        for number in range(file.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if row + rows > start:
                column = file.read_row_group(number, columns=["image"])["image"]
                pixels = torch.from_numpy(image_pixels(column, shape, path))
                yield from pixels[max(start - row, 0) :].split(BATCH)
            row += rows


def image_pixels(column: pa.BinaryArray, shape: list[int], path: Path) -> np.ndarray:
    """The images of a column, uint8[N, H, W, 3]. DiagvibError, naming the file, for images of
    another size."""
    try:
        return from_binary(column, tuple(shape))
    except ValueError:
        raise DiagvibError(
            f"{path}: holds images that are not {int(np.prod(shape))} bytes long (shape {shape}); "
            "delete it and run again to make a new one"
        ) from None
