"""Stage prepare: every photo decoded, brought to one size and stored losslessly. photos.py reads
the result."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from diagvib.foundation.errors import unknown_name
from diagvib.foundation.files import whole_file, write_table
from diagvib.foundation.parallel import in_processes
from diagvib.scenes.dogs.embedded import PHOTOS, PLACES, embedded_photo
from diagvib.scenes.dogs.photos import CATALOGUE, PACKED, catalogue_digest, resized
from diagvib.scenes.photos.decoding import decode_photo, in_threads
from diagvib.scenes.photos.listing import listed_sources, read_listed, read_listing

# As published: pixels per side, and photos of each breed, background and copy.
SIZE, PUBLISHED = 224, 3168

# Lossless; of the codecs in benchmarks/README.md the smallest, except one that takes twenty times
# as long.
_WEBP = {"format": "WEBP", "lossless": True, "quality": 0, "method": 0}
_BATCH = 256
# With fewer stand-ins, starting another process takes longer than it saves.
_WORTH = 200


@dataclass(frozen=True)
class _Photo:
    path: str
    sha256: str  # of the source file
    pixels: str  # sha256
    encoded: bytes


def prepare(raw: Path, out: Path, sources: str) -> None:
    """Make `out` from the photos listed in `raw` (sources `official`) or from stand-ins
    (`embedded`).

    DiagvibError if nothing is listed, or a listed photo is missing or has changed.
    """
    if sources not in ("official", "embedded"):
        raise unknown_name("value of sources", sources, ("official", "embedded"))
    found = _pack(out, _official(raw) if sources == "official" else _embedded())
    copy, background, breed, _ = zip(*(path.split("/", 3) for path in found["path"]), strict=True)
    table = pa.table({"breed": breed, "background": background, "copy": copy, **found})
    counts = table.group_by(["copy", "background", "breed"]).aggregate([([], "count_all")])[
        "count_all"
    ]
    published = sources == "official" and set(counts.to_pylist()) == {PUBLISHED}
    write_table(
        out / CATALOGUE,
        table,
        {
            "sources": listed_sources(raw) if sources == "official" else sources,
            "comparable": published,
            "digest": catalogue_digest(table),
        },
    )


def _official(raw: Path) -> Iterator[_Photo]:
    table, folder = read_listing(raw)

    def read(row: dict) -> _Photo:
        path = folder / row["path"]
        return _photo(
            row["path"],
            row["sha256"],
            resized(decode_photo(read_listed(path, row["sha256"]), path), SIZE),
        )

    yield from in_threads(read, table.select(["path", "sha256"]).to_pylist())


def _embedded() -> Iterator[_Photo]:
    names = [(*place, number) for place in sorted(PLACES) for number in range(PHOTOS)]
    yield from in_processes(_stand_in, names, os.cpu_count() or 1, _WORTH)


def _stand_in(name: tuple[str, str, str, int]) -> _Photo:
    pixels = embedded_photo(*name)
    *place, number = name
    return _photo(f"{'/'.join(place)}/{number:04d}", _sha256(pixels), pixels)


def _photo(path: str, sha256: str, pixels: np.ndarray) -> _Photo:
    file = BytesIO()
    Image.fromarray(pixels).save(file, **_WEBP)
    return _Photo(path, sha256, _sha256(pixels), file.getvalue())


def _pack(out: Path, photos: Iterable[_Photo]) -> dict[str, list[str]]:
    """Write the photos to an Arrow file; returns the columns of the catalogue."""
    found: dict[str, list[str]] = {"path": [], "sha256": [], "pixels": []}
    schema, waiting = pa.schema([("photo", pa.large_binary())]), []
    with whole_file(out / PACKED) as temporary:
        with pa.ipc.new_file(temporary, schema) as file:
            for photo in photos:
                for name, column in found.items():
                    column.append(getattr(photo, name))
                waiting.append(photo.encoded)
                if len(waiting) == _BATCH:
                    file.write(pa.record_batch([waiting], schema=schema))
                    waiting = []
            file.write(pa.record_batch([waiting], schema=schema))
        (out / CATALOGUE).unlink(missing_ok=True)  # the old catalogue must not vouch for new photos
    return found


def _sha256(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels)).hexdigest()
