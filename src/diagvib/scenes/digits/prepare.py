"""Stage prepare: from the source files to the digits and textures that images are rendered from,
and reading them.

data/prepared/ contains digits.parquet (row number = digit index), textures/{name}.png, and
sources.json, written last, which says what the rest was made from and contains its digest.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagvib.foundation.columns import from_binary, to_binary
from diagvib.foundation.errors import DiagvibError, some_names
from diagvib.foundation.files import (
    file_sha256,
    read_table,
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
from diagvib.scenes.digits.textures import (
    check_distinct,
    read_photo,
    read_texture,
    write_texture,
)
from diagvib.scenes.fetch import Source
from diagvib.scenes.prepared import DESCRIPTION, mismatch, read_described
from diagvib.scenes.scene import Catalogue

TABLE = "digits.parquet"
# The textures of the paper, which are none of the user's photos.
PUBLISHED: Mapping[str, str | None] = dict.fromkeys(classes("texture"))


@dataclass(frozen=True)
class DigitCatalogue(Catalogue):
    """The available digits: label int64[D] and split str[D] (train, val, test); row number = digit
    index."""

    label: np.ndarray
    split: np.ndarray


def prepare(
    files: Sequence[Source],
    raw: Path,
    out: Path,
    sources: str,
    photos: Mapping[str, str | None] = PUBLISHED,
) -> None:
    """Make `out` from the source files in `raw` (sources `official`) or from nothing but our
    dependencies (`embedded`). photos: class -> its file in `raw`, for textures of the user's.

    DiagvibError if a source file is missing, does not have the listed sha256, or has unusable
    content.
    """
    _check_sources(files, raw)
    training, test = read_mnist(raw / "mnist") if sources == "official" else embedded_digits()
    textures = _textures(raw, sources, photos)
    digits = np.stack([*map(prepare_digit, [*training.images, *test.images])])
    labels, splits = np.concatenate([training.labels, test.labels]), split_names(training, test)
    described = {
        "sources": _origin(sources, photos),
        "comparable": sources == "official" and not any(photos.values()),
        "digest": _digest(digits, labels, splits, [*textures.values()]),
    }
    for path in {*out.glob("textures/*.png")} - {_texture_path(out, name) for name in textures}:
        path.unlink()
    for name, texture in textures.items():
        write_texture(_texture_path(out, name), texture)
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


def load_pixels(
    folder: Path, names: Sequence[str] = tuple(PUBLISHED)
) -> tuple[np.ndarray, np.ndarray]:
    """The digits uint8[D, 40, 40] and the textures with these names, uint8[T, 256, 256], of a
    prepared folder. DiagvibError if it is missing, incomplete, or does not match its digest."""
    catalogue, column = load_catalogue(folder), read_table(folder / TABLE, ["digit"])["digit"]
    digits = from_binary(column, (DIGIT_SIZE, DIGIT_SIZE))
    textures = [read_photo(_texture_path(folder, name)) for name in names]
    if _digest(digits, catalogue.label, catalogue.split, textures) != catalogue.digest:
        raise mismatch(folder, "digits and textures")
    return digits, np.stack(textures)


def _check_sources(files: Sequence[Source], raw: Path) -> None:
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


def _textures(raw: Path, sources: str, photos: Mapping[str, str | None]) -> dict[str, np.ndarray]:
    textures = {
        name: embedded_texture(name)
        if sources == "embedded" and not photo
        else read_texture(raw / photo if photo else _texture_path(raw, name))
        for name, photo in photos.items()
    }
    check_distinct(textures)
    return textures


def _origin(sources: str, photos: Mapping[str, str | None]) -> str:
    """`sources`, and the user's textures if there are any."""
    names = [name for name, photo in photos.items() if photo]
    return f"{sources} (textures: {some_names(names)})" if names else sources


def _texture_path(folder: Path, name: str) -> Path:
    return folder / "textures" / f"{name}.png"


def _digest(
    digits: np.ndarray, labels: np.ndarray, splits: np.ndarray, textures: Sequence[np.ndarray]
) -> str:
    names = np.frombuffer("\n".join(splits.tolist()).encode(), dtype=np.uint8)
    digest = hashlib.sha256()
    for array in (digits, labels.astype(np.int8), names, *textures):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()
