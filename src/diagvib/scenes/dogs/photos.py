"""Reads the prepared photos: what they show, and their pixels by number.

data/prepared/ contains photos.arrow, the photos as WebP, each readable on its own (Parquet gives
rows only in groups); and catalogue.parquet, a row per photo in the same order, whose metadata says
what they were made from.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_metadata, read_table
from diagvib.scenes.photos.decoding import decode_photo, in_threads
from diagvib.scenes.prepared import check_prepared, mismatch

CATALOGUE, PACKED = "catalogue.parquet", "photos.arrow"
_SHOWN = ("breed", "background", "copy")


@dataclass(frozen=True)
class Catalogue:
    """The available photos: breed, background and copy str[N]; row number = a photo's number.

    comparable: whether results can be compared with the paper's. digest: of all prepared pixels and
    what they show.
    """

    breed: np.ndarray
    background: np.ndarray
    copy: np.ndarray
    sources: str
    comparable: bool
    digest: str


def resized(photo: np.ndarray, size: int) -> np.ndarray:
    """A photo uint8[H, W, 3] as uint8[size, size, 3]: the full photo, as in the published loader,
    bilinearly."""
    if photo.shape[:2] == (size, size):
        return photo
    return np.asarray(Image.fromarray(photo).resize((size, size), Image.Resampling.BILINEAR))


def load_catalogue(folder: Path) -> Catalogue:
    """The content of a prepared folder, without its photos. DiagvibError if it is missing, or does
    not match its digest."""
    path = Path(folder) / CATALOGUE
    check_prepared(path)
    noted, table = read_metadata(path), read_table(path, [*_SHOWN, "pixels"])
    if noted.get("digest") != catalogue_digest(table):
        raise _mismatch(folder)
    return Catalogue(
        *(table[name].to_numpy() for name in _SHOWN),
        noted["sources"],
        noted["comparable"],
        noted["digest"],
    )


class Photos:
    """The photos of a prepared folder, by their numbers. DiagvibError if they are missing or not
    those catalogued."""

    def __init__(self, folder: Path):
        self.catalogue, self._path = load_catalogue(folder), Path(folder) / PACKED
        if not self._path.is_file():
            raise DiagvibError(f"{self._path}: no such file; run `diagvib prepare` again")
        try:
            self._photos = pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()["photo"]
        except (pa.ArrowException, OSError, KeyError):
            raise _mismatch(folder) from None
        if len(self._photos) != len(self.catalogue.breed):
            raise _mismatch(folder)

    def read(self, numbers: np.ndarray, size: int) -> np.ndarray:
        """The photos int[B] as uint8[B, size, size, 3], decoded on all cores."""
        images = np.empty((len(numbers), size, size, 3), np.uint8)

        def one(at: int) -> None:
            data = self._photos[int(numbers[at])].as_buffer().to_pybytes()
            images[at] = resized(decode_photo(data, self._path), size)

        for _ in in_threads(one, range(len(numbers))):
            pass
        return images


def catalogue_digest(table: pa.Table) -> str:
    """A digest of what the photos show and of their pixels, in order."""
    digest = hashlib.sha256()
    for name in (*_SHOWN, "pixels"):
        digest.update("\n".join(table[name].to_pylist()).encode())
    return digest.hexdigest()


def _mismatch(folder: Path) -> DiagvibError:
    return mismatch(folder, "photos", CATALOGUE)
