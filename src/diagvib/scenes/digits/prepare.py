"""Stage prepare: from the source files to the digits and textures that images are rendered from,
and reading them.

data/prepared/ contains digits.parquet (row number = digit index), textures/{name}.png, and
sources.json, written last, which says what the rest was made from and contains its digest.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from diagvib.foundation.columns import from_binary, to_binary
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import (
    file_sha256,
    read_table,
    whole_file,
    write_json,
    write_table,
)
from diagvib.scenes.digits.digits import (
    DIGIT_SIZE,
    prepare_digit,
    read_mnist,
    split_names,
)
from diagvib.scenes.digits.embedded import embedded_digits, embedded_texture
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.resizing import TEXTURE_SIZE
from diagvib.scenes.fetch import Source
from diagvib.scenes.prepared import DESCRIPTION, mismatch, read_described
from diagvib.scenes.scene import Catalogue

TABLE = "digits.parquet"


@dataclass(frozen=True)
class DigitCatalogue(Catalogue):
    """The available digits: label int64[D] and split str[D] (train, val, test); row number = digit
    index."""

    label: np.ndarray
    split: np.ndarray


def prepare(files: Sequence[Source], raw: Path, out: Path, sources: str) -> None:
    """Make `out` from the source files in `raw` (sources `official`) or from nothing but our
    dependencies (`embedded`).

    DiagvibError if a source file is missing, does not have the listed sha256, or has unusable
    content.
    """
    if sources == "official":
        for source in files:
            path = raw / source.path
            if not path.is_file():
                raise DiagvibError(f"{path}: no such file; run `diagvib fetch` first")
            digest = file_sha256(path)
            if digest != source.sha256:
                raise DiagvibError(
                    f"{path}: not the published file: its sha256 is {digest}, expected {source.sha256}; run "
                    "`diagvib fetch`, which replaces it, or, if it is the one you mean, put its sha256 into "
                    "config/sources.yaml"
                )
        training, test = read_mnist(raw / "mnist")
        textures = [read_texture(path) for path in _texture_paths(raw)]
    else:
        training, test = embedded_digits()
        textures = [embedded_texture(name) for name in classes("texture")]
    digits = np.stack([*map(prepare_digit, [*training.images, *test.images])])
    labels, splits = np.concatenate([training.labels, test.labels]), split_names(training, test)
    described = {
        "sources": sources,
        "comparable": sources == "official",
        "digest": _digest(digits, labels, splits, textures),
    }
    for path, texture in zip(_texture_paths(out), textures, strict=True):
        write_texture(path, texture)
    columns = {
        "digit": to_binary(digits),
        "label": labels.astype(np.int8),
        "split": pa.array(splits, pa.string()),
        "file": [training.file] * len(training.labels) + [test.file] * len(test.labels),
        "index": np.concatenate([training.places, test.places]).astype(np.int32),
    }
    write_table(out / TABLE, pa.table(columns), described)
    write_json(out / DESCRIPTION, described)


def load_catalogue(folder: Path) -> DigitCatalogue:
    """The labels and splits of a prepared folder, without reading its pixels. DiagvibError if it is
    missing, or its files belong to different preparations."""
    described, table = read_described(folder, TABLE, ["label", "split"])
    label = table["label"].to_numpy().astype(np.int64)
    return DigitCatalogue(**described, label=label, split=table["split"].to_numpy().astype(str))


def load_pixels(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The digits uint8[D, 40, 40] and textures uint8[5, 256, 256], in class order, of a prepared
    folder. DiagvibError if it is missing, incomplete, or does not match its digest."""
    catalogue, column = load_catalogue(folder), read_table(folder / TABLE, ["digit"])["digit"]
    digits = from_binary(column, (DIGIT_SIZE, DIGIT_SIZE))
    textures = [read_texture(path) for path in _texture_paths(folder)]
    if _digest(digits, catalogue.label, catalogue.split, textures) != catalogue.digest:
        raise mismatch(folder, "digits and textures")
    return digits, np.stack(textures)


def read_texture(path: Path) -> np.ndarray:
    """A texture as the renderer needs it, uint8[256, 256], with a flat histogram (paper, Sec. 3.1).
    DiagvibError unless the file is a grey image of this size."""
    try:
        with Image.open(path) as image:
            if (image.mode, *image.size) != ("L", TEXTURE_SIZE, TEXTURE_SIZE):
                raise ValueError(f"mode {image.mode}, {image.width} x {image.height} pixels")
            return np.asarray(image)
    except Exception as error:  # a decoder may raise anything for a damaged file
        raise DiagvibError(
            f"{path}: not readable as a grey image of {TEXTURE_SIZE} x {TEXTURE_SIZE} pixels ({error})"
        ) from None


def write_texture(path: Path, texture: np.ndarray) -> None:
    with whole_file(path) as temporary:
        Image.fromarray(texture).save(temporary, format="PNG")


def _texture_paths(folder: Path) -> list[Path]:
    return [folder / "textures" / f"{name}.png" for name in classes("texture")]


def _digest(
    digits: np.ndarray, labels: np.ndarray, splits: np.ndarray, textures: Sequence[np.ndarray]
) -> str:
    names = np.frombuffer("\n".join(splits.tolist()).encode(), dtype=np.uint8)
    digest = hashlib.sha256()
    for array in (digits, labels.astype(np.int8), names, *textures):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()
